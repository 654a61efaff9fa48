"""What stands before the numbers of a message between real peers, and what is answered to it: a fixed binary layout.

Little-endian, no pickle, nothing of variable length. A message is a header and, apart from it, raw float32 numbers, of
which the header says how many: the same numbers go to several receivers. An answer may have numbers too, behind it (a
model that was asked for).
"""

from __future__ import annotations

import hashlib
import math
import struct
from enum import IntEnum
from typing import NamedTuple

VERSION = 2
_MAGIC = b"DRCO"
_LAYOUT = struct.Struct("<4sHBxIIQQQIIddddI8s")
_ANSWER = struct.Struct("<4sHBBQQdI")
HEADER_BYTES = _LAYOUT.size
# Beyond these nobody gets in earnest. Within them times and ends of periods are exact enough to be told apart, tables
# can hold the numbers, and whatever reads the journal as JSON gets them right.
LATEST_EPOCH = (1 << 53) - 1
_HIGHEST_NUMBER = (1 << 40) - 1  # of transmissions and of periods
_MOST_UPDATES = (1 << 31) - 1
_LONGEST_S = 1e13


class Kind(IntEnum):
    UPDATE = 1
    MODEL = 2  # of a hub, at unification
    ASK = 3  # for the receiver's model


class Verdict(IntEnum):
    """What a receiver made of a message. All but the first three are refusals, and the reason."""

    ACCEPTED = 0
    OVER_BUDGET = 1
    DUPLICATE = 2
    SIZE = 3
    VERSION = 4
    SHAPE = 5
    STRANGER = 6  # its sender is nobody from whom such a message is expected
    MISDIRECTED = 7  # it is for somebody else
    EARLIER_SELF = 8  # it is for this peer as it was before it was started again
    EARLIER_SENDER = 9  # its sender has been started again since
    TOO_OLD = 10  # its number is so far behind that nobody can say whether it was here before
    NOT_FINITE = 11
    TOO_LARGE = 12  # its norm
    NOT_NEWER = 13  # of a model: one at least as new is in place
    SENSELESS = 14  # a field of its header has a value that it cannot have


class Header(NamedTuple):
    kind: Kind
    sender: int
    receiver: int
    epoch: int  # of the sender: another one after every start
    to_epoch: int  # of the receiver, as the sender knows it
    number: int  # the sender's count of transmissions; of a model the period; of a question the last period in place
    updates: int
    hub: int  # whose model it was; otherwise the sender
    weight: float
    finished_s: float  # by the sender's clock, as is sent_s
    sent_s: float
    offset_s: float  # receiver's clock minus sender's, as the sender estimates it; not a number if it cannot
    length: int  # how many numbers follow
    shape: bytes  # digest of what model this is


class Answer(NamedTuple):
    verdict: Verdict
    epoch: int  # of who answers
    number: int  # of a question: the period of the model that follows; otherwise that of the message
    now_s: float  # by the clock of who answers
    length: int


def shape_of(*parts: object) -> bytes:
    """A short digest of whatever must be the same at both ends for numbers to mean the same."""
    return hashlib.blake2b(repr(parts).encode(), digest_size=8).digest()


def encode(header: Header) -> bytes:
    kind, sender, receiver, epoch, to_epoch, number, updates, hub, weight, *times, length, shape = header
    return _LAYOUT.pack(
        _MAGIC, VERSION, kind, sender, receiver, epoch, to_epoch, number, updates, hub, weight, *times, length, shape
    )


def decode(data: bytes, numbers_bytes: int, shape: bytes, length: int) -> Header | Verdict:
    """The header of a message about a model of this shape and length, or why there is none; cheapest test first.
    `numbers_bytes` is the size of what came with it."""
    if len(data) != HEADER_BYTES:
        return Verdict.SIZE
    magic, version, kind, *fields = _LAYOUT.unpack(data)
    if magic != _MAGIC or version != VERSION:
        return Verdict.VERSION
    if kind not in (Kind.UPDATE, Kind.MODEL, Kind.ASK):
        return Verdict.SENSELESS
    header = Header(Kind(kind), *fields)
    wanted = 0 if kind == Kind.ASK else length
    if header.shape != shape:
        return Verdict.SHAPE
    if header.length != wanted or numbers_bytes != 4 * wanted:
        return Verdict.SIZE
    return header if _makes_sense(header) else Verdict.SENSELESS


def _makes_sense(header: Header) -> bool:
    offset_s = 0.0 if math.isnan(header.offset_s) else header.offset_s
    if not all(abs(time_s) <= _LONGEST_S for time_s in (header.finished_s, header.sent_s, offset_s)):
        return False
    if header.epoch > LATEST_EPOCH or (header.kind != Kind.ASK and header.number > _HIGHEST_NUMBER):
        return False
    if header.kind == Kind.UPDATE:
        return 0.0 < header.weight <= 1.0 and 1 <= header.updates <= _MOST_UPDATES
    return math.isfinite(header.weight)


def encode_answer(answer: Answer) -> bytes:
    return _ANSWER.pack(_MAGIC, VERSION, answer.verdict, 0, answer.epoch, answer.number, answer.now_s, answer.length)


def decode_answer(data: bytes | memoryview, length: int) -> Answer | None:
    """None if it makes no sense. `length` is that of a model, for answers that bring one."""
    if len(data) < _ANSWER.size:
        return None
    magic, version, verdict, _, epoch, number, now_s, numbers = _ANSWER.unpack_from(data)
    sensible = magic == _MAGIC and version == VERSION and verdict < len(Verdict) and abs(now_s) <= _LONGEST_S
    if not sensible or numbers not in (0, length) or len(data) != _ANSWER.size + 4 * numbers:
        return None
    if epoch > LATEST_EPOCH or (numbers and number > _HIGHEST_NUMBER):
        return None
    return Answer(Verdict(verdict), epoch, number, now_s, numbers)


def numbers_of_answer(data: bytes | memoryview) -> memoryview:
    return memoryview(data)[_ANSWER.size :]
