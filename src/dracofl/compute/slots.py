"""Which row of the executor's store a vector of the tape is in.

A slot freed in a stretch is used again in the next one at the earliest, so that inside a stretch a slot is one vector
and the only dependencies are those of the tape.
"""

from __future__ import annotations

import heapq


class Slots:
    """Where vectors are. Users' models have the slots of their numbers; the others the lowest that are free."""

    def __init__(self, users: int) -> None:
        self._users = users
        self.by_name: dict[int, int] = {}
        self._free: list[int] = []
        self._freed: list[int] = []
        self.used = users  # no slot beyond this was ever given out

    def of(self, name: int) -> int:
        return name if name < self._users else self.by_name[name]

    def for_writing(self, name: int) -> int:
        if name < self._users:
            return name
        slot = self.by_name.get(name)
        if slot is None:
            slot = self.by_name[name] = self._new()
        return slot

    def scratch(self) -> int:
        """A slot without a name, for the rest of this stretch."""
        slot = self._new()
        self._freed.append(slot)
        return slot

    def free(self, name: int) -> int:
        """Returns the slot that it was in."""
        slot = self.by_name.pop(name)
        self._freed.append(slot)
        return slot

    def end_stretch(self) -> list[int]:
        """Freed slots may be used again from now on; returns those freed since the last time."""
        freed, self._freed = self._freed, []
        for slot in freed:
            heapq.heappush(self._free, slot)
        return freed

    def _new(self) -> int:
        if self._free:
            return heapq.heappop(self._free)
        self.used += 1
        return self.used - 1
