"""Blocks: what one lane does in one call of the compiled program, as arrays of a fixed shape.

A lane works in a workspace of its own with a row for every vector that a block touches. The program first fetches rows
from the store, then runs through groups: some combinations, and then one training (or, where a device runs many at
once, up to `width` independent ones). Afterwards the rows that somebody will read are put back into the store.

Integers travel in one array and are cut apart inside the program: one argument is cheaper to pass than ten.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from dracofl.compute.dealing import HostCompress, Node, Wave
from dracofl.compute.plan import Action
from dracofl.tape import Evaluate


@dataclass(frozen=True, slots=True)
class Shape:
    """How much fits in one block. There is one compiled program for each shape, and a run has one shape."""

    rows: int  # of the workspace; one more is where trainings that fill up a group leave their results
    groups: int
    width: int  # trainings in a group
    combines: int
    terms: int

    @classmethod
    def for_model(cls, parameters: int, width: int) -> Shape:
        """A workspace of some 64 MB, and not more rows than a block has use for."""
        groups = 200 if width == 1 else 72  # all of a stretch on a complete graph, if the model is small
        rows = max(32, min(4 * groups * width, (64 << 20) // (4 * parameters)))
        return cls(rows=rows, groups=groups, width=width, combines=2 * rows, terms=8 * rows)

    @property
    def most_terms(self) -> int:
        """Of one combination; with the training that may follow it, it fits in an empty block."""
        return self.rows - 4

    def sections(self) -> dict[str, slice]:
        """Where in the array of integers is what."""
        lengths = {
            "counts": 2,  # fetched rows, groups
            "fetch_from": self.rows,
            "fetch_to": self.rows,
            "group_combines": self.groups + 1,  # group g has the combinations from entry g to entry g + 1
            "combine_to": self.combines,
            "combine_terms": self.combines + 1,  # likewise
            "term_rows": self.terms,
            "trains": self.groups,  # 1 if the group trains at all
            "train_from": self.groups * self.width,
            "train_to": self.groups * self.width,
        }
        sections, start = {}, 0
        for name, length in lengths.items():
            sections[name] = slice(start, start + length)
            start += length
        return sections


@dataclass(slots=True)
class Block:
    """Arrays for the program, where its results belong, and the nodes it was made of."""

    code: np.ndarray
    weights: np.ndarray
    batches: np.ndarray
    written: dict[int, int]  # slot -> row
    fetched: list[int]  # slots, in the order of the rows fetched
    trainings: int
    nodes: list[Node]
    put_back: list[int] = field(default_factory=list)  # of the written slots, those that will be read later

    def keep(self, slots: list[int]) -> None:
        """Say which of the written slots will be read later: they come first among the written."""
        kept = set(slots)
        others = [slot for slot in self.written if slot not in kept]
        self.put_back = slots
        self.written = {slot: self.written[slot] for slot in [*slots, *others]}


@dataclass(frozen=True, slots=True)
class BlockWave:
    """A wave whose lanes have blocks to play, one after the other."""

    lanes: list[list[Block]]
    compressions: list[HostCompress]


BatchOf = Callable[[int, int], np.ndarray]


class Assembler:
    def __init__(self, shape: Shape, batch_of: BatchOf, shared_store: bool = True) -> None:
        """From a store that is not shared a block fetches copies of rows, in the order of `Block.fetched`."""
        self._shape = shape
        self._shared_store = shared_store
        self._batch_of = batch_of
        self._batch_shape = batch_of(0, 0).shape
        self._sections = shape.sections()
        self._length = max(section.stop for section in self._sections.values())

    def assemble(self, actions: Sequence[Action], freed: set[int]) -> list[BlockWave | Evaluate]:
        """A whole plan, as `Planner.plan` makes it. What is to be put back is known from the end: a vector that is
        born and dies in a block need not leave it."""
        played = [
            BlockWave([self.blocks(nodes) for nodes in action.lanes], action.compressions)
            if isinstance(action, Wave)
            else action
            for action in actions
        ]
        unread = set(freed)
        for wave in reversed([action for action in played if isinstance(action, BlockWave)]):
            unread.difference_update(compression.source for compression in wave.compressions)
            for lane in wave.lanes:
                for block in reversed(lane):
                    block.keep([slot for slot in block.written if slot not in unread])
                    unread.difference_update(block.fetched)
        return played

    def blocks(self, nodes: Sequence[Node]) -> list[Block]:
        """One lane's nodes in as few blocks as they fit in, to be played in order."""
        blocks: list[Block] = []
        draft = _Draft(self._shape)
        for node in nodes:
            if not draft.fits(node):
                blocks.append(self._finish(draft))
                draft = _Draft(self._shape)
            draft.add(node)
        if draft.nodes:
            blocks.append(self._finish(draft))
        return blocks

    def _finish(self, draft: _Draft) -> Block:
        draft.close_group()
        shape = self._shape
        code = np.zeros(self._length, dtype=np.int32)
        batches = np.empty((shape.groups, shape.width, *self._batch_shape), dtype=np.int32)  # the unused stay unread
        train_from: list[int] = []
        train_to: list[int] = []
        for group, trains in enumerate(draft.trains):
            for place in range(shape.width):
                node = trains[place] if place < len(trains) else None
                train_from.append(draft.rows[node.source] if node else 0)
                train_to.append(draft.rows[node.result] if node else shape.rows)
                if node is not None and node.train is not None:
                    batches[group, place] = self._batch_of(node.train.user, node.train.number)
                elif trains:
                    batches[group, place] = 0
        for name, values in {
            "counts": [len(draft.fetched), len(draft.trains)],
            "fetch_from": draft.fetched if self._shared_store else range(len(draft.fetched)),
            "fetch_to": [draft.rows[slot] for slot in draft.fetched],
            "group_combines": draft.group_combines,
            "combine_to": draft.combine_to,
            "combine_terms": draft.combine_terms,
            "term_rows": draft.term_rows,
            "trains": [1 if trains else 0 for trains in draft.trains],
            "train_from": train_from,
            "train_to": train_to,
        }.items():
            start = self._sections[name].start
            code[start : start + len(values)] = values
        weights = np.full(shape.terms + 1, -0.0, dtype=np.float32)  # the last is for the program: see there
        weights[: len(draft.weights)] = draft.weights
        written = {slot: draft.rows[slot] for slot in draft.written}
        trainings = sum(len(trains) for trains in draft.trains)
        return Block(code, weights, batches, written, draft.fetched, trainings, draft.nodes)


