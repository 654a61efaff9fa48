"""The plain shapes that cross room borders: the graph of who sends to whom, and the fates of a message."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

named = tuple.__new__
"""`named(Free, (vector,))` is `Free(vector)` in half the time. For what is made at every event, and for that alone:
nobody checks the number of fields."""


@dataclass(frozen=True, slots=True)
class Graph:
    """Who sends to whom: `successors[i]` are user i's out-neighbours, in ascending order and without i."""

    successors: tuple[tuple[int, ...], ...]

    @property
    def users(self) -> int:
        return len(self.successors)

    def predecessors(self) -> tuple[tuple[int, ...], ...]:
        """For each user, who sends to it."""
        found: list[list[int]] = [[] for _ in self.successors]
        for sender, receivers in enumerate(self.successors):
            for receiver in receivers:
                found[receiver].append(sender)
        return tuple(tuple(senders) for senders in found)


class Fate(StrEnum):
    """How a message sent to one out-neighbour ended. Exactly one of these, always (law 1)."""

    APPLIED = "applied"
    OVER_BUDGET = "over_budget"
    LATE = "late"
    LOST = "lost"
    PENDING = "pending"
