"""From journals to the rows of a run: what happened, and the one fate of every message.

A sender knows what it sent and what was answered; a receiver knows what it made of what arrived. Where an answer did
not come ("timeout") only the receiver's journal can tell, so the fates of a network are settled when all journals are
at hand: every message that was sent is then found applied, over budget, refused and why, or never there. With one
journal alone such a message is pending, for the reason "unknown".
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from dracofl.protocol.headers import Verdict
from dracofl.protocol.messages import Message
from dracofl.runtime.journal import Line
from dracofl.runtime.transport import Unanswered
from dracofl.trace import EventKind, EventRow, MessageRow
from dracofl.types import Fate

UNKNOWN = "unknown"


class Key(NamedTuple):
    """Of one message: numbers begin again with every epoch of the sender."""

    sender: int
    epoch: int
    number: int
    receiver: int


Merges = dict[Key, list[int]]
"""For a message that waited, the numbers that were added to it."""


class _Sent(NamedTuple):
    updates: int
    weight: float
    size: int
    sent_s: float


@dataclass
class Records:
    """Rows in the order of the lines they came from."""

    events: list[EventRow] = field(default_factory=list)
    messages: list[MessageRow] = field(default_factory=list)
    refused: dict[str, int] = field(default_factory=dict)  # how many messages, by reason: those of strangers included
    unsettled: int = 0  # messages whose fate no journal tells
    contradictions: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Merged:
    """The lines of all peers by their times, gone through as often as wanted and kept nowhere. Lines of one peer keep
    their order, even if its clock was set back."""

    journals: Mapping[int, Iterable[Line]]

    def __iter__(self) -> Iterator[tuple[int, Line]]:
        journals = [_timed(user, lines) for user, lines in self.journals.items()]
        for _, user, line in heapq.merge(*journals, key=lambda one: one[:2]):
            yield user, line


def _timed(user: int, lines: Iterable[Line]) -> Iterator[tuple[float, int, Line]]:
    latest_s = -math.inf
    for line in lines:
        latest_s = max(latest_s, _time_of(line))
        yield latest_s, user, line


def records_of(lines: Iterable[tuple[int, Line]], everybody: bool, end_s: float = math.inf) -> Records:
    """`everybody` says that the journals of all receivers are among the lines. Lines from `end_s` on do not count.
    They are gone through several times."""
    assert iter(lines) is not lines, "an iterator would be empty the second time"
    reader = _Reader(everybody)
    for user, line in _before(end_s, lines):  # first what was sent: by their clocks, some of it arrived before
        reader.read_sent_only(user, line)
    for user, line in _before(end_s, lines):
        reader.read(user, line)
    reader.finish()
    return reader.records


def _before(end_s: float, lines: Iterable[tuple[int, Line]]) -> Iterator[tuple[int, Line]]:
    return ((user, line) for user, line in lines if _time_of(line) < end_s)


def merges_in(lines: Iterable[tuple[int, Line]]) -> Merges:
    reader = _Reader(everybody=False)
    for user, line in lines:
        reader.read_sent_only(user, line)
    return reader.merges


def _time_of(line: Line) -> float:
    return float(line[1])


class _Reader:
    def __init__(self, everybody: bool) -> None:
        self.records = Records()
        self.merges: Merges = {}
        self._everybody = everybody
        self._epochs: dict[int, int] = {}
        self._now_s = 0.0
        self._sent: dict[Key, _Sent] = {}
        self._settled: set[Key] = set()
        self._held: dict[Key, Message] = {}  # arrived, and in a window
        self._answers: dict[Key, str] = {}
        self._refusals: dict[Key, str] = {}

    def read(self, user: int, line: Line) -> None:
        kind, now_s, *rest = line
        self._now_s = now_s
        handle = getattr(self, f"_read_{kind}", None)
        if handle is not None:
            handle(user, now_s, *rest)

    def read_sent_only(self, user: int, line: Line) -> None:
        """And what was added to it while it waited."""
        if line[0] == "start":
            self._epochs[user] = line[2]["epoch"]
        elif line[0] == "sent":
            _, now_s, number, updates, _, size, _, outcomes = line
            for receiver, weight, *_ in outcomes:
                key = Key(user, self._epochs.get(user, 0), number, receiver)
                self._sent[key] = _Sent(updates, weight, size, now_s)
        elif line[0] == "merged":
            _, _, receiver, carrier, number = line
            self.merges.setdefault(Key(user, self._epochs.get(user, 0), carrier, receiver), []).append(number)

    def _read_start(self, user: int, _: float, state: dict[str, Any]) -> None:
        self._epochs[user] = state["epoch"]

    def _read_finished(self, user: int, now_s: float, number: int) -> None:
        self._event(now_s, EventKind.FINISHED, user, -1, number, 0, 0.0)

    def _read_sent(
        self,
        user: int,
        now_s: float,
        number: int,
        _updates: int,
        _finished_s: float,
        size: int,
        airtime_s: float,
        outcomes: list[list[Any]],
    ) -> None:
        self._event(now_s, EventKind.SENT, user, -1, number, size, airtime_s)
        for receiver, _, _, fate, reason in outcomes:
            if fate:
                self._settle(Key(user, self._epochs[user], number, receiver), math.nan, now_s, Fate(fate), reason)

    def _read_update(
        self, user: int, now_s: float, header: list[Any], message: list[Any], _proof: str, _commands: str
    ) -> None:
        arrived = Message(*message)
        self._event(now_s, EventKind.RECEIVED, user, arrived.sender, arrived.number, 0, 0.0)
        self._held[Key(arrived.sender, header[2], arrived.number, user)] = arrived

    def _read_settled(self, user: int, now_s: float, epoch: int, fields: list[Any], fate: str, reason: str) -> None:
        message = Message(*fields)
        key = Key(message.sender, epoch, message.number, user)
        self._held.pop(key, None)
        if self._everybody and key not in self._sent:
            self.records.contradictions.append(f"{key} was settled at its receiver and never sent")
        self._settle(key, message.arrived_s, now_s, Fate(fate), reason, message)

    def _read_refused(
        self, user: int, _: float, verdict: str, kind: str, sender: int, epoch: int, number: int, _size: int
    ) -> None:
        refused = self.records.refused
        refused[verdict.lower()] = refused.get(verdict.lower(), 0) + 1
        if kind == "UPDATE" and verdict != Verdict.DUPLICATE.name:
            self._refusals[Key(sender, epoch, number, user)] = verdict.lower()

    def _read_answered(
        self, user: int, _: float, kind: str, receiver: int, _epoch: int, numbers: list[int], outcome: str, _offset: Any
    ) -> None:
        if kind == "UPDATE":
            self._answers[Key(user, self._epochs[user], numbers[0], receiver)] = outcome

    def _read_unified(self, user: int, now_s: float, hub: int, period: int, size: int, airtime_s: float) -> None:
        self._event(now_s, EventKind.UNIFIED, hub, -1, period, size, airtime_s)

    def _read_model_received(self, user: int, now_s: float, hub: int, period: int) -> None:
        self._event(now_s, EventKind.MODEL_RECEIVED, user, hub, period, 0, 0.0)

    def _event(self, *fields: Any) -> None:
        self.records.events.append(EventRow(*fields))

    def _settle(
        self, key: Key, arrived_s: float, now_s: float, fate: Fate, reason: str, message: Message | None = None
    ) -> None:
        """Of this message and of those that went in it."""
        for number in (key.number, *self.merges.get(key, ())):
            one = key._replace(number=number)
            if one in self._settled:
                self.records.contradictions.append(f"{one} met two fates")
                continue
            self._settled.add(one)
            sent = self._sent.get(one)
            if sent is None:  # with one journal alone, the sender's side is unknown
                assert message is not None
                sent = _Sent(message.updates, message.weight, message.payload_bytes, message.sent_s)
            age_s = math.nan
            if fate == Fate.APPLIED and message is not None:
                age_s = now_s - message.finished_s
            self.records.messages.append(
                MessageRow(
                    key.sender,
                    key.receiver,
                    number,
                    sent.updates,
                    sent.weight,
                    sent.size,
                    sent.sent_s if message is None else message.sent_s,
                    arrived_s,
                    now_s,
                    fate,
                    reason,
                    age_s,
                )
            )

    def finish(self) -> None:
        """What nobody has settled: refused, late, unreachable, never arrived, or still on its way."""
        carried = {key._replace(number=number) for key, numbers in self.merges.items() for number in numbers}
        for key in [key for key in self._sent if key not in self._settled and key not in carried]:
            held = self._held.get(key)
            fate, reason = self._last_known(key)
            self._settle(key, math.nan if held is None else held.arrived_s, self._now_s, fate, reason, held)

    def _last_known(self, key: Key) -> tuple[Fate, str]:
        answer = self._answers.get(key)
        if key in self._held:
            return Fate.PENDING, ""
        if key in self._refusals:
            return Fate.LOST, self._refusals[key]
        if answer == Unanswered.LATE:
            return Fate.LATE, ""
        if answer is None:
            return Fate.PENDING, ""  # it waits in an outbox or on the radio, or its sender was killed
        if answer == Unanswered.UNREACHABLE:
            return Fate.LOST, answer
        if answer == Unanswered.TIMEOUT and self._everybody:
            return Fate.LOST, "never arrived"
        if answer == Unanswered.TIMEOUT:
            self.records.unsettled += 1
            return Fate.PENDING, UNKNOWN
        if self._everybody and answer in (Verdict.ACCEPTED.name, Verdict.OVER_BUDGET.name):
            self.records.contradictions.append(f"{key} was answered with {answer}, of which its receiver knows nothing")
        return self._answered(answer)

    def _answered(self, answer: str) -> tuple[Fate, str]:
        """By the receiver's word alone, as its journal is not here."""
        if answer == Verdict.ACCEPTED.name:
            return Fate.APPLIED, ""
        if answer == Verdict.OVER_BUDGET.name:
            return Fate.OVER_BUDGET, ""
        if answer == Verdict.DUPLICATE.name:  # it was there before, and nobody told what became of it
            self.records.unsettled += 1
            return Fate.PENDING, UNKNOWN
        return Fate.LOST, answer.lower()
