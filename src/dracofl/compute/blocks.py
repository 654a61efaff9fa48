"""Blocks: what one lane does in one call of the compiled program, as arrays of a fixed shape.

A lane works in a workspace of its own with a row for every vector that a block touches. The program first fetches rows
from the store, then runs through groups: some combinations, and then one training (or, where a device runs many at
once, up to `width` independent ones). Afterwards the rows that somebody will read are put back into the store: they
are the first of the workspace. All others are used again as soon as their vector was read for the last time, so that a
lane's work stays in as little memory, and as near to its core, as it can.

Integers travel in one array and are cut apart inside the program: one argument is cheaper to pass than ten.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dracofl.compute.dealing import HostCompress, Node, Wave
from dracofl.compute.fold import Fold
from dracofl.compute.plan import Action
from dracofl.tape import Evaluate

_ALIGNMENT = 64  # bytes


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
            "counts": 3,  # fetched rows, groups, rows to be put back
            "fetch_from": self.rows,
            "fetch_to": self.rows,
            "group_combines": self.groups + 1,  # group g has the combinations from entry g to entry g + 1
            "combine_to": self.combines,
            "combine_terms": self.combines + 1,  # likewise
            "term_rows": self.terms,
            "trains": self.groups,  # how many in a group
            "train_from": self.groups * self.width,
            "train_to": self.groups * self.width,
        }
        sections, start = {}, 0
        for name, length in lengths.items():
            sections[name] = slice(start, start + length)
            start += length
        return sections


@dataclass(frozen=True, slots=True)
class Block:
    """Arrays for the program, and what they were made of."""

    code: np.ndarray
    weights: np.ndarray
    batches: np.ndarray
    fetched: list[int]  # slots, in the order of "fetch_from"
    put_back: list[int]  # slots whose vectors may be read later: rows 0, 1, ... of the workspace
    trainings: int
    nodes: Callable[[], list[Node]]  # what it does, to look for the maker of a value that is not finite


@dataclass(frozen=True, slots=True)
class BlockWave:
    """A wave whose lanes have blocks to play, one after the other."""

    lanes: list[list[Block]]
    compressions: list[HostCompress]


BatchOf = Callable[[int, int], np.ndarray]


class Assembler:
    def __init__(self, shape: Shape, batch_of: BatchOf, shared_store: bool = True, lanes: int = 1) -> None:
        """From a store that is not shared a block fetches copies of rows, in the order of `Block.fetched`."""
        self._shape = shape
        self._shared_store = shared_store
        self._lanes = lanes
        self._batch_of = batch_of
        self._batch_shape = batch_of(0, 0).shape
        self._sections = shape.sections()
        self._length = max(section.stop for section in self._sections.values())
        self._no_batches = _empty((shape.groups, shape.width, *self._batch_shape), np.int32)

    def assemble(self, actions: Sequence[Action], freed: set[int]) -> list[BlockWave | Evaluate]:
        """A whole plan, as `Planner.plan` makes it. What is to be put back is known from the end: a vector that is
        born and dies in a block need not leave it."""
        drafts = [
            [self._drafts(nodes) for nodes in action.lanes] if isinstance(action, Wave) else [] for action in actions
        ]
        unread = set(freed)
        for action, lanes in zip(reversed(actions), reversed(drafts), strict=True):
            if isinstance(action, Fold):
                unread.difference_update(action.destinations.tolist(), action.sources.tolist())
            elif isinstance(action, Wave):
                unread.difference_update(compression.source for compression in action.compressions)
                for lane in lanes:
                    for draft in reversed(lane):
                        draft.put_back = [slot for slot in draft.written if slot not in unread]
                        unread.difference_update(draft.fetched)
        return [self._assembled(action, lanes) for action, lanes in zip(actions, drafts, strict=True)]

    def alone(self, nodes: Sequence[Node]) -> Block:
        """A block of a few nodes of which nothing is put back."""
        (draft,) = self._drafts(nodes)
        return self._block(draft)

    def _assembled(self, action: Action, drafts: list[list[_Draft]]) -> BlockWave | Evaluate:
        if isinstance(action, Wave):
            return BlockWave([[self._block(draft) for draft in lane] for lane in drafts], action.compressions)
        if isinstance(action, Fold):
            shape = self._shape
            pieces = action.pieces(most_slots=shape.rows, most_sums=shape.combines, most_terms=shape.terms)
            blocks = [self._fold(piece) for piece in pieces]
            lanes = min(self._lanes, max(1, len(blocks) // 2))  # not for a single block each
            return BlockWave([blocks[lane::lanes] for lane in range(lanes)], [])
        return action

    def _drafts(self, nodes: Sequence[Node]) -> list[_Draft]:
        """One lane's nodes in as few blocks as they fit in, to be played in order."""
        drafts: list[_Draft] = []
        draft = _Draft(self._shape)
        for node in nodes:
            if not draft.fits(node):
                drafts.append(draft)
                draft = _Draft(self._shape)
            draft.add(node)
        if draft.nodes:
            drafts.append(draft)
        return drafts

    def _block(self, draft: _Draft) -> Block:
        shape, rows = self._shape, _Rows(draft, self._shape.rows)
        batches = _empty((shape.groups, shape.width, *self._batch_shape), np.int32)  # the unused stay unread
        parts: dict[str, list[int]] = {name: [] for name in self._sections}
        parts["counts"] = [len(draft.fetched), len(draft.groups), len(draft.put_back)]
        parts["fetch_from"] = draft.fetched if self._shared_store else list(range(len(draft.fetched)))
        parts["fetch_to"] = rows.fetched
        parts["group_combines"], parts["combine_terms"] = [0], [0]
        combine_to, term_rows, weights = parts["combine_to"], parts["term_rows"], list[float]()
        train_from, train_to = parts["train_from"], parts["train_to"]
        for group, nodes in enumerate(draft.groups):
            trainings = 0
            for node in nodes:
                if node.terms:
                    for slot, weight, _ in node.terms:
                        term_rows.append(rows.of[slot])
                        weights.append(weight)
                    parts["combine_terms"].append(len(term_rows))
                    combine_to.append(rows.for_writing(node.destination))
                if node.train is not None:
                    train_from.append(rows.of[node.source])
                    train_to.append(rows.for_writing(node.result))
                    batches[group, trainings] = self._batch_of(node.train.user, node.train.number)
                    trainings += 1
            # The others of a group that trains run along and leave their results where nobody reads them.
            for place in range(trainings, shape.width):
                train_from.append(0)
                train_to.append(shape.rows)
                if trainings:
                    batches[group, place] = 0
            parts["trains"].append(trainings)
            parts["group_combines"].append(len(combine_to))
            rows.end_group(group)
        code, all_weights = self._code(parts), self._weights(weights)
        nodes = draft.nodes
        return Block(code, all_weights, batches, draft.fetched, draft.put_back, draft.trainings, lambda: nodes)

    def _fold(self, fold: Fold) -> Block:
        """A block of sums alone, all in its first group. Its first rows are those that are added to."""
        sums = len(fold.counts)
        sources, places = np.unique(fold.sources, return_inverse=True)
        fetched = [*fold.destinations.tolist(), *sources.tolist()]
        ends = np.concatenate([[0], np.cumsum(fold.counts + 1)])  # the first term of each is what was there before
        rows, weights = np.empty(ends[-1], np.int64), np.empty(ends[-1], np.float32)
        rows[ends[:-1]], weights[ends[:-1]] = np.arange(sums), 1.0
        added = np.ones(len(rows), bool)
        added[ends[:-1]] = False
        rows[added], weights[added] = sums + places, fold.weights
        parts: dict[str, Sequence[int] | np.ndarray] = {
            "counts": [len(fetched), 1, sums],
            "fetch_from": fetched if self._shared_store else range(len(fetched)),
            "fetch_to": range(len(fetched)),
            "group_combines": [0, sums],
            "combine_to": range(sums),
            "combine_terms": ends,
            "term_rows": rows,
            "trains": [0],
        }
        code, all_weights = self._code(parts), self._weights(weights)
        return Block(code, all_weights, self._no_batches, fetched, fetched[:sums], 0, fold.nodes)

    def _code(self, parts: Mapping[str, Sequence[int] | np.ndarray]) -> np.ndarray:
        code = _empty((self._length,), np.int32)  # what is behind the end of a part stays unread
        for name, values in parts.items():
            start = self._sections[name].start
            code[start : start + len(values)] = values
        return code

    def _weights(self, weights: Sequence[float] | np.ndarray) -> np.ndarray:
        all_weights = _empty((self._shape.terms + 1,), np.float32)
        all_weights[: len(weights)] = weights
        all_weights[self._shape.terms] = -0.0  # for the program: see there
        return all_weights


