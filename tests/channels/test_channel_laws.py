"""Laws every channel keeps. A new channel adds a row to the table."""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
from pydantic import TypeAdapter

from dracofl import rng
from dracofl.build import CHANNELS
from dracofl.channels.exponential import Exponential
from dracofl.channels.ideal import Ideal
from dracofl.channels.interface import Medium, Transmission
from dracofl.channels.lossy import Lossy
from dracofl.channels.wireless import Wireless
from dracofl.field import drop_users
from dracofl.types import Fate

USERS = 6
BYTES = 51_640


class Row(NamedTuple):
    make: Callable[[int], Any]  # given the number of users
    fates: set[Fate | None]  # all that come up; None is a delivery
    airtime_for_nobody_s: float
    has_luck: bool = True  # draws matter
    listens: bool = False  # what is on the air matters


def wireless(interference: str, deadline_s: float = 0.0027) -> Callable[[int], Wireless]:
    return lambda _: Wireless(
        deadline_s=deadline_s,
        interference=interference,  # type: ignore[arg-type]
        interference_radius_m=60.0,
        bandwidth="each",
        bandwidth_hz=10e6,
        power_dbm=30.0,
        path_loss_exponent=4.0,
        noise_dbm_per_hz=-174.0,
    )


def rates(users: int) -> tuple[tuple[float, ...], ...]:
    return tuple(tuple(0.5 + sender + 0.1 * receiver for receiver in range(users)) for sender in range(users))


TABLE = {
    "ideal": Row(lambda _: Ideal(), {None}, 0.0, has_luck=False),
    "lossy, never": Row(lambda _: Lossy(loss=0.0, delay_s=0.0), {None}, 0.0, has_luck=False),
    "lossy, sometimes": Row(lambda _: Lossy(loss=0.4, delay_s=1.5), {None, Fate.LOST}, 1.5),
    "lossy, always": Row(lambda _: Lossy(loss=1.0, delay_s=2.0), {Fate.LOST}, 2.0, has_luck=False),
    "exponential": Row(lambda _: Exponential(rate=2.0, rates=None, deadline_s=None), {None}, 0.0),
    "exponential, rates": Row(lambda users: Exponential(rate=2.0, rates=rates(users), deadline_s=None), {None}, 0.0),
    "exponential, deadline": Row(lambda _: Exponential(rate=2.0, rates=None, deadline_s=0.5), {None, Fate.LATE}, 0.5),
    "wireless, none": Row(wireless("none"), {None, Fate.LATE}, 0.0027),
    "wireless, nearby": Row(wireless("nearby"), {None, Fate.LATE}, 0.0027),
    "wireless, concurrent": Row(wireless("concurrent"), {None, Fate.LATE}, 0.0027, listens=True),
    "wireless, hopeless": Row(wireless("nearby", deadline_s=1e-9), {Fate.LATE}, 1e-9, has_luck=False),
}


