"""Random graphs in which everybody picks the same number of receivers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dracofl import rng
from dracofl.errors import ConfigError
from dracofl.field import Positions
from dracofl.topologies.connectivity import join_isolated
from dracofl.types import Graph


@dataclass(frozen=True, slots=True)
class KOut:
    """Every user sends to k others picked at random; a user nobody picked hears its nearest."""

    k: int

    def __post_init__(self) -> None:
        if self.k < 1:
            raise ConfigError(f"topology.k = {self.k}: must be at least 1, or users have nobody to send to")

    def build(self, users: int, seed: int, positions: Positions) -> Graph:
        return join_isolated(self.draw(users, seed), positions)

    def draw(self, users: int, seed: int) -> Graph:
        """The picks alone: the k smallest draws, so that a new user displaces at most one pick of each."""
        if self.k >= users:
            raise ConfigError(
                f"topology.k = {self.k}: must be less than the number of users, {users}, "
                f"since a user can pick only among the {users - 1} others"
            )
        everybody = np.arange(users)
        return Graph(tuple(self._picks(seed, user, everybody) for user in range(users)))

    def _picks(self, seed: int, user: int, everybody: npt.NDArray[np.int64]) -> tuple[int, ...]:
        draws = rng.uniforms(seed, "edge", user, everybody)
        draws[user] = np.inf
        # Finding the k-th smallest first spares sorting the row; a stable sort gives ties to the lower user.
        candidates = np.flatnonzero(draws <= np.partition(draws, self.k - 1)[self.k - 1])
        picked = candidates[np.argsort(draws[candidates], kind="stable")[: self.k]]
        return tuple(np.sort(picked).tolist())
