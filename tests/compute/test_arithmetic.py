"""What is done with vectors beside training: sums, and whether they are finite."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dracofl.compute.arithmetic import are_finite, play, sum_of_squares
from dracofl.tape import Combine

LENGTHS = [1, 5, 8191, 8192, 8193, 16_384, 40_000]


@pytest.mark.parametrize("length", LENGTHS)
def test_a_combination_has_the_bits_of_its_terms_added_one_by_one(length: int) -> None:
    chance = np.random.default_rng(length)
    vectors = {name: chance.normal(size=length).astype(np.float32) for name in range(4)}
    weights = [np.float32(weight) for weight in (0.1, 1 / 3, 0.7)]
    wanted = vectors[0].copy()
    for name, weight in enumerate(weights, start=1):
        wanted += weight * vectors[name]
    terms = ((0, 1.0), *((name, float(weight)) for name, weight in enumerate(weights, start=1)))
    play(vectors, Combine(0.0, 0, 0, terms))
    assert vectors[0].tobytes() == wanted.tobytes()


@pytest.mark.parametrize("length", LENGTHS)
def test_every_number_counts_once_in_a_sum_of_squares(length: int) -> None:
    numbers = np.random.default_rng(length).normal(size=length).astype(np.float32)
    assert sum_of_squares(numbers) == pytest.approx(float(np.square(numbers, dtype=np.float64).sum()), rel=1e-5)


def test_the_sum_of_nothing_is_nothing() -> None:
    assert sum_of_squares(np.zeros(0, np.float32)) == 0.0


@pytest.mark.parametrize("place", [0, 8191, 8192, 9999])
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_is_found_wherever_it_is(place: int, value: float) -> None:
    numbers = np.ones(10_000, np.float32)
    assert are_finite(numbers)
    numbers[place] = value
    assert not are_finite(numbers)


def test_large_numbers_are_finite_though_their_squares_are_not() -> None:
    numbers = np.full(10_000, 1e30, np.float32)
    assert sum_of_squares(numbers) == math.inf
    assert are_finite(numbers)
