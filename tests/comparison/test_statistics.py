"""Means over seeds, their intervals, and what a curve says of bytes and of levels reached."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats
from small_comparisons import StubRun

from dracofl.experiments.statistics import Interval, bytes_at, first_reached, interval, paired_difference


def test_the_interval_of_three_values_by_hand() -> None:
    found = interval([1.0, 2.0, 3.0])  # standard deviation 1, and 4.3027 from a table of Student's t
    assert found is not None
    assert (found.mean, found.seeds) == (2.0, 3)
    assert found.half_width == pytest.approx(4.3027 / math.sqrt(3), abs=1e-4)
    assert (found.low, found.high) == pytest.approx((-0.4841, 4.4841), abs=1e-4)


@pytest.mark.parametrize("count", [2, 5, 40])
def test_the_interval_is_that_of_scipy(count: int) -> None:
    values = np.random.default_rng(count).normal(3.0, 2.0, count)
    found = interval(values.tolist())
    assert found is not None
    theirs = stats.t.interval(0.95, count - 1, loc=values.mean(), scale=stats.sem(values))
    assert (found.low, found.high) == pytest.approx(theirs, rel=1e-12)


def test_one_value_is_a_mean_that_nothing_is_known_of() -> None:
    found = interval([0.7])
    assert found == Interval(0.7, None, 1)
    assert (found.low, found.high) == (-math.inf, math.inf)
    assert str(found) == "0.7"


def test_no_value_is_no_interval() -> None:
    assert interval([]) is None
    assert paired_difference([], []) is None


def test_values_all_alike_are_certain() -> None:
    assert interval([0.25, 0.25]) == Interval(0.25, 0.0, 2)


@pytest.mark.parametrize(
    ("mean", "half_width", "text"),
    [
        (0.47433125, 0.015803, "0.4743 ± 0.016"),
        (850.25, 123.4, "850.2 ± 123"),
        (12_345.6, 1234.5, "12346 ± 1234"),
        (0.0, 0.0, "0 ± 0"),
        (1.5e20, 3e19, "1.5e+20 ± 3e+19"),
    ],
)
def test_an_interval_is_written_as_people_do(mean: float, half_width: float, text: str) -> None:
    assert str(Interval(mean, half_width, 5)) == text


def test_differences_are_taken_seed_by_seed() -> None:
    """What the seeds have in common does not make the difference less certain."""
    one, other = [0.1, 0.5, 0.9], [0.0, 0.4, 0.8]
    found = paired_difference(one, other)
    assert found is not None
    assert found.mean == pytest.approx(0.1)
    assert found.half_width == pytest.approx(0.0, abs=1e-12)
    with pytest.raises(ValueError, match="argument"):
        paired_difference([0.1, 0.2], [0.1])


def test_bytes_up_to_a_time_include_what_was_sent_then() -> None:
    run = StubRun([0.1, 0.2, 0.3])
    times_s = np.array([0.0, 0.49, 0.5, 10.0, 29.5, 1e9])
    assert bytes_at(run, times_s).tolist() == [0, 0, 100, 1000, 3000, 3000]


def test_a_level_is_reached_by_the_users_mean_at_an_evaluation() -> None:
    run = StubRun([[0.0, 0.2], [0.5, 0.1], [0.5, 0.7], [0.2, 0.2]])  # means 0.1, 0.3, 0.6, 0.2
    assert first_reached(run, "accuracy", 0.0) == (0.0, 0.0)
    assert first_reached(run, "accuracy", 0.3) == (10.0, 1000.0)
    assert first_reached(run, "accuracy", 0.6) == (20.0, 2000.0)
    assert first_reached(run, "accuracy", 0.61) is None
