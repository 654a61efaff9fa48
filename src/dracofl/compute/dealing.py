"""Nodes, and how they are dealt out to lanes.

A node is a combination of vectors, a training, or first the one and then the other. Lanes play nodes side by side, in
waves: within a wave a lane sees nothing of what the others do, and after it everything. So a node can be in the last
wave of those that it waits for only if they are on one lane there; otherwise it has to be in a later wave. Keeping
chains together makes waves few and long: on a ring each lane has an arc of it, and somebody waits only where arcs meet.

A wave that is too narrow to be worth several lanes goes to one, in one piece with its like before and after it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from dracofl.tape import Compress, Train

NONE = -1
_SEVERAL = -2  # lanes
_SLACK = 6
"""How many trainings a lane may be ahead of another. With more slack waves are fewer, with less they are more even; of
3, 6, 9, 13 and 20 this was the best or near it on rings of 25 and 200, a complete, a k-out and a geometric graph."""

_SLOWER_TOGETHER = 1.3
"""Lanes share memory and caches, and the control plane needs a core too: a training takes longer beside another than
alone. Seen: 1.05 to 1.5 times."""

Term: TypeAlias = tuple[int, float, int]
"""Slot, weight, and the index in the stretch of the operation that asked for it."""

_Place: TypeAlias = tuple[int, int]
"""Wave and lane."""


@dataclass(slots=True)
class Node:
    """slots[destination] <- sum of terms, if any; then slots[result] <- update trained from slots[source], if any."""

    wave: int = 0  # as dealt; narrow ones are put together later. With one lane nodes of one wave are independent
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


class _Hand:
    """A wave that is being dealt out."""

    def __init__(self, lanes: int) -> None:
        self.lanes: list[list[Node]] = [[] for _ in range(lanes)]
        self.trainings = [0] * lanes
        self.compressions: list[HostCompress] = []


class Dealer:
    """Takes nodes in the order of the tape."""

    def __init__(self, users: int, lanes: int) -> None:
        self._users, self._lanes = users, lanes
        self._hands: list[_Hand] = []
        self._written: dict[int, _Place] = {}  # slot -> where it was written last
        self._read: dict[int, _Place] = {}  # slot -> where it was read last, on one lane or on several

    def add(self, node: Node) -> None:
        reads = [term[0] for term in node.terms]
        writes = []
        if node.terms:
            writes.append(node.destination)
        if node.train is not None:
            reads.append(node.source)
            writes.append(node.result)
        wave, lane = self._place(node, *self._after(reads, writes))
        node.wave = wave
        hand = self._hands[wave]
        hand.lanes[lane].append(node)
        hand.trainings[lane] += node.train is not None
        self._note(reads, writes, (wave, lane))

    def add_compression(self, compression: HostCompress) -> None:
        """Alone, as it is done between waves."""
        reads, writes = [compression.source], [compression.destination]
        wave = self._after(reads, writes)[0] + 1
        self._hand(wave).compressions.append(compression)
        self._note(reads, writes, (wave, _SEVERAL))

    def waves(self, switch_cost: float) -> list[Wave]:
        """`switch_cost` is what a wave on several lanes costs more than one on one lane, in trainings."""
        waves: list[Wave] = []
        chain: list[Node] = []
        for hand in self._hands:
            busy = [lane for lane in hand.lanes if lane]
            saved = sum(hand.trainings) - _SLOWER_TOGETHER * max(hand.trainings)
            if saved <= switch_cost:
                busy = [[node for lane in busy for node in lane]]
            if len(busy) == 1 and not hand.compressions:
                chain += busy[0]
                continue
            if chain:
                waves.append(Wave([chain], []))
                chain = []
            waves.append(Wave(busy, hand.compressions))
        if chain:
            waves.append(Wave([chain], []))
        return waves

    def _after(self, reads: list[int], writes: list[int]) -> _Place:
        """The last wave with something that has to come first, and the lane that it is on; or several."""
        written, read = self._written, self._read
        places = [written[slot] for slot in reads if slot in written]
        for slot in writes:
            if slot in written:
                places.append(written[slot])
            if slot in read:
                places.append(read[slot])
        if not places:
            return (NONE, NONE)
        wave = max(places)[0]
        lanes = {place[1] for place in places if place[0] == wave}
        return (wave, lanes.pop() if len(lanes) == 1 else _SEVERAL)

    def _place(self, node: Node, wave: int, lane: int) -> _Place:
        if self._lanes == 1:
            # Nothing is gained by long waves, and a device that trains many at once is shown what is independent.
            wave, lane = wave + 1, 0
        elif wave == NONE:
            wave, lane = 0, self._home(node)
            if not self._has_room(wave, lane):
                lane = self._least_busy(wave)
        elif lane == _SEVERAL or not (node.train is None or self._has_room(wave, lane)):
            wave += 1
            lane = self._least_busy(wave)
        self._hand(wave)
        return (wave, lane)

    def _home(self, node: Node) -> int:
        """Users whose numbers are near are neighbours in many graphs, and stay on one lane."""
        model = node.destination if node.train is None else node.source
        return model * self._lanes // self._users if model < self._users else self._least_busy(0)

    def _has_room(self, wave: int, lane: int) -> bool:
        trainings = self._hand(wave).trainings
        return trainings[lane] < min(trainings) + _SLACK

    def _least_busy(self, wave: int) -> int:
        trainings = self._hand(wave).trainings
        return trainings.index(min(trainings))

    def _note(self, reads: list[int], writes: list[int], place: _Place) -> None:
        wave, lane = place
        read = self._read
        for slot in reads:
            before = read.get(slot)
            if before is None or before[0] < wave:
                read[slot] = place
            elif before[0] == wave and before[1] != lane:
                read[slot] = (wave, _SEVERAL)
        for slot in writes:
            self._written[slot] = place

    def _hand(self, wave: int) -> _Hand:
        while len(self._hands) <= wave:
            self._hands.append(_Hand(self._lanes))
        return self._hands[wave]
