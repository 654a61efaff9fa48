"""Peers with their threads and clocks, joined by a network in memory: they train, exchange and stop."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from dracofl.build import build_peer_core, build_world
from dracofl.config.load import load_config
from dracofl.errors import DracoError
from dracofl.experiments.node import radio_of
from dracofl.protocol.headers import shape_of
from dracofl.protocol.peer import PeerState
from dracofl.runtime.clock import PeerClock
from dracofl.runtime.journal import START, Line, MemoryJournal
from dracofl.runtime.learners import Checked
from dracofl.runtime.peer import Peer
from dracofl.runtime.ports import Limits
from dracofl.runtime.records import Merged, records_of
from dracofl.runtime.service import Pace, Service
from dracofl.runtime.transport import OnMember, OnMessage, Unanswered
from dracofl.types import Fate

EPOCH = 7
PARAMETERS = 4
TIME_SCALE = 20.0
BASE = [
    "task.kind=quadratic",
    "compute.snapshot=start",
    "method.hub=round-robin",
    "channel.kind=ideal",
    "compute.rate=1",
    "method.period_s=8",
]


class MemoryNetwork:
    """Who is there, and how each takes what is sent to it."""

    def __init__(self) -> None:
        self.there: dict[int, tuple[OnMessage, OnMember]] = {}
        self.deaf: set[int] = set()  # there, and never answers
        self.before_sending: Callable[[int, int], None] = lambda sender, receiver: None

    def transport(self, user: int) -> MemoryTransport:
        return MemoryTransport(self, user)


class MemoryTransport:
    dropped = 0

    def __init__(self, network: MemoryNetwork, user: int) -> None:
        self._network, self._user = network, user

    def open(self, on_message: OnMessage, on_member: OnMember) -> None:
        others = dict(self._network.there)
        self._network.there[self._user] = on_message, on_member
        for user, (_, their_on_member) in others.items():
            their_on_member(self._user, EPOCH, True)
            on_member(user, EPOCH, True)

    def send(self, receiver: int, header: bytes, numbers: np.ndarray, timeout_s: float) -> bytes | Unanswered:
        self._network.before_sending(self._user, receiver)
        if receiver not in self._network.there:
            return Unanswered.UNREACHABLE
        if receiver in self._network.deaf:
            time.sleep(timeout_s)
            return Unanswered.TIMEOUT
        answer = self._network.there[receiver][0](self._user, header, numbers.tobytes())
        return Unanswered.TIMEOUT if answer is None else answer

    def close(self) -> None:
        del self._network.there[self._user]
        for _, on_member in list(self._network.there.values()):
            on_member(self._user, EPOCH, False)


class Learner:
    """Goes half of the way to a point of its own."""

    def __init__(self, user: int) -> None:
        self._goal = np.full(PARAMETERS, user, np.float32)

    def init(self) -> np.ndarray:
        return np.zeros(PARAMETERS, np.float32)

    def local_update(self, model: np.ndarray, number: int) -> np.ndarray:
        return np.asarray(0.5 * (self._goal - model), np.float32)

    def evaluate(self, model: np.ndarray, final: bool) -> Mapping[str, float]:
        return {"loss": float(np.square(model - self._goal).sum())}


class Watching:
    def __init__(self) -> None:
        self.stop = False
        self.seen = 0

    def passed(self, service: Service, now_s: float) -> None:
        self.seen += 1

    def wants_to_stop(self) -> bool:
        return self.stop


@dataclass
class World:
    """Peers in one process, each in a thread of its own."""

    changes: list[str]
    duration_s: float
    pace: dict[str, Any] = field(default_factory=dict)
    deadline_s: float = math.inf
    learner: Callable[[int], Any] = Learner
    disk_takes_s: float = 0.0
    starts_in_s: float = 0.1  # real seconds

    def __post_init__(self) -> None:
        self.config = load_config("tiny", [*BASE, *self.changes])
        self.network = MemoryNetwork()
        self.journals: dict[int, list[tuple[int, Line]]] = {}
        self.services: dict[int, Service] = {}
        self.peers: dict[int, Peer] = {}
        self.watching = {user: Watching() for user in range(self.config.users)}
        self.saves: list[float] = []
        self.results: dict[int, str | BaseException] = {}
        self._threads: list[threading.Thread] = []

    def run(self, meanwhile: Callable[[], None] = lambda: None) -> dict[int, str | BaseException]:
        world, starts_at = build_world(self.config), time.time() + self.starts_in_s
        for user in range(self.config.users):
            journal = MemoryJournal(user, self.journals.setdefault(user, []))
            journal.write("start", 0.0, {"epoch": EPOCH})
            options = {
                "duration_s": self.duration_s,
                "evaluate_every_s": None,
                "save_every_s": None,
                "free": False,
                "answer_timeout_s": 0.5,
                "waiting": 4,
                **self.pace,
            }
            service = Service(
                PeerClock(starts_at, TIME_SCALE),
                self.network.transport(user),
                self.learner(user),
                journal,
                Pace(**options),
                self._prepare_save,
            )
            core = build_peer_core(self.config, world, PARAMETERS, user, PeerState(EPOCH))
            limits = Limits(shape_of("test"), PARAMETERS, 1e6, self.deadline_s)
            model = np.zeros(PARAMETERS, np.float32)
            self.peers[user] = Peer(core, model, radio_of(self.config), limits, service, journal)
            self.services[user] = service
        for user in self.services:
            self._threads.append(threading.Thread(target=self._run, args=(user,)))
            self._threads[-1].start()
        meanwhile()
        for thread in self._threads:
            thread.join(timeout=30)
            assert not thread.is_alive()
        return self.results

    def _prepare_save(self, now_s: float) -> Callable[[], None]:
        def write() -> None:
            time.sleep(self.disk_takes_s)
            self.saves.append(now_s)

        return write

    def _run(self, user: int) -> None:
        try:
            self.results[user] = self.services[user].run(self.peers[user], self.watching[user])
        except BaseException as error:
            self.results[user] = error

    def lines(self, user: int, kind: str) -> list[Line]:
        return [line for _, line in self.journals[user] if line[0] == kind]

    def records(self) -> Any:
        return records_of(Merged({user: [line for _, line in lines] for user, lines in self.journals.items()}), True)


def wait_until(happened: Callable[[], bool]) -> None:
    give_up = time.monotonic() + 20
    while not happened() and time.monotonic() < give_up:
        time.sleep(0.01)


@pytest.fixture(autouse=True)
def _no_thread_is_left() -> Any:
    before = set(threading.enumerate())
    yield
    assert [thread for thread in threading.enumerate() if thread not in before] == []


def test_two_peers_train_exchange_and_end_when_their_time_is_over() -> None:
    world = World(["users=2"], duration_s=30, pace={"evaluate_every_s": 5.0, "save_every_s": 6.0})
    assert world.run() == {0: "finished", 1: "finished"}
    records = world.records()
    assert (records.contradictions, records.unsettled) == ([], 0)
    applied = [row for row in records.messages if row.fate == Fate.APPLIED]
    assert {row.sender for row in applied} == {0, 1}
    for user, peer in world.peers.items():
        assert peer.core.node.state.finished >= 2
        assert 0.0 < peer.model[0] < 2.0
        assert peer.core.node.state.unified_period >= 1
        assert world.services[user].scores["loss"] >= 0.0
        evaluated = [line[1] for line in world.lines(user, "evaluated")]
        assert evaluated == sorted({0.0, 5.0, 10.0, 15.0, 20.0, 25.0} & set(evaluated))  # a busy machine may miss one
        assert len(evaluated) >= 2
        assert world.watching[user].seen >= 2
    assert 2 <= len(world.saves) <= 2 * 5


def test_a_peer_that_is_asked_to_stop_stops_and_the_others_see_it_go() -> None:
    world = World(["users=2"], duration_s=1e6)

    def meanwhile() -> None:
        time.sleep(0.5)
        world.watching[0].stop = True
        wait_until(lambda: bool(world.lines(1, "left")))
        sent_by_then = len(world.lines(1, "sent"))
        wait_until(lambda: len(world.lines(1, "sent")) > sent_by_then)
        world.watching[1].stop = True

    assert world.run(meanwhile) == {0: "stopped", 1: "stopped"}
    assert [line[2] for line in world.lines(1, "left")] == [0]
    assert world.peers[1].core.reachable() == ()
    last = world.lines(1, "sent")[-1]
    assert [outcome[3:] for outcome in last[7]] == [["lost", "unreachable"]]


def test_a_peer_that_starts_late_knows_which_periods_are_over_before_it_hears_of_anybody() -> None:
    world = World(["users=2"], duration_s=60, starts_in_s=-1.0)  # 20 s, in periods of 8
    assert world.run() == {0: "finished", 1: "finished"}
    for user, peer in world.peers.items():
        inputs = [line for _, line in world.journals[user] if line[0] in ("timer", "came", "update", "model", "given")]
        assert inputs[0][2] == START
        assert peer.core.state.period_shift_s < 1.0  # their clocks were not set at the very same moment


def test_a_local_update_takes_its_drawn_time_at_least() -> None:
    world = World(["users=2", "compute.rate=0.5"], duration_s=20)
    world.run()
    starts = [0.0, *(line[1] for line in world.lines(0, "finished"))]
    core = build_peer_core(world.config, build_world(world.config), PARAMETERS, 0, PeerState(EPOCH))
    drawn_s = []
    for now_s in starts:
        commands = core.start(now_s) if not drawn_s else core.node.update_due(now_s)
        drawn_s.append(next(one.at_s for one in commands if getattr(one, "happening", None) == 0))
    assert all(at_s >= due_s for at_s, due_s in zip(starts[1:], drawn_s, strict=False))


def test_a_free_peer_waits_for_nothing_but_its_computing() -> None:
    world = World(["users=2", "compute.rate=0.001"], duration_s=4, pace={"free": True})
    world.run()
    assert min(len(world.lines(user, "finished")) for user in (0, 1)) > 20


def test_a_slow_training_makes_the_update_late_and_holds_up_no_message() -> None:
    class Slow(Learner):
        def local_update(self, model: np.ndarray, number: int) -> np.ndarray:
            time.sleep(0.5)
            return super().local_update(model, number)

    world = World(
        ["users=2", "compute.rate=4"], duration_s=20, learner=lambda user: (Slow if user == 0 else Learner)(user)
    )
    world.run()
    assert len(world.lines(0, "finished")) <= 2
    arrived = world.lines(0, "update")
    assert len(arrived) > 20
    ages = [line[1] - line[3][7] for line in arrived]
    assert np.median(ages) < 0.25 * TIME_SCALE  # half the time of a training


def test_a_slow_disk_holds_up_no_message_and_fewer_states_are_saved() -> None:
    world = World(["users=2", "compute.rate=4"], duration_s=40, pace={"save_every_s": 1.0}, disk_takes_s=0.5)
    assert world.run() == {0: "finished", 1: "finished"}
    assert 2 <= len(world.saves) <= 2 * 5
    arrived = world.lines(0, "update")
    assert len(arrived) > 20
    assert np.median([line[1] - line[3][7] for line in arrived]) < 0.25 * TIME_SCALE  # half of what a save takes


def test_a_slow_neighbour_slows_no_message_to_another_and_what_waits_for_it_is_summed_up() -> None:
    changes = ["users=3", "compute.rate=4", "method.period_s=1000", "method.psi=none"]
    world = World(changes, duration_s=60, pace={"waiting": 2})
    world.network.before_sending = lambda _, receiver: time.sleep(0.2 if receiver == 2 else 0.0)
    world.run()
    records = world.records()
    assert (records.contradictions, records.unsettled) == ([], 0)
    waits_s: dict[int, list[float]] = {1: [], 2: []}
    for row in records.messages:
        if row.sender == 0 and row.fate == Fate.APPLIED:
            waits_s[row.receiver].append(row.settled_s - row.sent_s)
    assert np.median(waits_s[1]) < np.median(waits_s[2])
    merged = [line[2] for line in world.lines(0, "merged")]
    assert merged.count(2) > merged.count(1)
    # What was summed up arrived as one message of several updates.
    counts = [line[3][3] for line in world.lines(2, "update") if line[3][0] == 0]
    assert max(counts) > 1
    answered = [line for line in world.lines(0, "answered") if line[2] == "UPDATE" and line[3] == 2]
    accepted = [line for line in answered if line[6] == "ACCEPTED"]  # the last one may have come too late to be taken
    assert max(len(line[5]) for line in accepted) == max(counts)


def test_an_update_that_waited_longer_than_its_deadline_is_late() -> None:
    world = World(["users=2", "compute.rate=2"], duration_s=20, deadline_s=3.0)
    world.network.before_sending = lambda sender, _: time.sleep(0.3 if sender == 0 else 0.0)
    world.run()
    outcomes = {line[6] for line in world.lines(0, "answered")}
    assert "late" in outcomes
    assert any(row.fate == Fate.LATE for row in world.records().messages)


def test_the_radio_in_software_delays_every_message() -> None:
    world = World(["users=2", "channel.kind=lossy", "channel.loss=0", "channel.delay_s=3"], duration_s=20)
    world.run()
    rows = [row for row in world.records().messages if row.fate == Fate.APPLIED]
    assert rows
    sent_s = {(user, line[2]): line[1] for user in (0, 1) for line in world.lines(user, "sent")}
    delays_s = [row.arrived_s - sent_s[row.sender, row.number] for row in rows]
    assert min(delays_s) > 2.5  # their clocks were not set at the very same moment
    assert np.median(delays_s) < 8.0


def test_a_neighbour_that_answers_nothing_is_waited_for_and_then_unknown() -> None:
    world = World(["users=2"], duration_s=20, pace={"answer_timeout_s": 0.05})
    world.network.deaf.add(1)
    world.run()
    assert {line[6] for line in world.lines(0, "answered")} == {"timeout"}
    assert {row.reason for row in world.records().messages if row.sender == 0} <= {"never arrived", ""}


# What goes wrong


def test_a_learner_that_raises_ends_its_peer_and_is_named() -> None:
    class Broken(Learner):
        def local_update(self, model: np.ndarray, number: int) -> np.ndarray:
            if number == 2:
                raise ValueError("no more samples")
            return super().local_update(model, number)

    def learner(user: int) -> Any:
        return Checked(Broken(user), "mine:broken") if user == 0 else Learner(user)

    results = World(["users=2"], duration_s=20, learner=learner).run()
    assert results[1] == "finished"  # the other one goes on
    assert isinstance(results[0], DracoError)
    assert 'learner "mine:broken": local_update(model, 2) raised ValueError' in str(results[0])
    assert "no more samples" in str(results[0])


def test_a_learner_that_fails_in_an_evaluation_ends_its_peer_too() -> None:
    class Blind(Learner):
        def evaluate(self, model: np.ndarray, final: bool) -> Mapping[str, float]:
            raise RuntimeError("cannot see")

    results = World(["users=2"], duration_s=1e6, pace={"evaluate_every_s": 2.0}, learner=Blind).run()
    assert {str(result) for result in results.values()} == {"cannot see"}


def test_an_update_that_is_not_finite_ends_the_peer_before_it_is_sent() -> None:
    class Diverging(Learner):
        def local_update(self, model: np.ndarray, number: int) -> np.ndarray:
            return np.full(PARAMETERS, np.inf if number == 1 else 1.0, np.float32)

    world = World(["users=2"], duration_s=1e6, learner=Diverging)
    results = world.run()
    assert all("local update 1" in str(result) for result in results.values())
    assert max(len(world.lines(user, "sent")) for user in (0, 1)) == 1


def test_a_network_that_fails_ends_the_peer_with_its_words() -> None:
    def fail(*_: int) -> None:
        raise DracoError("the network is gone")

    world = World(["users=2"], duration_s=1e6)
    world.network.before_sending = fail
    assert {str(result) for result in world.run().values()} == {"the network is gone"}
