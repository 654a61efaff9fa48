"""The topologies without randomness, against small examples written out and against networkx."""

from __future__ import annotations

import math
from typing import Any

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dracofl.topologies.complete import Complete
from dracofl.topologies.connectivity import is_strongly_connected
from dracofl.topologies.cycle import Cycle, DirectedCycle
from dracofl.topologies.exponential import Exponential
from dracofl.topologies.grid import Grid, Torus
from dracofl.topologies.star import Star
from dracofl.types import Graph


def build(topology: Any, users: int) -> Graph:
    graph = topology.build(users, 0, np.zeros((users, 2)))
    assert isinstance(graph, Graph)
    return graph


def as_networkx(graph: Graph) -> nx.DiGraph:
    result = nx.DiGraph()
    result.add_nodes_from(range(graph.users))
    result.add_edges_from((sender, receiver) for sender, row in enumerate(graph.successors) for receiver in row)
    return result


def degrees(graph: Graph) -> list[int]:
    return [len(receivers) for receivers in graph.successors]


EXAMPLES = [
    (Cycle(), 2, [(1,), (0,)]),
    (Cycle(), 3, [(1, 2), (0, 2), (0, 1)]),
    (Cycle(), 5, [(1, 4), (0, 2), (1, 3), (2, 4), (0, 3)]),
    (DirectedCycle(), 2, [(1,), (0,)]),
    (DirectedCycle(), 4, [(1,), (2,), (3,), (0,)]),
    (Complete(), 3, [(1, 2), (0, 2), (0, 1)]),
    (Star(), 4, [(1, 2, 3), (0,), (0,), (0,)]),
    (Grid(), 2, [(1,), (0,)]),
    (Grid(), 5, [(1,), (0, 2), (1, 3), (2, 4), (3,)]),
    # 0 1 2
    # 3 4 5
    (Grid(), 6, [(1, 3), (0, 2, 4), (1, 5), (0, 4), (1, 3, 5), (2, 4)]),
    (Torus(), 2, [(1,), (0,)]),
    (Torus(), 4, [(1, 2), (0, 3), (0, 3), (1, 2)]),
    (Torus(), 5, [(1, 4), (0, 2), (1, 3), (2, 4), (0, 3)]),
    (Torus(), 6, [(1, 2, 3), (0, 2, 4), (0, 1, 5), (0, 4, 5), (1, 3, 5), (2, 3, 4)]),
    (Exponential(), 2, [(1,), (0,)]),
    (Exponential(), 4, [(1, 2), (2, 3), (0, 3), (0, 1)]),
    (Exponential(), 5, [(1, 2, 4), (0, 2, 3), (1, 3, 4), (0, 2, 4), (0, 1, 3)]),
]


@pytest.mark.parametrize(
    ("topology", "users", "successors"),
    EXAMPLES,
    ids=[f"{type(kind).__name__}-{n}" for kind, n, _ in EXAMPLES],
)
def test_a_small_graph_is_the_one_written_out_here(
    topology: Any, users: int, successors: list[tuple[int, ...]]
) -> None:
    assert build(topology, users) == Graph(tuple(successors))


@given(users=st.integers(2, 60))
@settings(deadline=None, max_examples=30)
def test_shapes_agree_with_networkx(users: int) -> None:
    ring = nx.cycle_graph(users, create_using=nx.DiGraph)
    assert nx.utils.graphs_equal(as_networkx(build(DirectedCycle(), users)), ring)
    assert nx.utils.graphs_equal(as_networkx(build(Cycle(), users)), nx.cycle_graph(users).to_directed())
    assert nx.utils.graphs_equal(as_networkx(build(Complete(), users)), nx.complete_graph(users, nx.DiGraph))
    assert nx.utils.graphs_equal(as_networkx(build(Star(), users)), nx.star_graph(users - 1).to_directed())


@given(users=st.integers(1, 200))
@settings(deadline=None)
def test_a_grid_is_as_square_as_the_number_of_users_allows(users: int) -> None:
    rows = max(side for side in range(1, users + 1) if users % side == 0 and side * side <= users)
    columns = users // rows
    links = sum(degrees(build(Grid(), users))) // 2
    assert links == rows * (columns - 1) + columns * (rows - 1)


@given(users=st.integers(1, 200))
@settings(deadline=None)
def test_a_grid_links_exactly_those_one_step_apart(users: int) -> None:
    columns = users // max(side for side in range(1, math.isqrt(users) + 1) if users % side == 0)
    graph = build(Grid(), users)
    for sender, receivers in enumerate(graph.successors):
        row, column = divmod(sender, columns)
        steps = [abs(row - other // columns) + abs(column - other % columns) for other in range(users)]
        assert receivers == tuple(other for other, step in enumerate(steps) if step == 1)


def test_a_torus_gives_everybody_four_neighbours() -> None:
    assert degrees(build(Torus(), 9)) == [4] * 9
    assert degrees(build(Torus(), 25)) == [4] * 25


def test_a_torus_two_rows_high_does_not_count_the_same_neighbour_twice() -> None:
    assert degrees(build(Torus(), 10)) == [3] * 10


@pytest.mark.parametrize("users", [3, 5, 7, 13])
def test_a_prime_number_of_users_makes_the_torus_a_ring_and_the_grid_a_line(users: int) -> None:
    assert build(Torus(), users) == build(Cycle(), users)
    assert nx.is_isomorphic(as_networkx(build(Grid(), users)), nx.path_graph(users).to_directed())


@given(users=st.integers(2, 300))
@settings(deadline=None)
def test_exponential_has_a_logarithm_of_links_and_everybody_is_as_few_hops_away(users: int) -> None:
    graph = build(Exponential(), users)
    logarithm = math.ceil(math.log2(users))
    assert degrees(graph) == [logarithm] * users
    # The graph looks the same from every user, so user 0 speaks for all.
    assert max(nx.single_source_shortest_path_length(as_networkx(graph), 0).values()) <= logarithm


@pytest.mark.parametrize("topology", [Cycle(), DirectedCycle(), Complete(), Star(), Grid(), Torus(), Exponential()])
@pytest.mark.parametrize("users", [1, 2, 6, 7, 24])
def test_shapes_are_strongly_connected(topology: Any, users: int) -> None:
    assert is_strongly_connected(build(topology, users))
