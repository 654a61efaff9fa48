"""The directed exponential graph: few links, and still everybody is few hops away."""

from __future__ import annotations

from dataclasses import dataclass

from dracofl.field import Positions
from dracofl.types import Graph


@dataclass(frozen=True, slots=True)
class Exponential:
    """Every user sends to those 1, 2, 4, 8, ... places after it on a ring: about log2 of the users each."""

    def build(self, users: int, seed: int, positions: Positions) -> Graph:
        # The powers of two below `users`.
        hops = [1 << power for power in range((users - 1).bit_length())]
        return Graph(tuple(tuple(sorted((user + hop) % users for hop in hops)) for user in range(users)))
