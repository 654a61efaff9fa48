"""Whatever reaches a peer: what is not by the rules is refused, counted and on record, and changes nothing."""

from __future__ import annotations

import dataclasses
import json
import math
import random
import struct
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dracofl.build import build_peer_core, build_world
from dracofl.config.load import load_config
from dracofl.protocol.commands import Happening
from dracofl.protocol.headers import (
    HEADER_BYTES,
    Answer,
    Header,
    Kind,
    Verdict,
    decode_answer,
    encode,
    encode_answer,
    shape_of,
)
from dracofl.protocol.peer import PeerState
from dracofl.runtime.journal import Line, MemoryJournal
from dracofl.runtime.parcel import Parcel
from dracofl.runtime.peer import Peer
from dracofl.runtime.ports import Limits
from dracofl.runtime.records import records_of
from dracofl.telemetry.summary import summarise
from dracofl.telemetry.tables import to_table
from dracofl.trace import TraceHash

LENGTH, NORM, NOW_S, PSI = 40, 1e4, 50.0, 5
SHAPE = shape_of("test")
OUR_EPOCH, EPOCHS = 5, {1: 11, 2: 12}
ONES = np.ones(LENGTH, "<f4")
GOOD = Header(
    Kind.UPDATE,
    sender=1,
    receiver=0,
    epoch=EPOCHS[1],
    to_epoch=OUR_EPOCH,
    number=3,
    updates=1,
    hub=1,
    weight=0.25,
    finished_s=40.0,
    sent_s=41.0,
    offset_s=math.nan,
    length=LENGTH,
    shape=SHAPE,
)
MODEL = GOOD._replace(kind=Kind.MODEL, number=1, weight=1.0)
ASK = GOOD._replace(kind=Kind.ASK, number=0, length=0)


@dataclass
class Ports:
    """Remembers what it is asked for, and does none of it."""

    posted: list[Parcel] = field(default_factory=list)
    timers: dict[Happening, float] = field(default_factory=dict)

    def set_timer(self, happening: Happening, at_s: float) -> None:
        self.timers[happening] = at_s

    def train(self, number: int, model: np.ndarray) -> None: ...

    def post(self, parcel: Parcel, at_s: float) -> None:
        self.posted.append(parcel)


class Target:
    def __init__(self, *changes: str) -> None:
        usual = ["users=4", "compute.snapshot=start", "method.hub=round-robin", f"method.psi={PSI}"]
        config = load_config("tiny", [*usual, "channel.kind=ideal", *changes])
        core = build_peer_core(config, build_world(config), LENGTH, 0, PeerState(OUR_EPOCH))
        self.lines: list[tuple[int, Line]] = []
        self.ports = Ports()
        limits = Limits(SHAPE, LENGTH, NORM, deadline_s=math.inf)
        journal = MemoryJournal(0, self.lines)
        journal.write("start", 0.0, {"epoch": OUR_EPOCH})
        self.peer = Peer(core, np.linspace(-1, 1, LENGTH, dtype=np.float32), None, limits, self.ports, journal)
        self.peer.start(0.0)
        for user, epoch in EPOCHS.items():
            self.peer.member_came(user, epoch, 1.0)

    def state(self) -> tuple[Any, ...]:
        """All that a message could change."""
        peer = self.peer
        parts = peer.core.state, peer.core.node.state, peer.core.vectors.state
        held = {name: vector.tobytes() for name, vector in peer.vectors.items()}
        return held, [dataclasses.asdict(part) for part in parts], len(self.ports.posted), dict(self.ports.timers)

    def tell(self, data: bytes, sender: int | None = None, now_s: float = NOW_S) -> Verdict:
        answer = decode_answer(self.peer.message(data[:HEADER_BYTES], data[HEADER_BYTES:], now_s, sender), LENGTH)
        assert answer is not None
        assert answer.epoch == OUR_EPOCH
        return answer.verdict

    def refuses(self, data: bytes, verdict: Verdict, sender: int | None = None) -> None:
        before, lines, refused = self.state(), len(self.lines), self.peer.refused
        assert self.tell(data, sender) == verdict
        assert self.state() == before
        ((_, line),) = self.lines[lines:]
        assert line[:3] == ["refused", NOW_S, verdict.name]
        assert line[-1] == len(data)
        assert self.peer.refused == refused + (verdict != Verdict.NOT_NEWER)

    def takes_a_good_one(self, header: Header = GOOD) -> None:
        peer = self.peer
        model, names, accepted = peer.model.copy(), set(peer.vectors), peer.core.node.state.accepted
        assert self.tell(message(header), header.sender) == Verdict.ACCEPTED
        np.testing.assert_array_equal(peer.model, model + np.float32(header.weight) * ONES)
        assert set(peer.vectors) == names
        assert peer.core.node.state.accepted == accepted + 1

    def results(self) -> dict[str, Any]:
        """What a run makes of its journal: it must be possible, and in numbers that strict readers take."""
        lines = [(user, json.loads(json.dumps(line))) for user, line in self.lines]
        records = records_of(lines, everybody=False)
        TraceHash().add(records.events, records.messages)
        tables = {"events": records.events, "messages": records.messages, "metrics": []}
        summary = summarise({name: to_table(name, rows) for name, rows in tables.items()}, 4)
        json.dumps(summary, allow_nan=False)
        return {"refused": records.refused, **summary}


