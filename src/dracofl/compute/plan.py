"""From tape to plan: what may wait, what depends on what, and what can be done side by side.

Aggregation is lazy. What is added to a vector is kept as a list of terms until the vector is next read, and then done
in one go, in the order of the tape; a list whose vector is overwritten unread is dropped. Because the terms are added
one at a time and every partial sum is a float32, it makes no difference to any bit when that happens.

What is left are nodes: a combination of vectors, a training, or first the one and then the other. A node's level is one
more than that of the nodes it has to wait for, so the nodes of a level depend on none another. Levels with work for
several lanes are split among them; runs of narrow levels are a chain, and go to one lane in one piece.

Vectors have slots in the store of the executor. A slot freed in a stretch is used again in the next one at the
earliest, so that inside a stretch a slot is one vector and the only dependencies are those of the tape.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from dracofl.tape import Combine, Compress, Copy, Evaluate, Free, Operation, Train

NONE = -1
_SLOWER_TOGETHER = 1.5
"""Lanes share memory and caches: a training takes longer beside another than alone. Seen: 1.1 to 1.5 times."""


Term: TypeAlias = tuple[int, float, int]
"""Slot, weight, and the index in the stretch of the operation that asked for it."""


@dataclass(slots=True)
class Node:
    """slots[destination] <- sum of terms, if any; then slots[result] <- update trained from slots[source], if any."""

    level: int = 0
    destination: int = NONE
    terms: list[Term] = field(default_factory=list)
    train: Train | None = None
    train_order: int = NONE
    source: int = NONE
    result: int = NONE

    @property
    def last_order(self) -> int:
        return self.terms[-1][2] if self.train is None else self.train_order


class HostCompress(NamedTuple):
    operation: Compress
    source: int
    destination: int


@dataclass(frozen=True, slots=True)
class Wave:
    """Work of each lane, independent of the other lanes'; then, in any order, the compressions."""

    lanes: list[list[Node]]
    compressions: list[HostCompress]


Action: TypeAlias = Wave | Evaluate


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

    def free(self, name: int) -> None:
        self._freed.append(self.by_name.pop(name))

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


