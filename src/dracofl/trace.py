"""The trace: one row for every event of the timeline and one for every message, and the hash of them all.

The hash leaves out evaluations and the serial numbers of the heap, so measuring more often changes nothing. Rows are
hashed in blocks of fixed length, chained; a checkpoint keeps the digest so far and the rows of the unfinished block,
so where a run was cut leaves no mark either.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple

import numpy as np

from dracofl.types import Fate


class EventKind(StrEnum):
    FINISHED = "finished"  # a local update
    SENT = "sent"  # a transmission, whoever receives it
    RECEIVED = "received"  # a message reached one receiver, within budget or not
    UNIFIED = "unified"  # a hub sent its model to everybody
    MODEL_RECEIVED = "model_received"  # that model reached one user over the radio


class EventRow(NamedTuple):
    time_s: float
    kind: EventKind
    user: int
    peer: int  # the sender of what was received, otherwise -1
    number: int  # which update, transmission or period
    bytes: int
    airtime_s: float


class MessageRow(NamedTuple):
    sender: int
    receiver: int
    number: int
    updates: int  # how many local updates it carries
    weight: float
    bytes: int
    sent_s: float
    arrived_s: float  # not a number if it never arrived
    settled_s: float  # when its fate was known
    fate: Fate
    reason: str
    age_s: float  # of what it carries, when applied; otherwise not a number


_BLOCK_ROWS = 1024
_CODES = {name: code for code, name in enumerate([*EventKind, *Fate])}


@dataclass(slots=True)
class TraceState:
    digests: list[str] = field(default_factory=lambda: ["", ""])  # of the whole blocks of events, of messages
    events: list[EventRow] = field(default_factory=list)  # of the block that is not full yet
    messages: list[MessageRow] = field(default_factory=list)


class TraceHash:
    """A hash of rows that can be stopped, saved and carried on."""

    def __init__(self) -> None:
        self.state = TraceState()

    def add(self, events: Sequence[EventRow], messages: Sequence[MessageRow]) -> None:
        state = self.state
        state.events.extend(events)
        state.messages.extend(messages)
        waiting: tuple[list[Any], list[Any]] = state.events, state.messages
        for kind, rows in enumerate(waiting):
            whole = len(rows) - len(rows) % _BLOCK_ROWS
            for start in range(0, whole, _BLOCK_ROWS):
                state.digests[kind] = _chain(state.digests[kind], rows[start : start + _BLOCK_ROWS])
            del rows[:whole]

    def hexdigest(self) -> str:
        state = self.state
        ends = _chain(state.digests[0], state.events) + _chain(state.digests[1], state.messages)
        return hashlib.blake2b(ends.encode(), digest_size=16).hexdigest()


def _chain(digest_so_far: str, rows: Sequence[EventRow] | Sequence[MessageRow]) -> str:
    digest = hashlib.blake2b(digest_so_far.encode(), digest_size=16)
    for column in zip(*rows, strict=True):
        digest.update(_column_bytes(column))
    return digest.hexdigest()


def _column_bytes(column: tuple[Any, ...]) -> bytes:
    first = column[0]
    if isinstance(first, float):
        return np.array(column, dtype="<f8").tobytes()
    if isinstance(first, int):
        return np.array(column, dtype="<i8").tobytes()
    if isinstance(first, EventKind | Fate):
        return bytes([_CODES[name] for name in column])
    return "\n".join(column).encode()