def over(*names: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("row", [TABLE[name] for name in names], ids=names)


every_channel = over(*TABLE)
every_channel_with_luck = over(*(name for name, row in TABLE.items() if row.has_luck))
every_channel_that_does_not_listen = over(*(name for name, row in TABLE.items() if not row.listens))


class Sent(NamedTuple):
    content: str
    sender: int
    index: int
    receivers: tuple[int, ...]
    payload_bytes: int
    now_s: float


def everybody_but(sender: int) -> tuple[int, ...]:
    return tuple(user for user in range(USERS) if user != sender)


def conversation(rounds: int = 20, contents: tuple[str, ...] = ("update", "model")) -> list[Sent]:
    """Everybody sends in turn, a little faster than the radio lets them finish."""
    turns = itertools.product(range(rounds), range(USERS), contents)
    return [
        Sent(content, sender, index, everybody_but(sender), BYTES, 0.0005 * number)
        for number, (index, sender, content) in enumerate(turns)
    ]


def opened(row: Row, seed: int = 5, users: int = USERS) -> Medium:
    positions = np.vstack([drop_users(3, USERS, 100.0), *[(9000.0, 100.0 * more) for more in range(users - USERS)]])
    medium: Medium = row.make(users).open(seed, positions)
    return medium


def play(medium: Medium, transmissions: list[Sent]) -> list[Transmission]:
    return [medium.transmit(*one) for one in transmissions]


def deliveries(medium: Medium, transmissions: list[Sent]) -> list[Any]:
    return [one for sent in play(medium, transmissions) for one in sent.deliveries]


def test_every_channel_there_is_has_a_row() -> None:
    assert {type(row.make(USERS)) for row in TABLE.values()} == set(CHANNELS.values())


@every_channel
def test_a_channel_is_frozen(row: Row) -> None:
    channel = row.make(USERS)
    assert channel == row.make(USERS)
    hash(channel)
    for field in dataclasses.fields(channel):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(channel, field.name, None)


# What comes of a transmission


@every_channel
def test_every_receiver_has_one_delivery_in_the_order_asked(row: Row) -> None:
    forward = play(opened(row), conversation())
    backward = play(opened(row), [one._replace(receivers=one.receivers[::-1]) for one in conversation()])
    for there, back in zip(forward, backward, strict=True):
        assert len(there.deliveries) == USERS - 1
        assert back.deliveries == there.deliveries[::-1]
        assert back.airtime_s == there.airtime_s


@every_channel
def test_what_arrives_has_no_fate_and_what_does_not_has_one_and_says_when_its_sender_knows(row: Row) -> None:
    found = deliveries(opened(row), conversation())
    for delay_s, fate, reason in found:
        assert type(delay_s) is float
        assert 0.0 <= delay_s < math.inf
        if fate is None:
            assert reason == ""
        else:
            assert fate in (Fate.LATE, Fate.LOST)
            assert (reason != "") == (fate == Fate.LOST)  # any other cause is recorded
    assert {one.fate for one in found} == row.fates


@every_channel
def test_the_airtime_lasts_until_the_last_receiver_has_it(row: Row) -> None:
    nobody = 0
    for airtime_s, found in play(opened(row), conversation(rounds=60, contents=("update",))):
        arrived = [one.delay_s for one in found if one.fate is None]
        assert airtime_s == max(arrived, default=row.airtime_for_nobody_s)
        nobody += not arrived
    assert nobody == 0 or row.fates != {None}


@every_channel
def test_with_a_deadline_everything_that_arrives_does_so_before_it(row: Row) -> None:
    deadline_s = getattr(row.make(USERS), "deadline_s", None) or math.inf
    assert all(one.fate or one.delay_s < deadline_s for one in deliveries(opened(row), conversation()))


@every_channel
def test_a_transmission_without_receivers_costs_what_one_that_reaches_nobody_does(row: Row) -> None:
    assert opened(row).transmit("update", 0, 0, (), BYTES, 0.0) == (row.airtime_for_nobody_s, [])


# What it depends on


@every_channel
def test_the_same_seed_gives_the_same_fates(row: Row) -> None:
    assert play(opened(row), conversation()) == play(opened(row), conversation())


@every_channel_with_luck
def test_another_seed_gives_other_fates(row: Row) -> None:
    assert deliveries(opened(row), conversation()) != deliveries(opened(row, seed=6), conversation())


@every_channel_with_luck
def test_every_message_on_a_link_has_a_draw_of_its_own(row: Row) -> None:
    first, *others = (
        deliveries(opened(row), [one for one in conversation() if one.index == index]) for index in range(5)
    )
    assert all(other != first for other in others)


@every_channel_with_luck
def test_updates_and_models_have_draws_of_their_own(row: Row) -> None:
    updates = conversation(contents=("update",))
    assert deliveries(opened(row), updates) != deliveries(
        opened(row), [one._replace(content="model") for one in updates]
    )


@every_channel_with_luck
def test_the_two_directions_of_a_link_have_draws_of_their_own(row: Row) -> None:
    links = itertools.combinations(range(USERS), 2)
    there = [Sent("update", one, 0, (other,), BYTES, 0.0) for one, other in links]
    back = [sent._replace(sender=sent.receivers[0], receivers=(sent.sender,)) for sent in there]
    assert [opened(row).transmit(*sent) for sent in there] != [opened(row).transmit(*sent) for sent in back]


@every_channel
def test_a_receiver_fares_the_same_whoever_else_receives(row: Row) -> None:
    transmissions = conversation(rounds=10)
    if row.listens:  # who receives decides how long a sender is on the air, so each is alone in its time
        transmissions = [one._replace(now_s=float(number)) for number, one in enumerate(transmissions)]
    to_all = play(opened(row), transmissions)
    for place in range(USERS - 1):
        to_one = play(opened(row), [one._replace(receivers=(one.receivers[place],)) for one in transmissions])
        assert [sent.deliveries for sent in to_one] == [[sent.deliveries[place]] for sent in to_all]


@every_channel
def test_a_sender_may_have_other_receivers_each_time(row: Row) -> None:
    medium = opened(row)
    for index, receivers in enumerate([(1, 2, 3), (3,), (), (5, 4)]):
        sent = Sent("update", 0, index, receivers, BYTES, float(index))
        assert medium.transmit(*sent) == opened(row).transmit(*sent)


@every_channel_that_does_not_listen
def test_no_transmission_changes_another(row: Row) -> None:
    transmissions = conversation()
    together = play(opened(row), transmissions)
    assert play(opened(row), transmissions[::-1])[::-1] == together
    medium = opened(row)
    for number in [0, 17, 100, 17, 3]:
        assert medium.transmit(*transmissions[number]) == together[number]


@every_channel_that_does_not_listen
def test_models_do_not_change_the_luck_of_updates(row: Row) -> None:
    with_models = [
        sent
        for asked, sent in zip(conversation(), play(opened(row), conversation()), strict=True)
        if asked.content == "update"
    ]
    assert play(opened(row), conversation(contents=("update",))) == with_models


@every_channel_that_does_not_listen
def test_the_time_of_day_does_not_matter(row: Row) -> None:
    later = [one._replace(now_s=one.now_s * 3.0 + 1e6) for one in conversation()]
    assert play(opened(row), later) == play(opened(row), conversation())


@every_channel
def test_adding_users_far_away_changes_nothing(row: Row) -> None:
    assert play(opened(row, users=USERS + 3), conversation()) == play(opened(row), conversation())


def test_a_channel_that_listens_hears_what_is_on_the_air() -> None:
    """Otherwise the rows that are excused above would be excused for nothing."""
    for row in TABLE.values():
        slowly = [one._replace(now_s=float(number)) for number, one in enumerate(conversation())]
        assert (play(opened(row), slowly) != play(opened(row), conversation())) == row.listens


# What it remembers


@every_channel
@pytest.mark.parametrize("cut", [0, 1, 37, 120])
def test_all_that_changes_is_in_a_state_that_can_be_saved(row: Row, cut: int) -> None:
    whole = play(opened(row), conversation())
    before = opened(row)
    first = play(before, conversation()[:cut])
    text = json.dumps(dataclasses.asdict(before.state))
    after = opened(row)
    after.state = TypeAdapter(type(before.state)).validate_python(json.loads(text))
    assert after.state == before.state
    assert first + play(after, conversation()[cut:]) == whole


# A draw of exactly 0 is possible, if not likely


def test_a_delay_of_exactly_nothing_is_a_delivery_like_others() -> None:
    golden_ratio = 0x9E3779B97F4A7C15
    key = rng.stream(5, "delay-update", 0, 1)
    index = (-key * pow(golden_ratio, -1, 2**64) - 1) % 2**64
    assert rng.exponential(key, index) == 0.0
    medium = opened(TABLE["exponential, deadline"])
    assert medium.transmit("update", 0, index, (1,), BYTES, 0.0) == (0.0, [(0.0, None, "")])
