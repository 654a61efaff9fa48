"""One user in the middle."""

from __future__ import annotations

from dataclasses import dataclass

from dracofl.field import Positions
from dracofl.topologies.links import from_networkx
from dracofl.types import Graph


@dataclass(frozen=True, slots=True)
class Star:
    """User 0 is the centre: it exchanges with all the others, and they only with it."""

    def build(self, users: int, seed: int, positions: Positions) -> Graph:
        import networkx

        # networkx counts the leaves, not the centre.
        return from_networkx(networkx.star_graph(users - 1))
