"""The complete graph."""

from __future__ import annotations

from dataclasses import dataclass

from dracofl.field import Positions
from dracofl.types import Graph


@dataclass(frozen=True, slots=True)
class Complete:
    """Everybody sends to everybody."""

    def build(self, users: int, seed: int, positions: Positions) -> Graph:
        # By hand: networkx holds an object for each of the N^2 links.
        return Graph(tuple((*range(user), *range(user + 1, users)) for user in range(users)))
