"""Poker hands: read from the UCI files, or dealt afresh and labelled by the rules of the game.

Cattral and Oppacher, Poker Hand (UCI Machine Learning Repository, data set 158, CC BY 4.0). A hand is ten
integers S1,C1,...,S5,C5: suit 1 to 4 and rank 1 to 13 (1 is the ace) of five different cards of one deck, in
the order dealt. Its class is the best thing it is, see `CLASS_NAMES`. The ace is high or low in a straight; a
straight does not wrap around it.

The label is a function of the hand, so a generated set differs from the UCI files only in luck (and the UCI
training file was given some more of the rarest classes than luck would have).
"""

from __future__ import annotations

import gzip
import io
import os
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dracofl import rng
from dracofl.datasets.samples import Classification, Samples
from dracofl.errors import DataError

Hands = npt.NDArray[np.uint8]
"""Shape (n, 10), columns S1,C1,...,S5,C5."""

CLASS_NAMES = (
    "nothing",
    "one pair",
    "two pairs",
    "three of a kind",
    "straight",
    "flush",
    "full house",
    "four of a kind",
    "straight flush",
    "royal flush",
)
FEATURES = 85
TRAINING_FILE = "poker-hand-training-true.data"
TESTING_FILES = "poker-hand-testing*.data"
TEST_ROWS = 10_000
"""How many rows of the UCI test file, from its top, are the test set; those after them are for validation."""

_SUITS, _RANKS, _CARDS = 4, 13, 5
_FIELDS = 2 * _CARDS + 1
_SOURCE = "UCI Poker Hand, https://archive.ics.uci.edu/dataset/158/poker+hand"
# Feature k of a hand is 1 where column _COLUMN[k] holds _VALUE[k]: for each card 4 suits, then 13 ranks.
_COLUMN = np.repeat(np.arange(2 * _CARDS), [_SUITS, _RANKS] * _CARDS)
_VALUE = np.tile(np.r_[1 : _SUITS + 1, 1 : _RANKS + 1].astype(np.uint8), _CARDS)
# The class by the number of pairs of cards of equal rank, straights and flushes aside: two pairs have 2,
# three of a kind 3, a full house 3 + 1, four of a kind 6. The zeros stand where no hand of five different
# cards can be.
_CLASS_BY_PAIRS = np.array([0, 1, 2, 3, 6, 0, 7, 0, 0, 0, 0], dtype=np.int32)
_ROW = re.compile(rb"\d{1,2}(,\d{1,2}){%d}" % (_FIELDS - 1))


def encode(hands: Any) -> Any:
    """One-hot features: (..., 10) to float32 (..., 85), ten of them 1. Works on NumPy and on JAX arrays."""
    return (hands[..., _COLUMN] == _VALUE).astype("float32")


def label_hands(hands: Hands) -> npt.NDArray[np.int32]:
    """The class of each hand by the rules. The hands must be legal: `read` checks that, `deal` sees to it."""
    if hands.ndim != 2 or hands.shape[1] != 2 * _CARDS:
        raise ValueError(f"hands have shape {hands.shape}; it must be (n, {2 * _CARDS})")
    suits, ranks = np.ascontiguousarray(hands[:, 0::2].T), np.ascontiguousarray(hands[:, 1::2].T)
    pairs = np.zeros(len(hands), dtype=np.intp)
    for one in range(_CARDS):
        for other in range(one):
            pairs += ranks[one] == ranks[other]
    lowest, total = ranks.min(axis=0), ranks.sum(axis=0)
    # Five different ranks with an ace sum to 1 + 10 + 11 + 12 + 13 = 47 only if they are those.
    ace_high = (pairs == 0) & (lowest == 1) & (total == 47)
    straight = ace_high | ((pairs == 0) & (ranks.max(axis=0) - lowest == 4))
    flush = (suits == suits[0]).all(axis=0)
    labels = _CLASS_BY_PAIRS[pairs]
    labels[straight] = 4
    labels[flush] = 5
    labels[straight & flush] = 8
    labels[ace_high & flush] = 9
    return labels


def deal(generator: np.random.Generator, count: int) -> Hands:
    """Hands drawn uniformly from all ordered ones. A longer deal begins with the hands of a shorter one."""
    deck = _SUITS * _RANKS
    # Card k is the draw[k]-th of those still in the deck: count it off past the cards dealt before it.
    draws = generator.integers(0, np.arange(deck, deck - _CARDS, -1), size=(count, _CARDS))
    cards = np.empty((count, _CARDS), dtype=np.int64)
    for position in range(_CARDS):
        card = draws[:, position]
        for dealt in np.sort(cards[:, :position], axis=1).T:
            card = card + (card >= dealt)
        cards[:, position] = card
    hands = np.empty((count, 2 * _CARDS), dtype=np.uint8)
    hands[:, 0::2] = cards // _RANKS + 1
    hands[:, 1::2] = cards % _RANKS + 1
    return hands


def generate(seed: int, train_count: int, test_count: int = 10_000, validation_count: int = 10_000) -> Classification:
    """A fresh set of hands. Each split has its own stream: more of one leaves the others as they were."""

    def split(name: str, count: int) -> Samples:
        hands = deal(rng.generator(seed, f"poker-{name}"), count)
        return Samples(hands, label_hands(hands))

    return _classification(
        split("train", train_count), split("test", test_count), split("validation", validation_count)
    )


