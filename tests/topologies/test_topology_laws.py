"""Laws every topology keeps. A new topology adds a row to the table."""

from __future__ import annotations

import dataclasses
import math
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from dracofl.field import drop_users
from dracofl.topologies.complete import Complete
from dracofl.topologies.connectivity import isolated
from dracofl.topologies.cycle import Cycle, DirectedCycle
from dracofl.topologies.erdos_renyi import ErdosRenyi
from dracofl.topologies.exponential import Exponential
from dracofl.topologies.file import FromFile
from dracofl.topologies.geometric import Geometric
from dracofl.topologies.grid import Grid, Torus
from dracofl.topologies.k_out import KOut
from dracofl.topologies.star import Star
from dracofl.types import Graph


class Row(NamedTuple):
    topology: Any
    both_ways: bool
    fewest_users: int = 1


TABLE = [
    Row(Cycle(), both_ways=True),
    Row(DirectedCycle(), both_ways=False),
    Row(Complete(), both_ways=True),
    Row(Star(), both_ways=True),
    Row(Grid(), both_ways=True),
    Row(Torus(), both_ways=True),
    Row(Exponential(), both_ways=False),
    Row(KOut(k=1), both_ways=False, fewest_users=2),
    Row(KOut(k=3), both_ways=False, fewest_users=4),
    Row(ErdosRenyi(probability=0.0), both_ways=True),
    Row(ErdosRenyi(probability=0.3), both_ways=False),
    Row(ErdosRenyi(probability=1.0), both_ways=True),
    Row(Geometric(range_m=0.001), both_ways=True),
    Row(Geometric(range_m=60.0), both_ways=True),
    Row(Geometric(range_m=math.inf), both_ways=True),
    Row(FromFile(path="ring.txt"), both_ways=False, fewest_users=2),
]

every_topology = pytest.mark.parametrize("row", TABLE, ids=[str(row.topology) for row in TABLE])


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def build(row: Row, users: int) -> Graph:
    Path("ring.txt").write_text("".join(f"{user} {(user + 1) % users}\n" for user in range(users)))
    graph = row.topology.build(users, 7, drop_users(7, users, radius_m=100.0))
    assert isinstance(graph, Graph)
    return graph


def graphs(row: Row) -> list[tuple[int, Graph]]:
    """Of many sizes: primes, squares, powers of two, and what lies between."""
    sizes = [2, 3, 4, 5, 6, 7, 8, 9, 12, 16, 25, 37, 60]
    return [(users, build(row, users)) for users in sizes if users >= row.fewest_users]


@every_topology
def test_the_graph_has_exactly_the_users_asked_for(row: Row) -> None:
    for users, graph in graphs(row):
        assert graph.users == users


@every_topology
def test_successors_are_ascending_tuples_without_repetition(row: Row) -> None:
    for _, graph in graphs(row):
        assert graph.successors == tuple(tuple(sorted(set(receivers))) for receivers in graph.successors)


@every_topology
def test_nobody_sends_to_itself(row: Row) -> None:
    for _, graph in graphs(row):
        assert all(sender not in receivers for sender, receivers in enumerate(graph.successors))


@every_topology
def test_successors_are_plain_ints_that_name_users(row: Row) -> None:
    for users, graph in graphs(row):
        receivers = [receiver for successors in graph.successors for receiver in successors]
        assert all(type(receiver) is int and 0 <= receiver < users for receiver in receivers)


@every_topology
def test_everybody_can_send_and_hear(row: Row) -> None:
    for _, graph in graphs(row):
        assert not isolated(graph)


@every_topology
def test_the_same_seed_gives_the_same_graph(row: Row) -> None:
    assert graphs(row) == graphs(row)


@pytest.mark.parametrize("row", [row for row in TABLE if row.both_ways], ids=lambda row: str(row.topology))
def test_links_said_to_go_both_ways_do(row: Row) -> None:
    for _, graph in graphs(row):
        assert graph.predecessors() == graph.successors


@pytest.mark.parametrize("row", [row for row in TABLE if not row.both_ways], ids=lambda row: str(row.topology))
def test_links_not_said_to_go_both_ways_do_not(row: Row) -> None:
    assert any(graph.predecessors() != graph.successors for _, graph in graphs(row))


@pytest.mark.parametrize("row", [row for row in TABLE if row.fewest_users == 1], ids=lambda row: str(row.topology))
def test_a_single_user_is_a_graph_without_links(row: Row) -> None:
    assert build(row, 1) == Graph(((),))


@every_topology
def test_a_topology_is_frozen_slotted_and_has_no_defaults(row: Row) -> None:
    assert type(row.topology).__dataclass_params__.frozen
    assert not hasattr(row.topology, "__dict__")
    for field in dataclasses.fields(row.topology):
        assert field.default is dataclasses.MISSING
        assert field.default_factory is dataclasses.MISSING


@every_topology
def test_a_topology_explains_itself_in_a_line(row: Row) -> None:
    explanation = type(row.topology).__doc__
    assert explanation.endswith(".")
    assert "\n" not in explanation


def test_importing_the_topologies_imports_neither_networkx_nor_scipy(pytestconfig: pytest.Config) -> None:
    modules = sorted({isolated.__module__, *(type(row.topology).__module__ for row in TABLE)})
    program = f"import sys, {', '.join(modules)}; print(sorted({{'networkx', 'scipy'}} & set(sys.modules)))"
    # From the root, since PYTHONPATH may be relative to it.
    answer = subprocess.run(
        [sys.executable, "-c", program], cwd=pytestconfig.rootpath, capture_output=True, text=True, check=True
    )
    assert answer.stdout.strip() == "[]"
