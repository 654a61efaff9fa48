"""Nobody is left out: every user needs somebody to send to and somebody to hear.

A random generator joins an isolated user to its nearest. A file with one is refused: whoever wrote it chose
the links, and we would be guessing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dracofl.errors import ConfigError
from dracofl.field import Positions
from dracofl.topologies.nearness import nearest_users
from dracofl.types import Graph

_LISTED = 5


@dataclass(frozen=True, slots=True)
class Isolated:
    """The users that are cut off one way or the other, ascending; one cut off both ways is in both."""

    without_receivers: tuple[int, ...]
    without_senders: tuple[int, ...]

    def __bool__(self) -> bool:
        return bool(self.without_receivers or self.without_senders)


def isolated(graph: Graph) -> Isolated:
    """Who has nobody to send to, and who hears nobody."""
    heard = {receiver for receivers in graph.successors for receiver in receivers}
    return Isolated(
        without_receivers=tuple(user for user, receivers in enumerate(graph.successors) if not receivers),
        without_senders=tuple(user for user in range(graph.users) if user not in heard),
    )


def join_isolated(graph: Graph, positions: Positions) -> Graph:
    """Link a user without receivers to its nearest user, and a user without senders from its nearest.

    Who is isolated is decided once, before any link is added, so the order of users does not matter. Where
    all links go both ways an isolated user is cut off both ways, so the links added for it go both ways too.
    """
    cut_off = isolated(graph)
    if not cut_off or graph.users < 2:
        return graph
    lonely = sorted({*cut_off.without_receivers, *cut_off.without_senders})
    nearest = dict(zip(lonely, nearest_users(positions, lonely), strict=True))
    added: dict[int, set[int]] = defaultdict(set)
    for user in cut_off.without_receivers:
        added[user].add(nearest[user])
    for user in cut_off.without_senders:
        added[nearest[user]].add(user)
    successors = list(graph.successors)
    for sender, receivers in added.items():
        successors[sender] = tuple(sorted(receivers.union(successors[sender])))
    return Graph(tuple(successors))


def refuse_isolated(graph: Graph, source: str) -> None:
    """Raise a ConfigError that lists the isolated users; `source` says where the graph came from."""
    cut_off = isolated(graph)
    problems = []
    if cut_off.without_receivers:
        problems.append(
            f"{source}: {_listed(cut_off.without_receivers)} nobody to send to; "
            f"every user from 0 to {graph.users - 1} must be the sender of a link to another user"
        )
    if cut_off.without_senders:
        problems.append(
            f"{source}: {_listed(cut_off.without_senders)} nobody to hear; "
            f"every user from 0 to {graph.users - 1} must be the receiver of a link from another user"
        )
    if problems:
        raise ConfigError(problems)


def is_strongly_connected(graph: Graph) -> bool:
    """Whether what any user learns can travel to every other along the links."""
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import connected_components

    ends = np.cumsum([0, *map(len, graph.successors)])
    receivers = np.fromiter((other for row in graph.successors for other in row), np.int64, int(ends[-1]))
    links = csr_array((np.ones(len(receivers), np.int8), receivers, ends), shape=(graph.users, graph.users))
    components: int = connected_components(links, directed=True, connection="strong", return_labels=False)
    return components == 1


def _listed(users: Sequence[int]) -> str:
    shown = ", ".join(map(str, users[:_LISTED]))
    more = f" and {len(users) - _LISTED} more" if len(users) > _LISTED else ""
    return f"user {shown} has" if len(users) == 1 else f"users {shown}{more} have"
