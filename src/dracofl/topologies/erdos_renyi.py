"""Random graphs in which every link is a coin of its own."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dracofl import rng
from dracofl.errors import ConfigError
from dracofl.field import Positions
from dracofl.topologies.connectivity import join_isolated
from dracofl.types import Graph


@dataclass(frozen=True, slots=True)
class ErdosRenyi:
    """Every one-way link exists with the same probability; an isolated user is joined to its nearest."""

    probability: float

    def __post_init__(self) -> None:
        if not 0.0 <= self.probability <= 1.0:
            raise ConfigError(f"topology.probability = {self.probability}: must be between 0 and 1")

    def build(self, users: int, seed: int, positions: Positions) -> Graph:
        return join_isolated(self.draw(users, seed), positions)

    def draw(self, users: int, seed: int) -> Graph:
        """The coins alone: whether i sends to j depends on the seed, i and j, not on who else is there."""
        everybody = np.arange(users)
        successors = []
        for user in range(users):
            exists = rng.uniforms(seed, "edge", user, everybody) < self.probability
            exists[user] = False
            successors.append(tuple(np.flatnonzero(exists).tolist()))
        return Graph(tuple(successors))
