"""Users are dropped uniformly in a disc, each by its own draw."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from dracofl.field import drop_users

USERS = 5000

every_seed = pytest.mark.parametrize("seed", [0, 1, 2, 77])


def polar(positions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    x, y = positions.T
    return np.hypot(x, y), np.arctan2(y, x) % (2.0 * math.pi)


@every_seed
@pytest.mark.parametrize("radius_m", [0.5, 500.0])
def test_the_area_within_a_users_distance_is_uniform(seed: int, radius_m: float) -> None:
    distance_m, _ = polar(drop_users(seed, USERS, radius_m))
    assert stats.kstest(distance_m**2 / radius_m**2, "uniform").pvalue > 1e-3


@every_seed
def test_the_direction_is_uniform(seed: int) -> None:
    _, angle = polar(drop_users(seed, USERS, 500.0))
    assert stats.kstest(angle / (2.0 * math.pi), "uniform").pvalue > 1e-3


@every_seed
def test_distance_direction_and_neighbours_are_independent(seed: int) -> None:
    distance_m, angle = polar(drop_users(seed, USERS, 500.0))
    pairs = [(distance_m, angle), (distance_m[1:], distance_m[:-1]), (angle[1:], angle[:-1])]
    for one, other in pairs:
        assert abs(np.corrcoef(one, other)[0, 1]) < 4.0 / math.sqrt(len(one))


@every_seed
def test_equal_areas_hold_equal_numbers(seed: int) -> None:
    """A hundred cells of equal area: ten rings, each cut into ten sectors."""
    distance_m, angle = polar(drop_users(seed, USERS, 500.0))
    ring = (10 * distance_m**2 / 500.0**2).astype(int)
    sector = (10 * angle / (2.0 * math.pi)).astype(int)
    assert stats.chisquare(np.bincount(10 * ring + sector, minlength=100)).pvalue > 1e-3


@given(st.integers(0, 2**64 - 1), st.integers(1, 40), st.floats(1e-3, 1e6))
@settings(deadline=None)
def test_nobody_stands_outside(seed: int, users: int, radius_m: float) -> None:
    positions = drop_users(seed, users, radius_m)
    assert positions.shape == (users, 2)
    assert positions.dtype == np.float64
    assert (polar(positions)[0] <= radius_m * (1.0 + 1e-12)).all()


@given(st.integers(0, 2**64 - 1), st.integers(1, 30), st.integers(0, 30))
@settings(deadline=None)
def test_adding_users_moves_nobody(seed: int, users: int, more: int) -> None:
    assert (drop_users(seed, users + more, 500.0)[:users] == drop_users(seed, users, 500.0)).all()


def test_a_larger_disc_spreads_the_same_users() -> None:
    assert drop_users(3, 25, 1500.0) == pytest.approx(3.0 * drop_users(3, 25, 500.0))


def test_no_two_users_stand_at_one_place() -> None:
    assert len(np.unique(drop_users(3, USERS, 500.0), axis=0)) == USERS


def test_another_seed_drops_them_elsewhere() -> None:
    assert (drop_users(3, 25, 500.0) != drop_users(4, 25, 500.0)).all()
