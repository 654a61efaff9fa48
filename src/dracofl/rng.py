"""Random streams: a draw is a function of (seed, purpose, who, index) and of nothing else.

No generator is ever advanced, so nothing can shift anybody's luck: not another user, not another method, not an
extra evaluation, not a resumed run. A stream is a 64-bit key; its draw number `index` is the SplitMix64 finaliser
(Steele, Lea and Flood, OOPSLA 2014) applied to key + (index + 1) * golden ratio, which is the sequence that
SplitMix64 seeded with `key` would produce.

Bulk draws of the data plane (shuffles, synthetic samples) use NumPy's Philox, keyed the same way.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from math import log1p as _log1p
from typing import Any

import numpy as np
import numpy.typing as npt

_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15
_TO_UNIT = 2.0**-53
_TO_MINUS_UNIT = -(2.0**-53)


def _mix(z: int) -> int:
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    return z ^ (z >> 31)


def stream(seed: int, purpose: str, *who: int) -> int:
    """The key of a stream. `who` is a user, or the two ends of a link, or whatever the purpose is about."""
    key = _purpose(seed, purpose, len(who))
    for part in who:
        key = _mix((key ^ (part & _MASK)) + _GOLDEN & _MASK)
    return key


def streams(seed: int, purpose: str, who: int, others: Iterable[int]) -> list[int]:
    """The keys of the streams (seed, purpose, who, other) for many others; cheaper than naming each from the seed."""
    prefix = _pair(seed, purpose, who)
    return [_mix((prefix ^ (other & _MASK)) + _GOLDEN & _MASK) for other in others]


def _pair(seed: int, purpose: str, who: int) -> int:
    """What the keys of all streams (seed, purpose, who, other) have in common."""
    return _mix((_purpose(seed, purpose, 2) ^ (who & _MASK)) + _GOLDEN & _MASK)


@functools.lru_cache(maxsize=1024)  # purposes are few, and their names are long to mix
def _purpose(seed: int, purpose: str, parties: int) -> int:
    key = _mix((seed * _GOLDEN + parties + 1) & _MASK)
    for byte in purpose.encode():
        key = _mix((key ^ byte) + _GOLDEN & _MASK)
    return key


def substream(key: int, who: int) -> int:
    """The stream of a part of a stream's subject (an interferer on a link); cheaper than naming it from the seed."""
    return _mix((key ^ _mix(who + 1)) + _GOLDEN & _MASK)


def uniform(key: int, index: int) -> float:
    """A draw from [0, 1) with 53 random bits."""
    z = (key + (index + 1) * _GOLDEN) & _MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    return ((z ^ (z >> 31)) >> 11) * _TO_UNIT


def exponential(key: int, index: int) -> float:
    """A draw from Exp(1): divide by a rate to get a time."""
    z = (key + (index + 1) * _GOLDEN) & _MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    return -_log1p(((z ^ (z >> 31)) >> 11) * _TO_MINUS_UNIT)


def uniforms(seed: int, purpose: str, who: int, others: npt.NDArray[np.integer]) -> npt.NDArray[np.float64]:
    """Draw 0 of the streams (seed, purpose, who, other) for many others at once, bit for bit as `uniform`."""
    prefix = np.uint64(_pair(seed, purpose, who))
    with np.errstate(over="ignore"):
        key = _mix_array((prefix ^ others.astype(np.uint64)) + np.uint64(_GOLDEN))
        return (_mix_array(key + np.uint64(_GOLDEN)) >> np.uint64(11)).astype(np.float64) * _TO_UNIT


def generator(seed: int, purpose: str, *who: int) -> np.random.Generator:
    """A NumPy generator of its own for this purpose, for shuffles and bulk samples."""
    return np.random.Generator(np.random.Philox(key=_philox_key(stream(seed, purpose, *who))))


class Shuffles:
    """`generator(seed, purpose, who, number).permutation` for many numbers, again and again, for one thread at a time.
    To start a generator anew takes a tenth of the time it takes to make one."""

    def __init__(self) -> None:
        self._bits: Any = np.random.Philox(key=_philox_key(0))
        # Lists in the place of arrays, whose integers take NumPy longer to read.
        self._key = [0, 0]
        self._start = {**self._bits.state, "state": {"counter": [0] * 4, "key": self._key}, "buffer": [0] * 4}
        self._generator = np.random.Generator(self._bits)

    def permutations(
        self, values: npt.NDArray[np.int32], numbers: range, seed: int, purpose: str, who: int
    ) -> npt.NDArray[np.int32]:
        """One row for each number."""
        words = np.empty((len(numbers), len(values)), np.intp)  # NumPy shuffles these in two thirds of the time
        words[:] = values
        bits, start, key, shuffle = self._bits, self._start, self._key, self._generator.shuffle
        for row, first in zip(words, streams(seed, purpose, who, numbers), strict=True):
            key[:] = first, _mix(first ^ _GOLDEN)
            bits.state = start
            shuffle(row)
        return words.astype(values.dtype)


def _philox_key(first: int) -> npt.NDArray[np.uint64]:
    # As uint64: NumPy would round a list that mixes small and large integers to floats.
    return np.array([first, _mix(first ^ _GOLDEN)], dtype=np.uint64)


def _mix_array(z: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    result: npt.NDArray[np.uint64] = z ^ (z >> np.uint64(31))
    return result
