"""k-out and Erdos-Renyi: every link has its own luck, and nobody is left out."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dracofl import rng
from dracofl.errors import ConfigError
from dracofl.field import drop_users
from dracofl.topologies.connectivity import isolated
from dracofl.topologies.erdos_renyi import ErdosRenyi
from dracofl.topologies.k_out import KOut
from dracofl.topologies.nearness import nearest_users
from dracofl.types import Graph

seeds = st.integers(0, 2**32)
sizes = st.integers(2, 40)
probabilities = st.floats(0.0, 1.0)


def links(graph: Graph) -> set[tuple[int, int]]:
    return {(sender, receiver) for sender, row in enumerate(graph.successors) for receiver in row}


def luck(seed: int, sender: int, receiver: int) -> float:
    """The draw of one link, asked for on its own."""
    return rng.uniform(rng.stream(seed, "edge", sender, receiver), 0)


def scattered(users: int) -> np.ndarray:
    return drop_users(1, users, radius_m=100.0)


@given(seed=seeds, users=sizes, probability=probabilities)
@settings(deadline=None)
def test_an_erdos_renyi_link_is_its_own_draw_and_nothing_else(seed: int, users: int, probability: float) -> None:
    expected = {
        (sender, receiver)
        for sender in range(users)
        for receiver in range(users)
        if sender != receiver and luck(seed, sender, receiver) < probability
    }
    assert links(ErdosRenyi(probability).draw(users, seed)) == expected


@given(seed=seeds, users=sizes, more=st.integers(1, 20), probability=probabilities)
@settings(deadline=None)
def test_more_users_never_change_an_erdos_renyi_link_between_the_first_ones(
    seed: int, users: int, more: int, probability: float
) -> None:
    few = links(ErdosRenyi(probability).draw(users, seed))
    many = links(ErdosRenyi(probability).draw(users + more, seed))
    assert few == {(sender, receiver) for sender, receiver in many if max(sender, receiver) < users}


@given(seed=seeds, users=sizes, more=st.integers(1, 20))
@settings(deadline=None)
def test_more_users_never_change_a_built_erdos_renyi_link_where_nobody_had_to_be_joined(
    seed: int, users: int, more: int
) -> None:
    topology = ErdosRenyi(0.5)
    few = topology.build(users, seed, scattered(users))
    many = topology.build(users + more, seed, scattered(users + more))
    left_out = isolated(topology.draw(users, seed))
    touched = {*left_out.without_receivers, *left_out.without_senders}
    for sender, receiver in links(few) ^ {link for link in links(many) if max(link) < users}:
        assert sender in touched or receiver in touched


@given(seed=seeds, users=sizes, low=probabilities, high=probabilities)
@settings(deadline=None)
def test_a_higher_probability_only_adds_links(seed: int, users: int, low: float, high: float) -> None:
    low, high = sorted((low, high))
    assert links(ErdosRenyi(low).draw(users, seed)) <= links(ErdosRenyi(high).draw(users, seed))


def test_the_share_of_erdos_renyi_links_is_the_probability() -> None:
    users, probability = 400, 0.2
    pairs = users * (users - 1)
    found = len(links(ErdosRenyi(probability).draw(users, seed=3)))
    assert abs(found - pairs * probability) < 5 * math.sqrt(pairs * probability * (1 - probability))


def test_erdos_renyi_directions_are_separate_coins() -> None:
    drawn = links(ErdosRenyi(0.5).draw(200, seed=3))
    mutual = sum((receiver, sender) in drawn for sender, receiver in drawn) / len(drawn)
    assert mutual == pytest.approx(0.5, abs=0.03)


@given(seed=seeds, users=sizes, data=st.data())
@settings(deadline=None)
def test_a_k_out_user_picks_the_k_others_with_the_smallest_draws(seed: int, users: int, data: st.DataObject) -> None:
    k = data.draw(st.integers(1, users - 1))
    for user, picked in enumerate(KOut(k).draw(users, seed).successors):
        others = [other for other in range(users) if other != user]
        assert picked == tuple(sorted(sorted(others, key=lambda other: luck(seed, user, other))[:k]))


@given(seed=seeds, users=sizes, data=st.data())
@settings(deadline=None)
def test_a_new_user_displaces_at_most_one_k_out_pick_of_each(seed: int, users: int, data: st.DataObject) -> None:
    k = data.draw(st.integers(1, users - 1))
    few, many = KOut(k).draw(users, seed), KOut(k).draw(users + 1, seed)
    for before, after in zip(few.successors, many.successors, strict=False):
        assert set(after) == set(before) or (users in after and len(set(before) - set(after)) == 1)


def test_ties_between_k_out_draws_go_to_the_lower_user(monkeypatch: pytest.MonkeyPatch) -> None:
    draws = np.array([0.9, 0.5, 0.5, 0.5, 0.1])
    monkeypatch.setattr(rng, "uniforms", lambda *_: draws.copy())
    assert KOut(k=3).draw(5, seed=0).successors == ((1, 2, 4), (2, 3, 4), (1, 3, 4), (1, 2, 4), (1, 2, 3))


def test_k_out_picks_are_uniform_over_the_others() -> None:
    users, k = 300, 10
    heard = [len(senders) for senders in KOut(k).draw(users, seed=5).predecessors()]
    # In-degrees are Binomial(users - 1, k / (users - 1)), so their variance is close to k.
    assert sum(heard) == users * k
    assert np.var(heard) == pytest.approx(k, rel=0.3)


@pytest.mark.parametrize("topology", [KOut(k=4), ErdosRenyi(probability=0.2)])
def test_another_seed_gives_another_graph(topology: KOut | ErdosRenyi) -> None:
    assert topology.build(30, 1, scattered(30)) != topology.build(30, 2, scattered(30))


@pytest.mark.parametrize("topology", [KOut(k=1), ErdosRenyi(probability=0.03)])
@given(seed=seeds)
@settings(deadline=None)
def test_building_adds_to_what_was_drawn_only_the_links_of_isolated_users(
    topology: KOut | ErdosRenyi, seed: int
) -> None:
    positions = scattered(40)
    drawn = topology.draw(40, seed)
    left_out = isolated(drawn)
    nearest = nearest_users(positions, range(40))
    to_nearest = {(user, nearest[user]) for user in left_out.without_receivers}
    from_nearest = {(nearest[user], user) for user in left_out.without_senders}
    assert links(topology.build(40, seed, positions)) == links(drawn) | to_nearest | from_nearest


@pytest.mark.parametrize("k", [0, -3])
def test_a_k_below_one_is_refused(k: int) -> None:
    with pytest.raises(ConfigError, match=rf"topology\.k = {k}: must be at least 1"):
        KOut(k=k)


@pytest.mark.parametrize("k", [5, 6])
def test_a_k_that_leaves_too_few_others_is_refused(k: int) -> None:
    with pytest.raises(ConfigError, match=rf"topology\.k = {k}: .* number of users, 5, .* the 4 others"):
        KOut(k=k).build(5, 0, scattered(5))


@pytest.mark.parametrize("probability", [-0.1, 1.5, math.nan, math.inf])
def test_a_probability_outside_0_to_1_is_refused(probability: float) -> None:
    with pytest.raises(ConfigError, match=rf"topology\.probability = {probability}: must be between 0 and 1"):
        ErdosRenyi(probability=probability)
