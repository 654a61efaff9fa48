"""Users in rows and columns, numbered row by row."""

from __future__ import annotations

import math
from dataclasses import dataclass

from dracofl.field import Positions
from dracofl.topologies.links import from_networkx
from dracofl.types import Graph


@dataclass(frozen=True, slots=True)
class Grid:
    """A grid, as square as can be: every user exchanges with those left, right, above and below."""

    def build(self, users: int, seed: int, positions: Positions) -> Graph:
        return _lattice(users, wrapped=False)


@dataclass(frozen=True, slots=True)
class Torus:
    """A grid whose opposite sides touch, so that nobody stands at an edge."""

    def build(self, users: int, seed: int, positions: Positions) -> Graph:
        return _lattice(users, wrapped=True)


def _lattice(users: int, *, wrapped: bool) -> Graph:
    import networkx

    rows = _rows(users)
    lattice = networkx.grid_2d_graph(rows, users // rows, periodic=wrapped)
    # Sorted (row, column) pairs number the users row by row. Wrapping a side of 2 repeats a link, which
    # networkx keeps once; wrapping a side of 1 links a user to itself, which from_networkx drops.
    return from_networkx(networkx.convert_node_labels_to_integers(lattice, ordering="sorted"))


def _rows(users: int) -> int:
    """The largest divisor not above the square root; 1, so a line or a ring, if `users` is prime."""
    return next(rows for rows in range(math.isqrt(users), 0, -1) if users % rows == 0)
