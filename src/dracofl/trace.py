"""The trace: one row for every event of the timeline and one for every message, and the hash of them all.

The hash leaves out evaluations and the serial numbers of the heap, so measuring more often changes nothing. Rows are
hashed in blocks of fixed length, chained; a checkpoint keeps the digest so far and the rows of the unfinished block,
so where a run was cut leaves no mark either.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Generic, NamedTuple, TypeVar

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

    @classmethod
    def named(cls, time_s: float, kind: str, *others: Any) -> EventRow:
        """From fields whose words are plain strings."""
        return cls(time_s, EventKind(kind), *others)


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

    @classmethod
    def named(cls, *fields: Any) -> MessageRow:
        """From fields whose words are plain strings."""
        row = cls(*fields)
        return row._replace(fate=Fate(row.fate))


Row = TypeVar("Row", EventRow, MessageRow)


class Rows(Generic[Row]):
    """Rows in the order in which they happened, named when somebody looks at them.

    They are kept flat, field after field in one list, words as plain strings. There are several for every event: this
    way a row is quickly made, a column is a slice, and the garbage collector has one list to look at and not
    thousands of tuples.
    """

    __slots__ = ("_kind", "flat")

    def __init__(self, kind: type[Row], flat: list[Any] | None = None) -> None:
        self._kind: type[Row] = kind
        self.flat: list[Any] = [] if flat is None else flat

    def __len__(self) -> int:
        return len(self.flat) // len(self._kind._fields)

    def __iter__(self) -> Iterator[Row]:
        fields = iter(self.flat)
        return map(self._kind.named, *[fields] * len(self._kind._fields))


def flatten(rows: Rows[Any] | Iterable[tuple[Any, ...]]) -> Iterable[Any]:
    """The fields of these rows, row after row."""
    return rows.flat if isinstance(rows, Rows) else itertools.chain.from_iterable(rows)


@dataclass(slots=True)
class TraceState:
    digests: list[str] = field(default_factory=lambda: ["", ""])  # of the whole blocks of events, of messages
    events: list[int | float | str] = field(default_factory=list)  # flat, of the block that is not full yet
    messages: list[int | float | str] = field(default_factory=list)


class TraceHash:
    """A hash of rows that can be stopped, saved and carried on."""

    def __init__(self) -> None:
        self.state = TraceState()

    def add(
        self,
        events: Rows[EventRow] | Iterable[tuple[Any, ...]],
        messages: Rows[MessageRow] | Iterable[tuple[Any, ...]],
    ) -> None:
        state = self.state
        state.events.extend(flatten(events))
        state.messages.extend(flatten(messages))
        for kind, flat in enumerate((state.events, state.messages)):
            block = _BLOCK_ROWS * len(_ENCODERS[kind])
            whole = len(flat) - len(flat) % block
            for start in range(0, whole, block):
                state.digests[kind] = _chain(state.digests[kind], flat[start : start + block], _ENCODERS[kind])
            del flat[:whole]

    def hexdigest(self) -> str:
        state = self.state
        ends = _chain(state.digests[0], state.events, _ENCODERS[0])
        ends += _chain(state.digests[1], state.messages, _ENCODERS[1])
        return hashlib.blake2b(ends.encode(), digest_size=16).hexdigest()


def _numbers(column: list[float]) -> Any:
    return np.array(column, dtype="<f8")


def _integers(column: list[int]) -> Any:
    return np.array(column, dtype="<i8")


def _words(column: list[str]) -> Any:
    return bytes(map(_CODES.__getitem__, column))


def _text(column: list[str]) -> Any:
    return "\n".join(column).encode()


_BLOCK_ROWS = 1024
_CODES = {str(word): code for code, word in enumerate([*EventKind, *Fate])}
_ENCODERS: tuple[tuple[Callable[[Any], Any], ...], ...] = (  # of the columns of events, of messages
    (_numbers, _words, *[_integers] * 4, _numbers),
    (*[_integers] * 4, _numbers, _integers, *[_numbers] * 3, _words, _text, _numbers),
)


def _chain(digest_so_far: str, flat: list[Any], encoders: tuple[Callable[[Any], Any], ...]) -> str:
    digest = hashlib.blake2b(digest_so_far.encode(), digest_size=16)
    if flat:
        for place, encode in enumerate(encoders):
            digest.update(encode(flat[place :: len(encoders)]))
    return digest.hexdigest()