def read(folder: str | os.PathLike[str]) -> Classification:
    """The UCI files in a folder, plain or gzipped; a part of the test file is fine too.

    Test are the first 10,000 rows of the test file, validation the rows after them (none if it has no more).
    Every row is checked, its label against the rules.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise DataError(f"{folder} is not a folder; data.dir must name one that holds {TRAINING_FILE} ({_SOURCE})")
    train = _read_rows(_find(folder, TRAINING_FILE))
    tests = _read_rows(_find(folder, TESTING_FILES))
    test = Samples(tests.inputs[:TEST_ROWS], tests.labels[:TEST_ROWS])
    validation = Samples(tests.inputs[TEST_ROWS:], tests.labels[TEST_ROWS:])
    return _classification(train, test, validation)


def _classification(train: Samples, test: Samples, validation: Samples) -> Classification:
    return Classification(
        train=train,
        test=test,
        validation=validation,
        classes=len(CLASS_NAMES),
        features=FEATURES,
        encode=encode,
    )


def _find(folder: Path, pattern: str) -> Path:
    """The one file in the folder that matches the pattern, or the pattern and .gz."""
    found = sorted([*folder.glob(pattern), *folder.glob(pattern + ".gz")])
    if not found:
        raise DataError(f"{folder} has no {pattern} or {pattern}.gz; get it from {_SOURCE}")
    if len(found) > 1:
        names = ", ".join(path.name for path in found)
        raise DataError(f"{folder} has {len(found)} files where one is wanted: {names}; leave one of them there")
    return found[0]


def _read_rows(path: Path) -> Samples:
    content = b"".join(_pieces(path)).replace(b"\r\n", b"\n").rstrip(b"\r\n")
    if not content:
        raise DataError(f"{path} is empty; it must hold a hand a line, {_FIELDS} integers each ({_SOURCE})")
    table = _parse(content)
    if table is None:
        raise _garbled(path, content)
    hands, given = table[:, :-1], table[:, -1].astype(np.int32)
    suits, ranks = hands[:, 0::2], hands[:, 1::2]
    in_range = ((suits >= 1) & (suits <= _SUITS) & (ranks >= 1) & (ranks <= _RANKS)).all(axis=1)
    # A hand as 52 bits, five of them set; out of range a bit may get lost, but then the row is bad anyway.
    cards = np.uint64(1) << (suits.astype(np.uint64) * np.uint64(_RANKS) - np.uint64(_RANKS) + ranks)
    distinct = np.bitwise_count(np.bitwise_or.reduce(cards, axis=1)) == _CARDS
    labels = label_hands(hands)
    bad = ~(in_range & distinct & (labels == given))
    if bad.any():
        row = int(bad.argmax())
        complaint = _complaint(hands[row].tolist(), int(given[row]), int(labels[row]))
        raise DataError(f"{path}, line {row + 1}: {complaint}")
    return Samples(np.ascontiguousarray(hands), labels)


def _pieces(path: Path) -> Iterator[bytes]:
    """The content of a file, unpacked if its name ends in .gz."""
    lines = 0
    try:
        file: io.BufferedIOBase
        with gzip.GzipFile(path) if path.suffix == ".gz" else path.open("rb") as file:
            while piece := file.read1(1 << 16):
                lines += piece.count(b"\n")
                yield piece
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(
            f"{path}: the gzip file is broken off or damaged after line {lines} ({error}); get it again from {_SOURCE}"
        ) from error
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}") from error


def _parse(content: bytes) -> Hands | None:
    """Rows of eleven integers of one or two digits, or None if any row is something else."""
    text = np.frombuffer(content + b"\n", dtype=np.uint8)
    digits = text - np.uint8(ord("0"))
    ends = np.flatnonzero(digits > 9)
    widths = np.diff(ends, prepend=-1) - 1
    if ends.size % _FIELDS or widths.min() < 1 or widths.max() > 2:
        return None
    marks = text[ends].reshape(-1, _FIELDS)
    if (marks[:, :-1] != ord(",")).any() or (marks[:, -1] != ord("\n")).any():
        return None
    tens = digits[ends - 2] * (widths == 2)
    table: Hands = (digits[ends - 1] + np.uint8(10) * tens).reshape(-1, _FIELDS)
    return table


def _garbled(path: Path, content: bytes) -> DataError:
    """Names the first row that is not eleven integers; called when there is one."""
    number, row = next((number, row) for number, row in enumerate(content.split(b"\n"), 1) if not _ROW.fullmatch(row))
    shown = row[:60].decode("ascii", "backslashreplace") + ("..." if len(row) > 60 else "")
    return DataError(
        f"{path}, line {number}: {shown!r} is not a hand; a row is {_FIELDS} integers S1,C1,...,S5,C5,class"
    )


def _complaint(hand: list[int], given: int, label: int) -> str:
    """What is wrong with a row of eleven integers."""
    for position, (suit, rank) in enumerate(zip(hand[0::2], hand[1::2], strict=True), 1):
        if not 1 <= suit <= _SUITS:
            return f"S{position} is {suit}; a suit is 1 to {_SUITS}"
        if not 1 <= rank <= _RANKS:
            return f"C{position} is {rank}; a rank is 1 to {_RANKS}"
    cards = list(zip(hand[0::2], hand[1::2], strict=True))
    for position, card in enumerate(cards, 1):
        if card in cards[: position - 1]:
            first = cards.index(card) + 1
            same = f"cards {first} and {position} are both suit {card[0]}, rank {card[1]}"
            return f"{same}; a hand is five different cards"
    return f"the class is {given}, but by the rules the hand is {label} ({CLASS_NAMES[label]})"
