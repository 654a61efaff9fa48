"""From tape to plan: what may wait, and what is left to be done.

Aggregation is lazy. What is added to a vector is kept as a list of terms until the vector is next read, and then done
in one go, in the order of the tape; a list whose vector is overwritten unread is dropped. Because the terms are added
one at a time and every partial sum is a float32, it makes no difference to any bit when that happens.

It makes a difference to the time. On a dense graph everybody adds the same few vectors, which are soon too many for a
core's cache. So every few trainings all add what is there: each vector comes from far away once then, not once a user.

What is left are nodes, which a dealer deals out to lanes, and, where many vectors wait for a few terms each at the end,
a fold of them all.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from dracofl.compute.dealing import Dealer, HostCompress, Node, Term, Wave
from dracofl.compute.fold import Fold
from dracofl.compute.slots import Slots
from dracofl.tape import Combine, Compress, Copy, Evaluate, Free, Operation, Train

Action: TypeAlias = Wave | Fold | Evaluate

WORTH_ADDING = 8
"""Terms, which are then added in one go. For fewer, the model that they are added to is too far away itself."""

WORTH_FOLDING = 256
"""Short sums. Fewer go along with what is trained: that they would be nodes costs less than a call of the program that
the other lanes wait for."""


class Planner:
    def __init__(
        self,
        users: int,
        *,
        lanes: int,
        switch_cost: float,
        most_terms: int,
        add_every: int,
        worth_folding: int = WORTH_FOLDING,
    ) -> None:
        """`switch_cost` is what a wave on several lanes costs more than one on one lane, in trainings. After
        `add_every` trainings what waits is added; 0 is never. From `worth_folding` short sums on, those that wait at
        the end are folded."""
        self.slots = Slots(users)
        self._users = users
        self._lanes = lanes
        self.switch_cost = switch_cost
        self._most_terms = most_terms
        self._add_every = add_every
        self._worth_folding = worth_folding

    def plan(self, operations: Sequence[Operation]) -> tuple[list[Action], set[int]]:
        """What to do, in order, and the slots that nobody will read after it."""
        actions: list[Action] = []
        part = self._part()
        for order, operation in enumerate(operations):
            if isinstance(operation, Evaluate):
                actions += self._end(part)
                actions.append(operation)
                part = self._part()
            else:
                part.add(operation, order)
        actions += self._end(part)
        return actions, set(self.slots.end_stretch())

    def _part(self) -> _Part:
        return _Part(self.slots, Dealer(self._users, self._lanes), self._most_terms, self._add_every)

    def _end(self, part: _Part) -> list[Action]:
        fold = part.flush(self._worth_folding)
        return [*part.dealer.waves(self.switch_cost), *([] if fold is None else [fold])]


class _Part:
    """The tape between two evaluations."""

    def __init__(self, slots: Slots, dealer: Dealer, most_terms: int, add_every: int) -> None:
        self._slots = slots
        self.dealer = dealer
        self._most_terms = most_terms
        self._add_every = add_every
        self._trainings = 0
        self._new_terms = 0  # since what waits was last looked through
        self._pending: dict[int, list[Term]] = {}  # slot -> what is still to be added to it
        self._awaited: set[int] = set()  # slots that pending terms will read

    def add(self, operation: Operation, order: int) -> None:
        if isinstance(operation, Combine):
            self._add_combine(operation, order)
        elif isinstance(operation, Free):
            self._pending.pop(self._slots.free(operation.vector), None)  # what nobody will read is not added up
        elif isinstance(operation, Train):
            self._add_train(operation, order)
        elif isinstance(operation, Copy):
            self._combine(operation.destination, [(operation.source, 1.0)], order)
        elif isinstance(operation, Compress):
            self._add_compress(operation)

    def flush(self, worth_folding: int) -> Fold | None:
        """Settle all that waits; what is best done in one go after everything else is returned."""
        short = {slot: terms for slot, terms in self._pending.items() if len(terms) < WORTH_ADDING}
        folded = short if len(short) >= worth_folding else {}
        for slot in list(self._pending):
            if slot not in folded:
                self._settle(slot)
        self._pending.clear()
        return Fold.of(folded) if folded else None

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
        self._new_terms += len(others)

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
        self._trainings += 1
        if self._add_every and self._trainings % self._add_every == 0:
            self._add_what_waits(but_to=source)
        if len(self._pending.get(source, ())) >= self._most_terms:
            self._settle(source)
        terms = self._pending.pop(source, None)
        result = self._slots.for_writing(operation.destination)
        self._forget(result)
        node = Node(train=operation, train_order=order, source=source, result=result)
        if terms is not None:
            node.destination, node.terms = source, [(source, 1.0, terms[0][2]), *terms]
        self.dealer.add(node)

    def _add_compress(self, operation: Compress) -> None:
        source = self._slots.of(operation.source)
        self._settle(source)
        destination = self._slots.for_writing(operation.destination)
        self._forget(destination)
        self.dealer.add_compression(HostCompress(operation, source, destination))

    def _add_what_waits(self, but_to: int) -> None:
        if 2 * self._new_terms < WORTH_ADDING * len(self._pending):  # on a sparse graph: little waits for anybody
            return
        self._new_terms = 0
        for slot, terms in list(self._pending.items()):
            if slot != but_to and len(terms) >= WORTH_ADDING:
                self._settle(slot, len(terms) // WORTH_ADDING * WORTH_ADDING)

    def _settle(self, slot: int, count: int | None = None) -> None:
        """Do what is pending on this slot, because it is about to be read; or the first `count` terms of it."""
        terms = self._pending.pop(slot, None)
        if terms is None:
            return
        if count is not None and count < len(terms):
            self._pending[slot] = terms[count:]
            terms = terms[:count]
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
                self.dealer.add(Node(destination=partial, terms=terms[:most]))
                terms = [(partial, 1.0, terms[most][2]), *terms[most:]]
        self.dealer.add(Node(destination=slot, terms=terms))
