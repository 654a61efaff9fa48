"""Plans and blocks, played with words in the place of numbers: whatever is put off, split or dealt out, every vector
that is read is made of the same things, added in the same order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dracofl.compute.blocks import Assembler, Block, BlockWave, Shape
from dracofl.compute.dealing import Wave
from dracofl.compute.fold import Fold
from dracofl.compute.plan import WORTH_ADDING, WORTH_FOLDING, Planner
from dracofl.tape import Combine, Compress, Compression, Copy, Evaluate, Free, Operation, Train

USERS = 3
SMALL = Shape(rows=9, groups=4, width=1, combines=5, terms=14)
WIDE = Shape(rows=9, groups=3, width=3, combines=5, terms=14)
ROOMY = Shape.for_model(parameters=1000, width=1)

Words = tuple[Any, ...]


def combined(terms: Sequence[tuple[Words, float]]) -> Words:
    """A sum is the list of its terms in order; going on from a sum with weight 1 is the longer list."""
    (first, weight), *others = terms
    if weight == 1.0 and not others:
        return first
    start = first if weight == 1.0 and first[0] == "sum" else ("sum", (weight, first))
    return (*start, *((float(np.float32(weight)), value) for value, weight in others))


def trained(user: int, number: int, model: Words) -> Words:
    return ("update", user, number, model)


def compressed(draws: int, value: Words) -> Words:
    return ("compressed", draws, value)


class InOrder:
    """The tape as it is written."""

    def __init__(self) -> None:
        self.vectors: dict[int, Words] = {user: ("sum", (1.0, f"start {user}")) for user in range(USERS)}
        self.evaluations: list[list[Words]] = []

    def play(self, operations: Sequence[Operation]) -> None:
        vectors = self.vectors
        for operation in operations:
            match operation:
                case Train():
                    made = trained(operation.user, operation.number, vectors[operation.source])
                    vectors[operation.destination] = made
                case Combine():
                    made = combined([(vectors[name], weight) for name, weight in operation.terms])
                    vectors[operation.destination] = made
                case Copy():
                    vectors[operation.destination] = combined([(vectors[operation.source], 1.0)])
                case Compress():
                    vectors[operation.destination] = compressed(operation.draws, vectors[operation.source])
                case Free():
                    del vectors[operation.vector]
                case Evaluate():
                    self.evaluations.append([vectors[user] for user in range(USERS)])


class InBlocks:
    """The same by way of planner and assembler; blocks are read from their arrays, as the compiled program does."""

    def __init__(self, shape: Shape, lanes: int, add_every: int = 0, worth_folding: int = WORTH_FOLDING) -> None:
        self._shape = shape
        self.planner = Planner(
            USERS,
            lanes=lanes,
            switch_cost=0.0,
            most_terms=shape.most_terms,
            add_every=add_every,
            worth_folding=worth_folding,
        )
        self._assembler = Assembler(shape, lambda user, number: np.array([user, number], dtype=np.int32), lanes=lanes)
        self.store: dict[int, Words] = {user: ("sum", (1.0, f"start {user}")) for user in range(USERS)}
        self.evaluations: list[list[Words]] = []
        self.waves: list[Wave] = []
        self.blocks: list[Block] = []

    def play(self, operations: Sequence[Operation]) -> None:
        actions, freed = self.planner.plan(operations)
        self.waves += [action for action in actions if isinstance(action, Wave)]
        for action in self._assembler.assemble(actions, freed):
            if isinstance(action, BlockWave):
                self.blocks += [block for lane in action.lanes for block in lane]
            if isinstance(action, Evaluate):
                self.evaluations.append([self.store[user] for user in range(USERS)])
                continue
            # Lanes must not see each other's work, so each reads what was there before all of them; and last comes
            # first here, as any order must do.
            before = dict(self.store)
            for lane in reversed(action.lanes):
                seen = dict(before)
                for block in lane:
                    self._play_block(block, seen)
            for operation, source, destination in action.compressions:
                self.store[destination] = compressed(operation.draws, self.store[source])

    def _play_block(self, block: Block, seen: dict[int, Words]) -> None:
        parts = {name: block.code[section].tolist() for name, section in self._shape.sections().items()}
        rows: dict[int, Words] = {}
        fetches, groups, kept = parts["counts"]
        for slot, row in list(zip(parts["fetch_from"], parts["fetch_to"], strict=True))[:fetches]:
            rows[row] = seen[slot]
        for group in range(groups):
            for index in range(parts["group_combines"][group], parts["group_combines"][group + 1]):
                first, end = parts["combine_terms"][index], parts["combine_terms"][index + 1]
                terms = zip(parts["term_rows"][first:end], block.weights[first:end].tolist(), strict=True)
                rows[parts["combine_to"][index]] = combined([(rows[row], weight) for row, weight in terms])
            if parts["trains"][group]:
                self._train(block, parts, group, rows)
        assert kept == len(block.put_back)
        for row, slot in enumerate(block.put_back):
            seen[slot] = self.store[slot] = rows[row]

    def _train(self, block: Block, parts: dict[str, list[int]], group: int, rows: dict[int, Words]) -> None:
        width, before = self._shape.width, dict(rows)
        for place in range(width):
            source, result = parts["train_from"][group * width + place], parts["train_to"][group * width + place]
            user, number = block.batches[group, place].tolist()
            if result < self._shape.rows:
                rows[result] = trained(user, number, before[source])

    @property
    def vectors(self) -> dict[int, Words]:
        slots = self.planner.slots
        return {name: self.store[slots.of(name)] for name in [*range(USERS), *slots.by_name]}


@st.composite
def tapes(draw: st.DrawFn) -> list[list[Operation]]:
    """Stretches of a tape: every vector is written before it is read and not read after it is freed."""
    live, free_from, number = list(range(USERS)), USERS, 0
    stretches: list[list[Operation]] = []
    for _ in range(draw(st.integers(1, 3))):
        stretch: list[Operation] = []
        for _ in range(draw(st.integers(0, 25))):
            number += 1
            user = draw(st.integers(0, USERS - 1))
            kind = draw(
                st.sampled_from(["train", "train", "add", "add", "add", "mix", "copy", "compress", "free", "see"])
            )
            some = draw(st.lists(st.sampled_from(live), min_size=1, max_size=8))
            fresh = draw(st.booleans())
            destination = free_from if fresh else draw(st.sampled_from(live))
            weights = [draw(st.sampled_from([1.0, 0.5, 0.25])) for _ in some]
            if kind == "train":
                stretch.append(Train(0.0, user, number, some[0], destination))
            elif kind == "add":
                destination = draw(st.sampled_from(live))
                others = [(name, weight) for name, weight in zip(some, weights, strict=True) if name != destination]
                if not others:
                    continue
                stretch.append(Combine(0.0, user, destination, ((destination, 1.0), *others)))
            elif kind == "mix":
                stretch.append(Combine(0.0, user, destination, tuple(zip(some, weights, strict=True))))
            elif kind == "copy":
                stretch.append(Copy(0.0, user, some[0], destination))
            elif kind == "compress":
                stretch.append(Compress(0.0, user, some[0], destination, Compression("qsgd", 4), number))
            elif kind == "see":
                stretch.append(Evaluate(0.0, 0, final=False))
                continue
            else:
                if some[0] >= USERS:
                    live.remove(some[0])
                    stretch.append(Free(some[0]))
                continue
            if destination == free_from:
                live.append(free_from)
                free_from += 1
        stretches.append(stretch)
    return stretches


@settings(max_examples=150, deadline=None)
@given(
    tapes(),
    st.sampled_from([(WIDE, 1), *((shape, lanes) for shape in (SMALL, ROOMY) for lanes in (1, 2, 3))]),
    st.integers(0, 3),
    st.sampled_from([1, 2, WORTH_FOLDING]),
)
def test_blocks_make_what_the_tape_says(
    stretches: list[list[Operation]], device: tuple[Shape, int], add_every: int, worth_folding: int
) -> None:
    shape, lanes = device
    slow, fast = InOrder(), InBlocks(shape, lanes, add_every, worth_folding)
    for stretch in stretches:
        slow.play(stretch)
        fast.play(stretch)
        assert fast.vectors == slow.vectors
    assert fast.evaluations == slow.evaluations


def trains(*users: int) -> list[Operation]:
    return [Train(0.0, user, 0, user, USERS + number) for number, user in enumerate(users)]


def test_independent_trainings_are_dealt_out_and_dependent_ones_are_not() -> None:
    fast = InBlocks(ROOMY, lanes=2)
    fast.play(trains(0, 2, 0, 2, 0))
    (wave,) = fast.waves
    assert sorted(len(lane) for lane in wave.lanes) == [2, 3]
    chain = InBlocks(ROOMY, lanes=2)
    chain.play([Train(0.0, 0, 0, 0, 3), Combine(0.0, 1, 1, ((1, 1.0), (3, 0.5))), Train(0.0, 1, 0, 1, 4)])
    (wave,) = chain.waves
    assert [len(lane) for lane in wave.lanes] == [2]


def test_what_is_overwritten_unread_is_never_added() -> None:
    fast = InBlocks(ROOMY, lanes=1)
    fast.play([*trains(0), Combine(0.0, 1, 1, ((1, 1.0), (3, 0.5))), Copy(0.0, 1, 0, 1), Free(3)])
    (wave,) = fast.waves
    assert all(node.destination != 1 or len(node.terms) == 1 for node in wave.lanes[0])


def test_what_arrives_between_two_readings_is_added_in_one_go() -> None:
    fast = InBlocks(ROOMY, lanes=1)
    adds = [Combine(float(k), 1, 1, ((1, 1.0), (3, 0.5))) for k in range(5)]
    fast.play([*trains(0), *adds, Train(9.0, 1, 0, 1, 4)])
    (node,) = [node for wave in fast.waves for lane in wave.lanes for node in lane if node.terms]
    assert len(node.terms) == 6
    assert node.train is not None


def test_what_waits_for_long_is_added_every_few_trainings_as_many_at_a_time_as_are_added_in_one_go() -> None:
    fast = InBlocks(ROOMY, lanes=1, add_every=2)
    adds = [Combine(float(k), 1, user, ((user, 1.0), (3, 0.5))) for k in range(WORTH_ADDING + 1) for user in (1, 2)]
    few = Combine(5.0, 0, 0, ((0, 1.0), (3, 0.5)))
    fast.play([*trains(0), *adds, few, Train(9.0, 1, 0, 1, 4), Train(9.0, 1, 1, 1, 5)])
    sums = [node for wave in fast.waves for lane in wave.lanes for node in lane if node.terms]
    # When user 1 trains, its own sum is next in line anyway, user 2's is long, and user 0's of one term can wait.
    assert [(node.destination, len(node.terms) - 1, node.train is not None) for node in sums] == [
        (2, WORTH_ADDING, False),
        (1, WORTH_ADDING + 1, True),
        (0, 1, False),
        (2, 1, False),
    ]


def test_where_many_wait_for_few_terms_each_all_are_added_in_blocks_of_nothing_else() -> None:
    slow, fast = InOrder(), InBlocks(SMALL, lanes=2, worth_folding=3)
    adds = [Combine(float(k), user, user, ((user, 1.0), (3, 0.5 + k))) for k in range(4) for user in range(USERS)]
    for executor in (slow, fast):
        executor.play([*trains(0), *adds, Free(3)])
    assert fast.vectors == slow.vectors
    nodes = [node for wave in fast.waves for lane in wave.lanes for node in lane]
    assert [node.train is not None for node in nodes] == [True]
    *_, first, second = fast.blocks  # three times five terms, of which a block takes fourteen
    assert [len(block.put_back) for block in (first, second)] == [2, 1]
    assert [node.destination for block in (first, second) for node in block.nodes()] == [0, 1, 2]
    assert [len(node.terms) for block in (first, second) for node in block.nodes()] == [5, 5, 5]


def test_a_fold_is_cut_by_the_slots_it_needs_each_counted_once() -> None:
    slots, few = list(range(10)), {slot: [(100, 1.0, 0), (101, 1.0, 1)] for slot in range(10)}
    roomy = {"most_slots": 12, "most_sums": 99, "most_terms": 99}
    cuts = [roomy, roomy | {"most_slots": 6}, roomy | {"most_sums": 3}, roomy | {"most_terms": 8}]
    pieces = [[piece.destinations.tolist() for piece in Fold.of(few).pieces(**limits)] for limits in cuts]
    assert pieces[0] == [slots]
    assert [len(piece) for piece in pieces[1]] == [4, 4, 2]
    assert [len(piece) for piece in pieces[2]] == [3, 3, 3, 1]
    assert [len(piece) for piece in pieces[3]] == [2, 2, 2, 2, 2]
    assert all([slot for piece in cut for slot in piece] == slots for cut in pieces)
    apart = Fold.of({slot: [(100 + slot, 1.0, 0)] for slot in range(10)})
    assert [len(piece.counts) for piece in apart.pieces(**roomy)] == [6, 4]


def test_what_is_added_to_in_many_short_sums_and_freed_after_the_next_evaluation_is_there_to_be_added_to() -> None:
    slow, fast = InOrder(), InBlocks(ROOMY, lanes=1, worth_folding=1)
    stretch = [*trains(0, 1), Combine(0.0, 0, 3, ((3, 1.0), (4, 1.0))), Evaluate(0.0, 0, final=False), Free(3), Free(4)]
    for executor in (slow, fast):
        executor.play(stretch)
    assert fast.vectors == slow.vectors


def test_what_nobody_will_read_is_not_added_up() -> None:
    fast = InBlocks(ROOMY, lanes=1)
    fast.play([*trains(0, 1), Combine(0.0, 0, 3, ((3, 1.0), (4, 1.0))), Free(3), Free(4)])
    assert all(not node.terms for wave in fast.waves for lane in wave.lanes for node in lane)


def test_rows_of_a_block_are_used_again_when_their_vectors_are_dead() -> None:
    fast = InBlocks(ROOMY, lanes=1)
    stretch: list[Operation] = []
    for number in range(30):
        stretch += [
            Train(0.0, 0, number, 0, USERS + number),
            Combine(0.0, 0, 0, ((0, 1.0), (USERS + number, 1.0))),
            Free(USERS + number),
        ]
    fast.play(stretch)
    rows = {
        row for block in fast.blocks for row in block.code[ROOMY.sections()["train_to"]][: block.trainings].tolist()
    }
    assert sum(block.trainings for block in fast.blocks) == 30
    assert len(rows) <= 2


def test_slots_are_used_again() -> None:
    fast = InBlocks(ROOMY, lanes=1)
    for number in range(50):
        fast.play([Train(0.0, 0, number, 0, USERS + number), Free(USERS + number)])
    assert fast.planner.slots.used == USERS + 1


def test_a_vector_that_lives_and_dies_in_a_block_is_not_put_back() -> None:
    fast = InBlocks(ROOMY, lanes=1)
    fast.play([*trains(0), Combine(0.0, 1, 1, ((1, 1.0), (3, 0.5))), Free(3)])
    assert set(fast.store) == {0, 1, 2}


def test_a_sum_of_any_length_fits() -> None:
    slow, fast = InOrder(), InBlocks(SMALL, lanes=2)
    stretch: list[Operation] = [*(Copy(0.0, 0, 0, name) for name in range(3, 40))]
    stretch.append(Combine(0.0, 1, 1, tuple((name, 0.5) for name in range(40))))  # itself is a source
    stretch.append(Combine(0.0, 2, 2, ((2, 1.0), *((name, 0.25) for name in range(3, 40)))))
    stretch.append(Train(0.0, 2, 0, 2, 40))
    for executor in (slow, fast):
        executor.play(stretch)
    assert fast.vectors == slow.vectors


@pytest.mark.parametrize("parameters", [10, 12_910, 149_194, 10**8])
def test_the_workspace_keeps_within_bounds_for_any_model(parameters: int) -> None:
    shape = Shape.for_model(parameters, width=1)
    assert shape.rows >= 32
    assert shape.rows == 32 or 4 * shape.rows * parameters <= 64 << 20
