"""Means over seeds and how sure they are."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from dracofl.telemetry.run import Run


class Interval(NamedTuple):
    """A mean with the half-width of its 95% confidence interval (Student's t); None below two values."""

    mean: float
    half_width: float | None
    seeds: int

    def __str__(self) -> str:
        mean = _rounded(self.mean, 4)
        return mean if self.half_width is None else f"{mean} ± {_rounded(self.half_width, 2)}"

    @property
    def low(self) -> float:
        return -math.inf if self.half_width is None else self.mean - self.half_width

    @property
    def high(self) -> float:
        return math.inf if self.half_width is None else self.mean + self.half_width


def _rounded(number: float, digits: int) -> str:
    """To some digits, and without an exponent where people would not write one."""
    return f"{number:.0f}" if 10**digits - 0.5 <= abs(number) < 1e6 else f"{number:.{digits}g}"


def interval(values: Sequence[float]) -> Interval | None:
    if not values:
        return None
    array = np.asarray(values, dtype=np.float64)
    if len(array) < 2:
        return Interval(float(array.mean()), None, len(array))
    from scipy import stats

    half_width = stats.t.ppf(0.975, len(array) - 1) * array.std(ddof=1) / math.sqrt(len(array))
    return Interval(float(array.mean()), float(half_width), len(array))


def paired_difference(one: Sequence[float], other: Sequence[float]) -> Interval | None:
    """Of one minus other, seed by seed: the same seed has the same positions, data and fading."""
    return interval([a - b for a, b in zip(one, other, strict=True)])


def bytes_at(run: Run, times_s: np.ndarray) -> np.ndarray:
    """Bytes sent by the whole network up to each time."""
    totals = np.concatenate([[0], np.cumsum(run.events["bytes"])])
    return totals[np.searchsorted(run.events["time_s"], times_s, side="right")]


def first_reached(run: Run, metric: str, level: float) -> tuple[float, float] | None:
    """When, and after how many bytes, the users' mean first reached this level."""
    times_s, values = run.curve(metric)
    reached = np.flatnonzero(values.mean(axis=1) >= level)
    if not len(reached):
        return None
    time_s = times_s[reached[0]]
    return float(time_s), float(bytes_at(run, np.array([time_s]))[0])
