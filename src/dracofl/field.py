"""Where the users stand: dropped uniformly in a disc, each by its own draw."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from dracofl import rng

Positions = npt.NDArray[np.float64]
"""Shape (users, 2), metres from the centre of the disc."""


def drop_users(seed: int, users: int, radius_m: float) -> Positions:
    """Uniform positions in a disc of this radius. User i stands at the same place however many others there are."""
    points = np.empty((users, 2))
    for user in range(users):
        key = rng.stream(seed, "position", user)
        distance = radius_m * math.sqrt(rng.uniform(key, 0))
        angle = 2.0 * math.pi * rng.uniform(key, 1)
        points[user] = distance * math.cos(angle), distance * math.sin(angle)
    return points
