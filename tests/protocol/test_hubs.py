"""Who is the hub: by turns, by chance, or whoever heard the most."""

from __future__ import annotations

from typing import get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from dracofl.protocol.hubs import HubPolicy, pick_hub

PERIODS = 6000

any_seed = st.integers(0, 2**64 - 1)
any_period = st.integers(1, 10**6)
any_counts = st.lists(st.integers(0, 4), min_size=1, max_size=30)


def is_fair(picks: list[int], candidates: list[int]) -> bool:
    assert set(picks) <= set(candidates)
    return bool(stats.chisquare([picks.count(user) for user in candidates]).pvalue > 1e-3)


@given(st.sampled_from(get_args(HubPolicy)), any_seed, any_period, any_counts)
@settings(deadline=None)
def test_the_hub_is_a_user_and_always_the_same_one(
    policy: HubPolicy, seed: int, period: int, accepted: list[int]
) -> None:
    hub = pick_hub(policy, seed, period, accepted)
    assert type(hub) is int
    assert 0 <= hub < len(accepted)
    assert pick_hub(policy, seed, period, tuple(accepted)) == hub


# Round-robin


def test_round_robin_starts_with_user_0_and_goes_around() -> None:
    hubs = [pick_hub("round-robin", 5, period, [0] * 4) for period in range(1, 11)]
    assert hubs == [0, 1, 2, 3, 0, 1, 2, 3, 0, 1]


@given(any_seed, any_period, any_counts)
@settings(deadline=None)
def test_round_robin_asks_neither_chance_nor_counts(seed: int, period: int, accepted: list[int]) -> None:
    assert pick_hub("round-robin", seed, period, accepted) == pick_hub("round-robin", 0, period, [0] * len(accepted))


# Random


@pytest.mark.parametrize("users", [2, 7, 25])
@pytest.mark.parametrize("seed", [0, 1, 99])
def test_a_random_hub_is_any_user_with_equal_chance(users: int, seed: int) -> None:
    picks = [pick_hub("random", seed, period, [0] * users) for period in range(1, PERIODS + 1)]
    assert is_fair(picks, list(range(users)))


def test_a_random_hub_does_not_depend_on_the_one_before() -> None:
    picks = np.array([pick_hub("random", 3, period, [0] * 5) for period in range(1, PERIODS + 1)])
    counts, _, _ = np.histogram2d(picks[::2], picks[1::2], bins=5)
    assert stats.chisquare(counts.ravel()).pvalue > 1e-3


@given(any_seed, any_period, any_counts)
@settings(deadline=None)
def test_a_random_hub_does_not_depend_on_counts(seed: int, period: int, accepted: list[int]) -> None:
    assert pick_hub("random", seed, period, accepted) == pick_hub("random", seed, period, [0] * len(accepted))


@pytest.mark.parametrize("policy", ["random", "best-heard"])
def test_another_seed_picks_other_hubs(policy: HubPolicy) -> None:
    one, other = ([pick_hub(policy, seed, period, [0] * 25) for period in range(1, 101)] for seed in (1, 2))
    assert sum(a == b for a, b in zip(one, other, strict=True)) < 20


# Best-heard


@given(any_seed, any_period, any_counts)
@settings(deadline=None)
def test_the_best_heard_user_accepted_the_most(seed: int, period: int, accepted: list[int]) -> None:
    assert accepted[pick_hub("best-heard", seed, period, accepted)] == max(accepted)


def test_a_single_best_heard_user_is_the_hub_whatever_the_draw() -> None:
    assert {pick_hub("best-heard", seed, seed + 1, [3, 1, 9, 8]) for seed in range(200)} == {2}


@pytest.mark.parametrize(
    ("accepted", "tied"),
    [([5, 5], [0, 1]), ([2, 7, 7, 1, 7], [1, 2, 4]), ([0] * 10, list(range(10)))],
    ids=str,
)
@pytest.mark.parametrize("seed", [0, 1])
def test_ties_are_broken_fairly(accepted: list[int], tied: list[int], seed: int) -> None:
    picks = [pick_hub("best-heard", seed, period, accepted) for period in range(1, PERIODS + 1)]
    assert is_fair(picks, tied)


def test_ties_are_broken_fairly_across_seeds() -> None:
    picks = [pick_hub("best-heard", seed, 1, [4, 4, 0, 4]) for seed in range(PERIODS)]
    assert is_fair(picks, [0, 1, 3])


@given(any_seed, any_period, any_counts)
@settings(deadline=None)
def test_a_tie_is_not_decided_by_those_who_lost_it(seed: int, period: int, accepted: list[int]) -> None:
    hub = pick_hub("best-heard", seed, period, accepted)
    for loser in range(len(accepted)):
        if loser != hub:
            fewer = [-1 if user == loser else count for user, count in enumerate(accepted)]
            assert pick_hub("best-heard", seed, period, fewer) == hub
