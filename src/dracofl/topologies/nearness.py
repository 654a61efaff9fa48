"""Who is near whom, found with a k-d tree: there is no table of all pairs, so 100,000 users are no trouble.

The tree compares rounded squares of distances. So that no tie and no border case hangs on its rounding,
searches reach a little further than asked and the distances of what they find are compared here.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from dracofl.field import Positions

_REACH = 1.0 + 1e-9


def nearest_users(positions: Positions, users: Sequence[int]) -> list[int]:
    """For each of these users the other user closest to it; of equally close ones, the lowest number."""
    from scipy.spatial import cKDTree

    tree = cKDTree(positions)
    # Of the two closest points one is the user itself, or somebody on the same spot.
    distances = tree.query(positions[list(users)], k=2)[0][:, 1]
    return [
        _closest(positions, user, tree.query_ball_point(positions[user], distance * _REACH))
        for user, distance in zip(users, distances, strict=True)
    ]


def pairs_closer_than(positions: Positions, distance_m: float) -> npt.NDArray[np.int64]:
    """Rows (lower user, higher user) of those strictly closer to each other than this distance."""
    from scipy.spatial import cKDTree

    pairs: npt.NDArray[np.int64]
    pairs = cKDTree(positions).query_pairs(distance_m * _REACH, output_type="ndarray")
    apart = positions[pairs[:, 0]] - positions[pairs[:, 1]]
    return pairs[np.hypot(apart[:, 0], apart[:, 1]) < distance_m]


def _closest(positions: Positions, user: int, candidates: Sequence[int]) -> int:
    others = np.array(sorted(other for other in candidates if other != user))
    apart = positions[others] - positions[user]
    # argmin takes the first of equals, and the candidates are ascending.
    return int(others[np.argmin(np.hypot(apart[:, 0], apart[:, 1]))])