def message(header: Header, numbers: np.ndarray = ONES) -> bytes:
    return encode(header) + (b"" if header.kind == Kind.ASK else numbers.astype("<f4").tobytes())


def changed(header: Header = GOOD, **fields: Any) -> bytes:
    return message(header._replace(**fields))


def with_number(value: float) -> bytes:
    numbers = ONES.copy()
    numbers[LENGTH // 2] = value
    return message(GOOD, numbers)


def overwritten(data: bytes, place: int, value: bytes) -> bytes:
    return data[:place] + value + data[place + len(value) :]


FINE = message(GOOD)
V = Verdict
BAD = {
    "nothing": (b"", V.SIZE),
    "a few bytes": (b"\x00\xff" * 5, V.SIZE),
    "noise": (random.Random(1).randbytes(len(FINE)), V.VERSION),
    "one byte less": (FINE[:-1], V.SIZE),
    "one byte more": (FINE + b"\x00", V.SIZE),
    "half": (FINE[: len(FINE) // 2], V.SIZE),
    "twice": (FINE + FINE, V.SIZE),
    "a megabyte": (FINE + bytes(1_000_000), V.SIZE),
    "says it is longer": (changed(length=LENGTH + 1), V.SIZE),
    "says it is very long": (changed(length=2**32 - 1), V.SIZE),
    "a question with numbers": (changed(ASK, length=LENGTH) + ONES.tobytes(), V.SIZE),
    "another protocol": (overwritten(FINE, 0, b"HTTP"), V.VERSION),
    "an earlier version": (overwritten(FINE, 4, struct.pack("<H", 1)), V.VERSION),
    "a later version": (overwritten(FINE, 4, struct.pack("<H", 3)), V.VERSION),
    "no kind": (overwritten(FINE, 6, b"\x00"), V.SENSELESS),
    "an unknown kind": (overwritten(FINE, 6, b"\x04"), V.SENSELESS),
    "another shape": (changed(shape=shape_of("other")), V.SHAPE),
    "not a number": (with_number(math.nan), V.NOT_FINITE),
    "infinity": (with_number(math.inf), V.NOT_FINITE),
    "minus infinity": (with_number(-math.inf), V.NOT_FINITE),
    "a number too large": (with_number(1.01 * NORM), V.TOO_LARGE),
    "numbers whose squares overflow": (message(GOOD, 3e38 * ONES), V.TOO_LARGE),
    "a model that is not finite": (message(MODEL, math.nan * ONES), V.NOT_FINITE),
    "a model that is too large": (message(MODEL, 1e30 * ONES), V.TOO_LARGE),
    "from nobody": (changed(sender=4), V.STRANGER),
    "from nobody at all": (changed(sender=2**32 - 1), V.STRANGER),
    "from ourselves": (changed(sender=0), V.STRANGER),
    "a hub that does not exist": (changed(MODEL, hub=4), V.STRANGER),
    "for somebody else": (changed(receiver=2), V.MISDIRECTED),
    "for an earlier self": (changed(to_epoch=OUR_EPOCH - 1), V.EARLIER_SELF),
    "for a later self": (changed(to_epoch=2**64 - 1), V.EARLIER_SELF),
    "a question for an earlier self": (changed(ASK, to_epoch=0, number=2**64 - 1), V.EARLIER_SELF),
    "of an earlier epoch": (changed(epoch=EPOCHS[1] - 1), V.EARLIER_SENDER),
    "of the last epoch there is": (changed(epoch=2**64 - 1), V.SENSELESS),
    "a question of the last epoch": (changed(ASK, epoch=2**53), V.SENSELESS),
    "the last number there is": (changed(number=2**64 - 1), V.SENSELESS),
    "a number no table holds": (changed(number=2**63), V.SENSELESS),
    "the last period there is": (changed(MODEL, number=2**64 - 1), V.SENSELESS),
    "a period far ahead": (changed(MODEL, number=10_001), V.SENSELESS),
    "period 0": (changed(MODEL, number=0), V.NOT_NEWER),
    "no update in it": (changed(updates=0), V.SENSELESS),
    "too many updates in it": (changed(updates=2**32 - 1), V.SENSELESS),
    **{f"weight {x}": (changed(weight=x), V.SENSELESS) for x in (0.0, -0.0, -1.0, 1.001, math.nan, math.inf)},
    "a model's weight": (changed(MODEL, weight=math.nan), V.SENSELESS),
    **{f"finished at {x}": (changed(finished_s=x), V.SENSELESS) for x in (math.nan, math.inf, -math.inf, 1.7e308)},
    **{f"sent at {x}": (changed(sent_s=x), V.SENSELESS) for x in (math.nan, math.inf, -math.inf, -1.7e308)},
    **{f"clock off by {x}": (changed(offset_s=x), V.SENSELESS) for x in (math.inf, -math.inf, 1.7e308)},
    "a question's clock": (changed(ASK, offset_s=math.inf), V.SENSELESS),
}


@pytest.mark.parametrize(("data", "verdict"), BAD.values(), ids=BAD)
def test_a_bad_message_is_refused_and_changes_nothing(data: bytes, verdict: Verdict) -> None:
    target = Target()
    target.refuses(data, verdict)
    target.takes_a_good_one(GOOD._replace(number=4))
    target.refuses(data, verdict)
    assert target.results()["refused"] == {verdict.name.lower(): 2}


def test_a_forged_sender_is_a_stranger() -> None:
    """By its key, or its certificate, it is another one than it says."""
    target = Target()
    for header in (GOOD, MODEL, ASK):
        target.refuses(message(header), V.STRANGER, sender=2)
    target.takes_a_good_one()


def test_messages_held_in_a_window_are_not_touched_by_bad_ones() -> None:
    target = Target("method.window_s=5")
    assert target.tell(changed(number=4)) == V.ACCEPTED
    for data, verdict in BAD.values():
        target.refuses(data, verdict)
    target.refuses(changed(number=4), V.DUPLICATE)
    model = target.peer.model.copy()
    target.peer.timer(Happening.WINDOW_CLOSED, NOW_S + 5)
    np.testing.assert_array_equal(target.peer.model, model + np.float32(0.25) * ONES)


def test_what_was_here_before_is_refused_however_often_it_comes() -> None:
    target = Target()
    target.takes_a_good_one()
    for _ in range(100):
        target.refuses(FINE, V.DUPLICATE, sender=1)
    target.takes_a_good_one(GOOD._replace(number=5000))
    target.refuses(FINE, V.TOO_OLD)
    target.takes_a_good_one(GOOD._replace(number=4999))  # overtaken
    target.peer.member_came(1, EPOCHS[1] + 1, NOW_S)  # started again
    target.refuses(changed(number=6000), V.EARLIER_SENDER)
    target.takes_a_good_one(GOOD._replace(epoch=EPOCHS[1] + 1, number=0))


def test_a_flood_beyond_the_budget_changes_no_bit_and_holds_no_memory() -> None:
    target = Target()
    for number in range(PSI):
        target.takes_a_good_one(GOOD._replace(number=number))
    model, names = target.peer.model.copy(), set(target.peer.vectors)
    for number in range(PSI, 2000):
        assert target.tell(changed(number=number)) == V.OVER_BUDGET
    np.testing.assert_array_equal(target.peer.model, model)
    assert set(target.peer.vectors) == names
    assert target.peer.applied == PSI
    results = target.results()
    assert (results["messages"]["applied"], results["messages"]["over_budget"]) == (PSI, 2000 - PSI)


# Chance


def fuzzed(chance: random.Random) -> bytes:
    """A header that was right, with some of its fields or some of its bytes replaced."""
    header = chance.choice([GOOD, GOOD, MODEL, ASK])._replace(sender=chance.choice([1, 2]))
    header = header._replace(epoch=EPOCHS[header.sender], number=chance.randrange(0, 3000), hub=chance.randrange(4))
    whole = [0, 1, 2, 3, 4, 5, 11, 12, 13, 2**31, 2**32 - 1]
    long = [*whole, 2**40, 2**53, 2**63, 2**64 - 1]
    real = [0.0, 0.5, 1.0, -1.0, 40.0, 5e-324, 1e13, 1e18, 1.7e308, math.inf, -math.inf, math.nan]
    for name in chance.sample(Header._fields[1:-1], chance.randrange(0, 4)):
        old = getattr(header, name)
        values = real if isinstance(old, float) else long if name in ("epoch", "to_epoch", "number") else whole
        header = header._replace(**{name: chance.choice(values)})
    data = message(header, chance.choice([1.0, 1.0, 1e3, 1e30, math.nan]) * ONES)
    for _ in range(chance.choice([0, 0, 0, 1, 3])):
        data = overwritten(data, chance.randrange(len(data)), chance.randbytes(1))
    return data if chance.random() < 0.9 else data[: chance.randrange(len(data))]


def is_lawful(data: bytes, period: int) -> bool:
    """By what a message says, apart from what was here before it. `period` is the receiver's."""
    if len(data) < 92 or data[:7] not in [b"DRCO\x02\x00" + bytes([kind]) for kind in Kind]:
        return False
    header = Header(*struct.unpack_from("<6xBxIIQQQIIddddI8s", data))
    numbers = np.frombuffer(data[92 : len(data) - len(data) % 4], "<f4")
    is_ask, is_model = header.kind == Kind.ASK, header.kind == Kind.MODEL
    rules = [
        header.shape == SHAPE,
        header.length == (0 if is_ask else LENGTH) and len(data) == 92 + 4 * header.length,
        bool(np.isfinite(numbers).all()) and math.hypot(*numbers.tolist()) <= NORM,
        header.sender in (1, 2, 3) and header.receiver == 0 and header.hub in range(4),
        EPOCHS.get(header.sender, 0) <= header.epoch < 2**53 and header.to_epoch == OUR_EPOCH,
        is_ask or header.number < 2**40,
        not is_model or header.number <= period + 10_000,
        max(abs(header.finished_s), abs(header.sent_s)) <= 1e13 and not abs(header.offset_s) > 1e13,
        math.isfinite(header.weight) and math.isfinite(header.finished_s + header.sent_s),
        is_ask or is_model or (0 < header.weight <= 1 and 1 <= header.updates < 2**31),
    ]
    return all(rules)


def test_ten_thousand_fuzzed_headers() -> None:
    chance = random.Random(20)
    found: dict[Verdict, int] = {}
    for _ in range(100):
        target, taken = Target(), set()
        names = set(target.peer.vectors)
        for turn in range(100):
            data, before, period = fuzzed(chance), target.state(), target.peer.core.state.period
            verdict = target.tell(data, now_s=NOW_S + turn)
            found[verdict] = found.get(verdict, 0) + 1
            assert set(target.peer.vectors) == names
            assert np.isfinite(target.peer.model).all()
            if verdict in (V.ACCEPTED, V.OVER_BUDGET):
                assert is_lawful(data, period)
                sender, epoch, number = struct.unpack_from("<8xI4xQ8xQ", data)
                assert data[6] == Kind.ASK or (data[6], sender, epoch, number) not in taken
                taken.add((data[6], sender, epoch, number))
            else:
                assert target.state() == before
                assert target.lines[-1][1][:3] == ["refused", NOW_S + turn, verdict.name]
                remembered = (V.DUPLICATE, V.TOO_OLD, V.EARLIER_SENDER, V.NOT_NEWER)
                assert verdict in remembered or not is_lawful(data, period)
        target.results()
    assert set(Verdict) - found.keys() <= {V.TOO_OLD}


def test_cut_off_at_every_length() -> None:
    target = Target()
    for data in (FINE, message(MODEL), message(ASK)):
        for length in range(len(data)):
            target.refuses(data[:length], V.SIZE)
    target.takes_a_good_one()


@settings(max_examples=300)
@given(st.binary(max_size=2 * len(FINE)), st.sampled_from([b"", b"DRCO", FINE[:8], FINE[:92]]), st.integers(0, 3))
def test_random_bytes(data: bytes, begin: bytes, sender: int) -> None:
    target = Target()
    before = target.state()
    verdict = target.tell(begin + data, sender)
    assert is_lawful(begin + data, 0) or (verdict not in (V.ACCEPTED, V.OVER_BUDGET) and target.state() == before)


# What comes back, and who is there


def answered(target: Target, data: bytes, kind: Kind = Kind.ASK) -> None:
    header = ASK._replace(kind=kind, sender=0, receiver=1, epoch=OUR_EPOCH, to_epoch=EPOCHS[1])
    target.peer.answered(Parcel(header, ONES, (7,), math.inf), data, NOW_S, NOW_S + 1)


def given_model(number: int = 1, value: float = 2.0, now_s: float = 60.0) -> bytes:
    numbers = np.full(LENGTH, value, "<f4").tobytes()
    return encode_answer(Answer(V.ACCEPTED, EPOCHS[1], number, now_s, LENGTH)) + numbers


BAD_ANSWERS = {
    "nothing": b"",
    "noise": random.Random(2).randbytes(200),
    "half": given_model()[:99],
    "a period there cannot be": given_model(number=2**64 - 1),
    "a model that is not finite": given_model(value=math.nan),
    "a model that is too large": given_model(value=1e30),
    "an absurd clock": given_model(now_s=1.7e308),
    "no clock": given_model(now_s=math.nan),
    "an unknown verdict": overwritten(given_model(), 6, b"\xff"),
}


@pytest.mark.parametrize("data", BAD_ANSWERS.values(), ids=BAD_ANSWERS)
def test_a_bad_answer_is_counted_and_not_believed(data: bytes) -> None:
    target = Target()
    before = target.state()
    answered(target, data)
    assert target.state() == before
    assert target.peer.refused == 1
    assert target.lines[-1][1][0] == "refused"
    assert not abs(target.peer.offsets.of(1)) > 1e6
    answered(target, given_model())  # asked again
    assert (target.peer.model == 2.0).all()
    answered(target, data, Kind.UPDATE)
    assert target.lines[-1][1][0] == "answered"
    target.results()


def test_a_peer_knows_which_neighbours_take_it_for_an_earlier_start_of_itself() -> None:
    target = Target()
    for kind in (Kind.UPDATE, Kind.MODEL, Kind.ASK):
        answered(target, encode_answer(Answer(V.EARLIER_SENDER, EPOCHS[1], 7, NOW_S, 0)), kind)
        assert target.peer.deaf_to_us == {1}
        answered(target, b"noise", kind)  # says nothing
        assert target.peer.deaf_to_us == {1}
        answered(target, encode_answer(Answer(V.ACCEPTED, EPOCHS[1], 7, NOW_S, 0)), kind)
        assert target.peer.deaf_to_us == set()


def test_members_that_cannot_be_are_ignored() -> None:
    target = Target()
    for user, epoch in [(1, 10**20 - 1), (1, 2**64), (2, 2**53), (9, 1), (10**20 - 1, 10**20 - 1), (-1, 5), (0, 99)]:
        target.peer.member_came(user, epoch, NOW_S)
        target.peer.member_left(user, epoch, NOW_S)
    assert target.peer.core.state.members == EPOCHS
    for parcel in target.ports.posted:
        parcel.on_the_wire()
    target.takes_a_good_one()
