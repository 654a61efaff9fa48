"""Who does what when: lanes have even work, and wait for one another seldom."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dracofl.compute.dealing import Dealer, Node, Wave
from dracofl.tape import Train

USERS = 20


def ring_of_trainings(rounds: int, users: int = USERS) -> list[Node]:
    """In each round everybody trains, in no order, from a model that has its own and its neighbours' last updates."""
    nodes = []
    for number in range(rounds):
        last = {user: users + (number - 1) * users + user for user in range(users)}
        for user in [7 * place % users for place in range(users)]:
            heard = [last[user], last[(user - 1) % users], last[(user + 1) % users]] if number else []
            terms = [(slot, 1.0, 0) for slot in [user, *heard]] if heard else []
            result = users + number * users + user
            train = Train(0.0, user, number, user, result)
            nodes.append(Node(destination=user, terms=terms, train=train, source=user, result=result))
    return nodes


def dealt(nodes: list[Node], lanes: int, switch_cost: float = 0.0) -> list[Wave]:
    dealer = Dealer(USERS, lanes)
    for node in nodes:
        dealer.add(node)
    return dealer.waves(switch_cost)


def trainings(wave: Wave) -> list[int]:
    return [sum(node.train is not None for node in lane) for lane in wave.lanes]


@pytest.mark.parametrize("lanes", [2, 3, 4])
def test_on_a_ring_each_lane_has_an_arc_and_waits_seldom(lanes: int) -> None:
    nodes = ring_of_trainings(rounds=4)
    waves = dealt(nodes, lanes)
    assert sum(sum(trainings(wave)) for wave in waves) == len(nodes)
    assert len(waves) <= 4
    assert sum(trainings(waves[0])) > 1.5 * USERS  # not just what waits for nothing
    longest = sum(max(trainings(wave)) for wave in waves)
    assert longest <= 1.3 * len(nodes) / lanes


@st.composite
def tangles(draw: st.DrawFn) -> list[Node]:
    """Sums and trainings among few vectors, so that nearly everything is in the way of something."""
    slot = st.integers(0, 6)
    nodes = []
    for number in range(draw(st.integers(1, 30))):
        terms = [(source, 1.0, 0) for source in draw(st.lists(slot, max_size=3))]
        node = Node(destination=draw(slot), terms=terms)
        if not terms or draw(st.booleans()):
            node.source = node.destination if terms else draw(slot)
            node.train, node.result = Train(0.0, 0, number, 0, 0), draw(slot)
        nodes.append(node)
    return nodes


def touched(node: Node) -> tuple[set[int], set[int]]:
    reads, writes = {slot for slot, _, _ in node.terms}, {node.destination} if node.terms else set()
    return (reads, writes) if node.train is None else (reads | {node.source}, writes | {node.result})


@settings(max_examples=200, deadline=None)
@given(tangles(), st.integers(1, 4), st.sampled_from([0.0, 1.0, 3.0]))
def test_what_is_in_the_way_of_something_is_done_before_it(nodes: list[Node], lanes: int, switch_cost: float) -> None:
    waves = dealt(nodes, lanes, switch_cost)
    places = {
        id(node): (number, lane, place)
        for number, wave in enumerate(waves)
        for lane, dealt_nodes in enumerate(wave.lanes)
        for place, node in enumerate(dealt_nodes)
    }
    assert len(places) == len(nodes)
    for later_place, later in enumerate(nodes):
        reads, writes = touched(later)
        for earlier in nodes[:later_place]:
            earlier_reads, earlier_writes = touched(earlier)
            if earlier_writes & (reads | writes) or earlier_reads & writes:
                (wave, lane, place), (its_wave, its_lane, its_place) = places[id(earlier)], places[id(later)]
                assert wave < its_wave or (wave == its_wave and lane == its_lane and place < its_place)


def test_a_chain_stays_in_one_piece() -> None:
    chain = [
        Node(destination=user, terms=[(user, 1.0, 0), (user - 1, 0.5, 0)], train=train, source=user, result=user)
        for user in range(1, USERS)
        for train in [Train(0.0, user, 0, user, user)]
    ]
    (wave,) = dealt(chain, lanes=2)
    assert trainings(wave) == [USERS - 1]


def test_what_is_not_worth_a_second_lane_stays_on_one() -> None:
    nodes = ring_of_trainings(rounds=1)
    (split,) = dealt(nodes, lanes=2, switch_cost=3.0)
    (whole,) = dealt(nodes, lanes=2, switch_cost=8.0)
    assert min(trainings(split)) >= USERS // 2 - 2
    assert trainings(whole) == [USERS]


def test_with_one_lane_a_wave_number_says_what_is_independent() -> None:
    nodes = ring_of_trainings(rounds=3)
    (wave,) = dealt(nodes, lanes=1)
    assert [node.wave for node in wave.lanes[0]] == [0] * USERS + [1] * USERS + [2] * USERS