class _Draft:
    """A block being filled."""

    def __init__(self, shape: Shape) -> None:
        self._shape = shape
        self.nodes: list[Node] = []
        self.rows: dict[int, int] = {}  # slot -> row
        self.fetched: list[int] = []
        self.written: dict[int, None] = {}  # an ordered set
        self.group_combines = [0]
        self.combine_to: list[int] = []
        self.combine_terms = [0]
        self.term_rows: list[int] = []
        self.weights: list[float] = []
        self.trains: list[list[Node]] = []  # a list for each group
        self._group: list[Node] = []
        self._group_open = False

    def fits(self, node: Node) -> bool:
        shape = self._shape
        return (
            len(self.rows) + len(node.terms) + 3 <= shape.rows
            and len(self.trains) + self._group_open + 1 <= shape.groups
            and len(self.combine_to) + 1 <= shape.combines
            and len(self.term_rows) + len(node.terms) <= shape.terms
        )

    def add(self, node: Node) -> None:
        # Trainings of a group run at once, after its combinations: they must not depend on one another.
        if self._group and (len(self._group) == self._shape.width or self._group[0].wave != node.wave):
            self.close_group()
        self.nodes.append(node)
        self._group_open = True
        if node.terms:
            for slot, weight, _ in node.terms:
                self.term_rows.append(self._row_to_read(slot))
                self.weights.append(weight)
            self.combine_terms.append(len(self.term_rows))
            self.combine_to.append(self._row_to_write(node.destination))
        if node.train is not None:
            self._row_to_read(node.source)
            self._row_to_write(node.result)
            self._group.append(node)

    def close_group(self) -> None:
        if self._group_open:
            self.group_combines.append(len(self.combine_to))
            self.trains.append(self._group)
            self._group, self._group_open = [], False

    def _row_to_read(self, slot: int) -> int:
        row = self.rows.get(slot)
        if row is None:
            row = self.rows[slot] = len(self.rows)
            self.fetched.append(slot)
        return row

    def _row_to_write(self, slot: int) -> int:
        row = self.rows.get(slot)
        if row is None:
            row = self.rows[slot] = len(self.rows)
        self.written[slot] = None
        return row
