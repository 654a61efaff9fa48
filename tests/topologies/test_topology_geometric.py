"""Geometric: links between those within reach, at any scale."""

from __future__ import annotations

import math
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from dracofl.errors import ConfigError
from dracofl.field import drop_users
from dracofl.topologies.connectivity import is_strongly_connected, isolated
from dracofl.topologies.geometric import Geometric

# Whole metres make equal distances, users on the same spot and distances exactly at the range common.
whole_metres = st.integers(2, 25).flatmap(
    lambda users: hnp.arrays(np.float64, (users, 2), elements=st.integers(-5, 5).map(float))
)
any_metres = st.integers(2, 25).flatmap(
    lambda users: hnp.arrays(np.float64, (users, 2), elements=st.floats(-1e3, 1e3, width=32))
)


def within_range(positions: np.ndarray, range_m: float) -> list[tuple[int, ...]]:
    """The slow twin: every pair looked at."""
    everybody = range(len(positions))
    return [
        tuple(
            other for other in everybody if other != user and np.hypot(*(positions[user] - positions[other])) < range_m
        )
        for user in everybody
    ]


@given(positions=whole_metres | any_metres, range_m=st.integers(1, 8).map(float) | st.floats(0.01, 500.0))
@settings(deadline=None, max_examples=200)
def test_those_in_range_of_somebody_are_linked_to_exactly_those_in_range_or_joined_to_them(
    positions: np.ndarray, range_m: float
) -> None:
    graph = Geometric(range_m).build(len(positions), 0, positions)
    slow = within_range(positions, range_m)
    alone = {user for user, others in enumerate(slow) if not others}
    for user, others in enumerate(slow):
        assert set(others) <= set(graph.successors[user])
        if user not in alone:
            assert set(graph.successors[user]) - set(others) <= alone
    assert graph.predecessors() == graph.successors
    assert not isolated(graph)


def test_a_distance_equal_to_the_range_is_out_of_range() -> None:
    # 0 and 1 are 3 m apart, 1 and 2 are 4 m, 0 and 2 are 5 m.
    positions = np.array([[0.0, 0.0], [3.0, 0.0], [3.0, 4.0]])
    assert Geometric(range_m=5.0).build(3, 0, positions).successors == ((1,), (0, 2), (1,))
    assert Geometric(range_m=5.001).build(3, 0, positions).successors == ((1, 2), (0, 2), (0, 1))


def test_a_user_out_of_everybodys_range_exchanges_with_its_nearest() -> None:
    positions = np.array([[0.0, 0.0], [1.0, 0.0], [50.0, 0.0]])
    assert Geometric(range_m=2.0).build(3, 0, positions).successors == ((1,), (0, 2), (1,))


def test_users_on_the_same_spot_exchange() -> None:
    assert Geometric(range_m=1e-9).build(3, 0, np.zeros((3, 2))).successors == ((1, 2), (0, 2), (0, 1))


def test_the_seed_does_not_matter_since_the_positions_decide() -> None:
    positions = drop_users(4, 50, radius_m=100.0)
    assert Geometric(30.0).build(50, 1, positions) == Geometric(30.0).build(50, 2, positions)


def test_a_hundred_thousand_users_are_built_in_seconds() -> None:
    users, radius_m, mean_degree = 100_000, 1000.0, 6.0
    positions = drop_users(0, users, radius_m)
    started = time.perf_counter()
    graph = Geometric(range_m=radius_m * math.sqrt(mean_degree / users)).build(users, 0, positions)
    # About one second on a laptop; a table of all pairs would take 80 GB.
    assert time.perf_counter() - started < 10.0
    assert sum(map(len, graph.successors)) / users == pytest.approx(mean_degree, rel=0.02)
    assert not isolated(graph)
    assert not is_strongly_connected(graph)


@pytest.mark.parametrize("range_m", [0.0, -1.0, math.nan])
def test_a_range_that_is_not_positive_is_refused(range_m: float) -> None:
    with pytest.raises(ConfigError, match=rf"topology\.range_m = {range_m}: must be greater than 0 metres"):
        Geometric(range_m=range_m)
