"""Users in a ring."""

from __future__ import annotations

from dataclasses import dataclass

from dracofl.field import Positions
from dracofl.topologies.links import from_networkx
from dracofl.types import Graph


@dataclass(frozen=True, slots=True)
class Cycle:
    """A ring: every user exchanges with the one before it and the one after it."""

    def build(self, users: int, seed: int, positions: Positions) -> Graph:
        import networkx

        return from_networkx(networkx.cycle_graph(users))


@dataclass(frozen=True, slots=True)
class DirectedCycle:
    """A one-way ring: every user sends only to the one after it."""

    def build(self, users: int, seed: int, positions: Positions) -> Graph:
        import networkx

        return from_networkx(networkx.cycle_graph(users, create_using=networkx.DiGraph))
