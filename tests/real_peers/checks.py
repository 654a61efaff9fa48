"""What must hold of real peers, whatever happened to them: worked out from their journals, line by line."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from real_peers.peers import Peers

from dracofl import rng
from dracofl.runtime.journal import Line
from dracofl.runtime.records import Merged, records_of
from dracofl.types import Fate


class Key(NamedTuple):
    """One message to one receiver; numbers begin again with every life of its sender."""

    sender: int
    epoch: int
    number: int
    receiver: int


@dataclass
class Books:
    """What senders and receivers wrote down, kept apart."""

    sent: dict[Key, str] = field(default_factory=dict)  # a fate, if it had one when it was sent
    answers: dict[Key, str] = field(default_factory=dict)
    carried: dict[Key, list[Key]] = field(default_factory=dict)  # those that were added to one that waited
    arrived: Counter[Key] = field(default_factory=Counter)
    settled: dict[str, Counter[Key]] = field(default_factory=dict)  # by fate

    def count(self, journals: dict[int, Sequence[Line]]) -> None:
        for user, lines in journals.items():
            self._read_sender(user, lines)
        for user, lines in journals.items():
            self._read_receiver(user, lines)

    def _read_sender(self, user: int, lines: Sequence[Line]) -> None:
        epoch = 0
        for kind, _, *rest in lines:
            if kind == "start":
                epoch = rest[0]["epoch"]
            elif kind == "sent":
                for receiver, _, _, fate, _ in rest[5]:
                    key = Key(user, epoch, rest[0], receiver)
                    assert key not in self.sent, f"{key} was sent twice"
                    self.sent[key] = fate
            elif kind == "merged":
                receiver, carrier, number = rest
                carried = self.carried.setdefault(Key(user, epoch, carrier, receiver), [])
                carried.append(Key(user, epoch, number, receiver))
            elif kind == "answered" and rest[0] == "UPDATE":
                _, receiver, _, numbers, outcome, _ = rest
                for number in numbers:
                    self.answers[Key(user, epoch, number, receiver)] = outcome

    def _read_receiver(self, user: int, lines: Sequence[Line]) -> None:
        for kind, _, *rest in lines:
            if kind == "update":
                sender, receiver, epoch, _, number, *_ = rest[0]
                assert receiver == user
                self.arrived.update(self._all_in(Key(sender, epoch, number, user)))
            elif kind == "settled":
                epoch, message, fate, _ = rest
                key = Key(message[0], epoch, message[2], user)
                self.settled.setdefault(fate, Counter()).update(self._all_in(key))

    def _all_in(self, key: Key) -> list[Key]:
        return [key, *self.carried.get(key, ())]


def check_books(peers: Peers) -> Books:
    return check_books_of(peers.journals())


def check_books_of(journals: dict[int, Sequence[Line]]) -> Books:
    """Nothing twice, nothing out of nowhere, and what one side says the other says too, for every single message."""
    books = Books()
    books.count(journals)
    applied, over = books.settled.get("applied", Counter()), books.settled.get("over_budget", Counter())
    assert set(books.settled) <= {"applied", "over_budget"}
    assert not [key for key, times in (applied + over).items() if times > 1], "applied twice"
    assert not [key for key, times in books.arrived.items() if times > 1], "accepted twice"
    assert not books.arrived.keys() - books.sent.keys(), "arrived and was never sent"
    assert not (applied + over).keys() - books.arrived.keys(), "settled and never arrived"
    for key, answer in books.answers.items():
        assert books.sent[key] == ""
        if answer == "ACCEPTED":
            assert key in applied, key
        elif answer == "OVER_BUDGET":
            assert key in over, key
        elif answer != "timeout":  # unreachable, late or refused: certain
            assert key not in books.arrived, (key, answer)
    _check_counts(journals, books)
    return books


def _check_counts(journals: dict[int, Sequence[Line]], books: Books) -> None:
    """Each sender's counts for each receiver, as settled, are the receiver's own."""
    records = records_of(Merged(journals), everybody=True)
    assert records.contradictions == []
    assert records.unsettled == 0
    assert len(records.messages) == len(books.sent)  # one fate each
    by_sender = Counter((row.sender, row.receiver, row.fate) for row in records.messages)
    for fate in (Fate.APPLIED, Fate.OVER_BUDGET):
        by_receiver = Counter((key.sender, key.receiver) for key in books.settled.get(fate.value, ()))
        for sender in journals:
            for receiver in journals:
                pair = (sender, receiver)
                assert by_sender[*pair, fate] == by_receiver[pair], (pair, fate)


# The others


def pace(peers: Peers, user: int, from_s: float, to_s: float) -> float:
    """Its rate of local updates, as a share of what was drawn: 1 is as fast as it can be, 0.5 is idle half the time.

    That is the rate in updates a second without the luck of long and short draws, which is much in a few seconds.
    """
    config = peers.config
    assert isinstance(config.compute.rate, float)
    draws = rng.stream(config.seed, "compute", user)
    numbers = [line[2] for line in _lines(peers, user, "finished", from_s, to_s)]
    drawn_s = sum(rng.exponential(draws, number) for number in numbers) / config.compute.rate
    return drawn_s / (peers.clock_of(user, to_s) - peers.clock_of(user, from_s))


def check_no_stall(peers: Peers, users: Iterable[int], fault_s: float, window_s: float) -> dict[int, float]:
    """None of them is slower than 80% of before, for the time of the fault. Returns by how much each was."""
    ratios = {}
    for user in users:
        before = pace(peers, user, fault_s - window_s, fault_s)
        ratios[user] = pace(peers, user, fault_s, fault_s + window_s) / before
    assert min(ratios.values()) > 0.8, ratios
    return ratios


def check_no_silence(peers: Peers, users: Iterable[int], from_s: float, to_s: float) -> float:
    """They hear each other all the time. Returns the longest silence between two of them, in seconds."""
    users = set(users)
    silences = {}
    for user in users:
        arrived = [(line[2][0], line[1]) for line in _lines(peers, user, "update", from_s, to_s)]
        for sender in users - {user}:
            at_s = [peers.clock_of(user, from_s), *(s for one, s in arrived if one == sender)]
            at_s.append(peers.clock_of(user, to_s))
            silences[sender, user] = max(np.diff(at_s)) / peers.time_scale
    longest = float(max(silences.values(), default=0.0))
    assert longest < 2.0, silences
    return longest


def loss_at(peers: Peers, real_s: float) -> float:
    """The mean of the users' losses, each by its last evaluation before that."""
    found = []
    for user in peers.users:
        lines = list(_lines(peers, user, "evaluated", -math.inf, real_s))
        if lines:
            found.append(lines[-1][2]["loss"])
    return float(np.mean(found))


