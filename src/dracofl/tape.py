"""The tape: what the control plane asks of the data plane, in order.

Vectors are named by integers: user i's model is vector i, every other vector gets the next unused number and lives
until its `Free`. A reader of the tape needs no clock, no graph and no radio; a writer needs no numbers inside the
vectors. `at_s` and `user` say when and for whom, so that a value that stops being finite can be traced to its maker.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, TypeAlias


class Train(NamedTuple):
    """Local update `number` of `user`: run its SGD steps from `source`, leave the difference in `destination`."""

    at_s: float
    user: int
    number: int
    source: int
    destination: int


class Combine(NamedTuple):
    """destination <- sum of weight * vector: all sources read before the write, added one at a time as given."""

    at_s: float
    user: int
    destination: int
    terms: tuple[tuple[int, float], ...]


class Copy(NamedTuple):
    """destination <- source."""

    at_s: float
    user: int
    source: int
    destination: int


class Compression(NamedTuple):
    """How to shorten a vector: "top-k" and "random-k" keep `amount` entries, "qsgd" has `amount` levels."""

    kind: Literal["top-k", "random-k", "qsgd"]
    amount: int


class Compress(NamedTuple):
    """destination <- what a receiver makes of the compressed source; chance comes from the stream `draws`."""

    at_s: float
    user: int
    source: int
    destination: int
    compression: Compression
    draws: int


class Free(NamedTuple):
    """Nobody will read this vector again."""

    vector: int


class Evaluate(NamedTuple):
    """Measure every user's model now; `final` means on the whole test set."""

    at_s: float
    events: int
    final: bool


Operation: TypeAlias = Train | Combine | Copy | Compress | Free | Evaluate
