"""From links, however found, to a graph: successors ascending, unique, and never the user itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from dracofl.types import Graph

if TYPE_CHECKING:
    import networkx


def from_pairs(users: int, pairs: npt.NDArray[np.integer]) -> Graph:
    """The graph of these (sender, receiver) rows. A repeated row counts once, a link to oneself never."""
    senders, receivers = pairs[:, 0].astype(np.int64), pairs[:, 1].astype(np.int64)
    apart = senders != receivers
    # One integer a link: sorting them orders by sender, then receiver, and unique drops the repeated.
    codes = np.unique(senders[apart] * users + receivers[apart])
    ends = np.searchsorted(codes, np.arange(1, users + 1) * users).tolist()
    # One integer object a user and not one a link: at a million users the difference is felt.
    ordered = list(map(list(range(users)).__getitem__, (codes % users).tolist()))
    starts = [0, *ends[:-1]]
    return Graph(tuple(tuple(ordered[start:end]) for start, end in zip(starts, ends, strict=True)))


def from_networkx(graph: networkx.Graph) -> Graph:
    """The same graph; node i is user i. An undirected edge is a link each way."""
    return Graph(
        tuple(
            tuple(sorted(other for other in graph.adj[user] if other != user))
            for user in range(graph.number_of_nodes())
        )
    )