def check_learning_goes_on(peers: Peers, fault_s: float) -> tuple[float, float]:
    """At the end everybody is better than the network was at the fault."""
    before = loss_at(peers, fault_s)
    after = [peers.last_scores(user)["loss"] for user in peers.users]
    assert max(after) < before, (before, after)
    return before, max(after)


# The one that was gone


def unified_period(peers: Peers, user: int) -> int:
    """The newest whose hub's model it has."""
    newest = 0
    for kind, _, *rest in peers.journal(user):
        if kind == "unified":
            newest = max(newest, rest[1])
        elif kind == "model":
            newest = max(newest, rest[0][4])
        elif kind == "given" and rest[2] is not None:
            newest = max(newest, rest[2])
    return newest


def check_same_period(peers: Peers) -> None:
    newest = {user: unified_period(peers, user) for user in peers.users}
    assert min(newest.values()) > 0, newest
    assert max(newest.values()) - min(newest.values()) <= 1, newest  # the last one may have been on its way


def check_caught_up(peers: Peers, users: Iterable[int], back_s: float, within_s: float) -> dict[int, float]:
    """After they were back they soon got a model of the others, and in the end they are as near them as anybody.

    Returns how many seconds that took each.
    """
    took = {}
    for user in users:
        got = [
            line[1]
            for kind in ("given", "model")
            for line in _lines(peers, user, kind, back_s, math.inf)
            if kind == "model" or line[4] is not None
        ]
        assert got, f"peer {user} got no model"
        took[user] = (min(got) - peers.clock_of(user, back_s)) / peers.time_scale
        assert took[user] < within_s, took
    check_same_period(peers)
    distances = distances_to_the_mean(peers)
    others = [distance for user, distance in distances.items() if user not in took]
    assert max(distances[user] for user in took) < 2 * max(others) + 0.01, distances
    return took


def distances_to_the_mean(peers: Peers) -> dict[int, float]:
    """Of the final models, as a share of how far their mean is from where they began."""
    models = peers.models()
    mean = models.mean(axis=0)
    way = float(np.linalg.norm(mean - peers.first_model()))
    return {user: float(np.linalg.norm(models[user] - mean)) / way for user in peers.users}


def _lines(peers: Peers, user: int, kind: str, from_s: float, to_s: float) -> Iterable[Line]:
    """By real seconds since the network started."""
    first_s, last_s = peers.clock_of(user, from_s), peers.clock_of(user, to_s)
    return (line for line in peers.journal(user) if line[0] == kind and first_s <= line[1] < last_s)
