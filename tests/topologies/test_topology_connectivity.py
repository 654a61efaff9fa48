"""Who is left out, who is nearest, and whether everybody can reach everybody."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from dracofl.errors import ConfigError
from dracofl.topologies.connectivity import (
    Isolated,
    is_strongly_connected,
    isolated,
    join_isolated,
    refuse_isolated,
)
from dracofl.topologies.links import from_pairs
from dracofl.topologies.nearness import nearest_users
from dracofl.types import Graph

LINE = np.array([[0.0, 0.0], [1.0, 0.0], [3.0, 0.0], [7.0, 0.0]])
"""Four users on a line, each new one further from the last."""

NO_LINKS = Graph(((), (), (), ()))

crowded_places = st.integers(2, 30).flatmap(
    lambda users: hnp.arrays(np.float64, (users, 2), elements=st.integers(-3, 3).map(float))
)
any_places = st.integers(2, 30).flatmap(
    lambda users: hnp.arrays(np.float64, (users, 2), elements=st.floats(-1e3, 1e3, width=32))
)


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    users = draw(st.integers(1, 15))
    user = st.integers(0, users - 1)
    pairs = draw(st.lists(st.tuples(user, user), max_size=40))
    return from_pairs(users, np.array(pairs, dtype=np.int64).reshape(-1, 2))


def links(graph: Graph) -> set[tuple[int, int]]:
    return {(sender, receiver) for sender, row in enumerate(graph.successors) for receiver in row}


def test_isolated_tells_those_who_cannot_send_from_those_who_cannot_hear() -> None:
    assert isolated(Graph(((1,), (), (0,)))) == Isolated(without_receivers=(1,), without_senders=(2,))


def test_isolated_is_false_when_everybody_can_send_and_hear() -> None:
    assert not isolated(Graph(((1,), (2,), (0,))))
    assert isolated(Graph(((1,), (0,), ())))


@given(positions=crowded_places | any_places)
@settings(deadline=None, max_examples=200)
def test_the_nearest_user_is_the_closest_and_of_equals_the_lowest_numbered(positions: np.ndarray) -> None:
    everybody = range(len(positions))
    slow = [
        min((np.hypot(*(positions[other] - positions[user])), other) for other in everybody if other != user)[1]
        for user in everybody
    ]
    assert nearest_users(positions, everybody) == slow


def test_users_without_any_link_get_one_to_and_one_from_their_nearest() -> None:
    # The nearest of 0 is 1, of 1 is 0, of 2 is 1, of 3 is 2.
    assert join_isolated(NO_LINKS, LINE).successors == ((1,), (0, 2), (1, 3), (2,))


def test_a_user_that_can_hear_but_not_send_gets_only_a_link_to_its_nearest() -> None:
    graph = Graph(((1,), (0, 3), (0, 1), ()))
    assert isolated(graph) == Isolated(without_receivers=(3,), without_senders=(2,))
    assert links(join_isolated(graph, LINE)) - links(graph) == {(3, 2), (1, 2)}


@given(graph=graphs(), data=st.data())
@settings(deadline=None)
def test_joining_keeps_every_link_and_leaves_nobody_out(graph: Graph, data: st.DataObject) -> None:
    places = hnp.arrays(np.float64, (graph.users, 2), elements=st.integers(-3, 3).map(float))
    joined = join_isolated(graph, data.draw(places))
    assert links(graph) <= links(joined)
    assert graph.users == 1 or not isolated(joined)
    assert all(list(row) == sorted(set(row)) for row in joined.successors)


@given(graph=graphs(), data=st.data())
@settings(deadline=None)
def test_joining_keeps_links_both_ways_where_they_were(graph: Graph, data: st.DataObject) -> None:
    both_ways = from_pairs(
        graph.users,
        np.array([*links(graph), *((b, a) for a, b in links(graph))], dtype=np.int64).reshape(-1, 2),
    )
    places = hnp.arrays(np.float64, (graph.users, 2), elements=st.integers(-3, 3).map(float))
    joined = join_isolated(both_ways, data.draw(places))
    assert joined.successors == joined.predecessors()


def test_a_graph_in_which_nobody_is_left_out_stays_as_it_is() -> None:
    ring = Graph(((1,), (2,), (3,), (0,)))
    assert join_isolated(ring, LINE) is ring


def test_refusing_names_both_problems_the_users_and_what_would_be_right() -> None:
    with pytest.raises(ConfigError) as refused:
        refuse_isolated(Graph(((1,), (0,), (0,), ())), "here")
    assert refused.value.problems == (
        "here: user 3 has nobody to send to; every user from 0 to 3 must be the sender of a link to another user",
        "here: users 2, 3 have nobody to hear; every user from 0 to 3 must be the receiver of a link from another user",
    )


def test_refusing_lists_only_the_first_few_of_many_users() -> None:
    with pytest.raises(ConfigError, match=r"users 2, 3, 4, 5, 6 and 93 more have nobody to send to"):
        refuse_isolated(Graph(((1,), (0,), *([()] * 98))), "here")


def test_nothing_is_refused_when_nobody_is_left_out() -> None:
    refuse_isolated(Graph(((1,), (0,))), "here")


@given(graph=graphs())
@settings(deadline=None, max_examples=200)
def test_strong_connection_agrees_with_networkx(graph: Graph) -> None:
    reference = nx.DiGraph(sorted(links(graph)))
    reference.add_nodes_from(range(graph.users))
    assert is_strongly_connected(graph) == nx.is_strongly_connected(reference)


def test_a_one_way_street_is_not_strongly_connected() -> None:
    assert not is_strongly_connected(Graph(((1,), (2,), (1,))))
    assert is_strongly_connected(Graph(((1,), (2,), (0,))))