def _empty(shape: tuple[int, ...], dtype: type[np.int32] | type[np.float32]) -> np.ndarray:
    """Aligned as XLA wants it: other arrays it copies, into memory that is new to the process and hence slow."""
    size = 4 * math.prod(shape)
    memory = np.empty(size + _ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % _ALIGNMENT
    return memory[start : start + size].view(dtype).reshape(shape)


class _Draft:
    """Which nodes are in a block, and what is known of it before its vectors have rows."""

    def __init__(self, shape: Shape) -> None:
        self._shape = shape
        self.nodes: list[Node] = []
        self.groups: list[list[Node]] = []
        self.trainings = 0
        self.fetched: list[int] = []  # slots that are read before they are written, if they are written at all
        self.written: dict[int, None] = {}  # an ordered set
        self.put_back: list[int] = []
        self.last_group: dict[int, int] = {}  # slot -> the last group that reads or writes it
        self._in_group = 0  # trainings
        self._wave = 0  # of those
        self._combines = self._terms = 0

    def fits(self, node: Node) -> bool:
        shape = self._shape
        return (
            len(self.last_group) + len(node.terms) + 3 <= shape.rows
            and len(self.groups) + 1 <= shape.groups
            and self._combines + 1 <= shape.combines
            and self._terms + len(node.terms) <= shape.terms
        )

    def add(self, node: Node) -> None:
        # Trainings of a group run at once, after its combinations: they must not depend on one another.
        if not self.groups or (self._in_group and (self._in_group == self._shape.width or self._wave != node.wave)):
            self.groups.append([])
            self._in_group = 0
        group, last_group = len(self.groups) - 1, self.last_group
        self.groups[group].append(node)
        self.nodes.append(node)
        if node.terms:
            for slot, _, _ in node.terms:
                if slot not in last_group:
                    self.fetched.append(slot)
                last_group[slot] = group
            self._combines += 1
            self._terms += len(node.terms)
            last_group[node.destination] = group
            self.written[node.destination] = None
        if node.train is not None:
            if node.source not in last_group:
                self.fetched.append(node.source)
            last_group[node.source] = last_group[node.result] = group
            self.written[node.result] = None
            self._wave = node.wave
            self._in_group += 1
            self.trainings += 1


class _Rows:
    """Which row of the workspace a slot's vector is in: one of the first if it is to be put back, otherwise any, until
    the group that is the last to use it is over."""

    def __init__(self, draft: _Draft, rows: int) -> None:
        self.of = {slot: row for row, slot in enumerate(draft.put_back)}
        self._free = list(range(rows - 1, len(draft.put_back) - 1, -1))
        self._dying: list[list[int]] = [[] for _ in draft.groups]
        for slot, group in draft.last_group.items():
            if slot not in self.of:
                self._dying[group].append(slot)
        self.fetched = [self.for_writing(slot) for slot in draft.fetched]

    def for_writing(self, slot: int) -> int:
        row = self.of.get(slot)
        if row is None:
            row = self.of[slot] = self._free.pop()
        return row

    def end_group(self, group: int) -> None:
        """What was used last comes first: it is in the cache."""
        self._free += [self.of[slot] for slot in self._dying[group]]