class Planner:
    def __init__(self, users: int, *, lanes: int, switch_cost: float, most_terms: int) -> None:
        """`switch_cost` is what a wave on several lanes costs more than one on one lane, in trainings."""
        self.slots = Slots(users)
        self._lanes = lanes
        self.switch_cost = switch_cost
        self._most_terms = most_terms

    def plan(self, operations: Sequence[Operation]) -> tuple[list[Action], set[int]]:
        """What to do, in order, and the slots that nobody will read after it."""
        actions: list[Action] = []
        part = _Part(self.slots, self._most_terms)
        for order, operation in enumerate(operations):
            if isinstance(operation, Evaluate):
                actions += self._waves(part)
                actions.append(operation)
                part = _Part(self.slots, self._most_terms)
            else:
                part.add(operation, order)
        actions += self._waves(part)
        return actions, set(self.slots.end_stretch())

    def _waves(self, part: _Part) -> list[Wave]:
        part.flush()
        waves: list[Wave] = []
        chain: list[Node] = []
        for level, nodes in sorted(part.levels.items()):
            compressions = part.compressions.get(level, [])
            lanes = self._split(nodes)
            if len(lanes) == 1 and not compressions:
                chain += nodes
                continue
            if chain:
                waves.append(Wave([chain], []))
                chain = []
            waves.append(Wave(lanes, compressions))
        if chain:
            waves.append(Wave([chain], []))
        return waves

    def _split(self, nodes: list[Node]) -> list[list[Node]]:
        """By trainings, as evenly as can be; or not at all, where that would not pay."""
        trainings = sum(node.train is not None for node in nodes)
        lanes = min(self._lanes, trainings)
        if lanes < 2:
            return [nodes]
        longest = -(-trainings // lanes)
        if trainings - _SLOWER_TOGETHER * longest <= self.switch_cost:
            return [nodes]
        ordered = sorted(nodes, key=lambda node: node.train is None)
        return [ordered[lane::lanes] for lane in range(lanes)]


class _Part:
    """The tape between two evaluations, as nodes by level."""

    def __init__(self, slots: Slots, most_terms: int) -> None:
        self._slots = slots
        self._most_terms = most_terms
        self.levels: dict[int, list[Node]] = {}
        self.compressions: dict[int, list[HostCompress]] = {}
        self._pending: dict[int, list[Term]] = {}  # slot -> what is still to be added to it
        self._awaited: set[int] = set()  # slots that pending terms will read
        self._written: dict[int, int] = {}  # slot -> level of its last write
        self._read: dict[int, int] = {}  # slot -> highest level at which it is read

    def add(self, operation: Operation, order: int) -> None:
        if isinstance(operation, Combine):
            self._add_combine(operation, order)
        elif isinstance(operation, Free):
            self._slots.free(operation.vector)
        elif isinstance(operation, Train):
            self._add_train(operation, order)
        elif isinstance(operation, Copy):
            self._combine(operation.destination, [(operation.source, 1.0)], order)
        elif isinstance(operation, Compress):
            self._add_compress(operation)

    def flush(self) -> None:
        for slot in list(self._pending):
            self._settle(slot)

    def _add_combine(self, operation: Combine, order: int) -> None:
        destination, terms = operation.destination, operation.terms
        first, weight = terms[0]
        others = terms[1:]
        if first != destination or weight != 1.0 or destination in dict(others):
            self._combine(destination, terms, order)
            return
        if not others:  # a vector as it is
            return
        slots, slot = self._slots, self._slots.of(destination)
        if slot in self._awaited:
            self._settle_readers(slot)
        pending = self._pending
        waiting = pending.get(slot)
        if waiting is None:
            waiting = []
        for name, weight in others:
            source = slots.of(name)
            if source in pending:
                self._settle(source)
            waiting.append((source, weight, order))
            self._awaited.add(source)
        pending[slot] = waiting

    def _combine(self, destination: int, terms: Sequence[tuple[int, float]], order: int) -> None:
        """Any combination, done at once."""
        sources = [self._slots.of(name) for name, _ in terms]
        for source in sources:
            self._settle(source)
        slot = self._slots.for_writing(destination)
        self._forget(slot)
        self._emit(slot, [(source, weight, order) for source, (_, weight) in zip(sources, terms, strict=True)])

    def _add_train(self, operation: Train, order: int) -> None:
        source = self._slots.of(operation.source)
        if len(self._pending.get(source, ())) >= self._most_terms:
            self._settle(source)
        terms = self._pending.pop(source, None)
        result = self._slots.for_writing(operation.destination)
        self._forget(result)
        node = Node(train=operation, train_order=order, source=source, result=result)
        if terms is not None:
            node.destination, node.terms = source, [(source, 1.0, terms[0][2]), *terms]
        self._place(node)

    def _add_compress(self, operation: Compress) -> None:
        source = self._slots.of(operation.source)
        self._settle(source)
        destination = self._slots.for_writing(operation.destination)
        self._forget(destination)
        level = self._level([source], [destination])
        self._note(level, [source], [destination])
        self.levels.setdefault(level, [])
        self.compressions.setdefault(level, []).append(HostCompress(operation, source, destination))

    def _settle(self, slot: int) -> None:
        """Do what is pending on this slot, because it is about to be read."""
        terms = self._pending.pop(slot, None)
        if terms is not None:
            self._emit(slot, [(slot, 1.0, terms[0][2]), *terms])

    def _forget(self, slot: int) -> None:
        """The slot is about to be overwritten: what is pending on it is dead, what will read it has to do so now."""
        self._pending.pop(slot, None)
        if slot in self._awaited:
            self._settle_readers(slot)

    def _settle_readers(self, slot: int) -> None:
        for reader in [reader for reader, terms in self._pending.items() if any(term[0] == slot for term in terms)]:
            self._settle(reader)
        self._awaited.discard(slot)

    def _emit(self, slot: int, terms: list[Term]) -> None:
        """A sum too long for one node is built up in a slot of its own: all sources are read before the write."""
        most = self._most_terms
        if len(terms) > most:
            partial = self._slots.scratch()
            while len(terms) > most:
                self._place(Node(destination=partial, terms=terms[:most]))
                terms = [(partial, 1.0, terms[most][2]), *terms[most:]]
        self._place(Node(destination=slot, terms=terms))

    def _place(self, node: Node) -> None:
        reads = [term[0] for term in node.terms]
        writes = []
        if node.terms:
            writes.append(node.destination)
        if node.train is not None:
            reads.append(node.source)
            writes.append(node.result)
        node.level = self._level(reads, writes)
        self._note(node.level, reads, writes)
        self.levels.setdefault(node.level, []).append(node)

    def _level(self, reads: list[int], writes: list[int]) -> int:
        written, read = self._written, self._read
        after = 0
        for slot in reads:
            level = written.get(slot, 0)
            if level > after:
                after = level
        for slot in writes:
            after = max(after, written.get(slot, 0), read.get(slot, 0))
        return after + 1

    def _note(self, level: int, reads: list[int], writes: list[int]) -> None:
        read = self._read
        for slot in reads:
            if read.get(slot, 0) < level:
                read[slot] = level
        for slot in writes:
            self._written[slot] = level
