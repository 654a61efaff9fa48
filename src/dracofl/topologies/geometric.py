"""Neighbours are those within reach."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dracofl.errors import ConfigError
from dracofl.field import Positions
from dracofl.topologies.connectivity import join_isolated
from dracofl.topologies.links import from_pairs
from dracofl.topologies.nearness import pairs_closer_than
from dracofl.types import Graph


@dataclass(frozen=True, slots=True)
class Geometric:
    """Users closer than range_m metres exchange; one with nobody in range is joined to its nearest."""

    range_m: float

    def __post_init__(self) -> None:
        if not self.range_m > 0.0:
            raise ConfigError(f"topology.range_m = {self.range_m}: must be greater than 0 metres")

    def build(self, users: int, seed: int, positions: Positions) -> Graph:
        pairs = pairs_closer_than(positions, self.range_m)
        return join_isolated(from_pairs(users, np.concatenate([pairs, pairs[:, ::-1]])), positions)
