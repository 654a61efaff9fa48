"""The six laws of DRACO, over random small configurations."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from timelines import MODEL_LENGTH, Timeline, configurations, contents, play

from dracofl.compute.reference import ReferenceExecutor
from dracofl.config.load import load_config
from dracofl.config.schema import Config
from dracofl.tape import Copy, Evaluate, Operation, Train
from dracofl.trace import EventKind
from dracofl.types import Fate


class RandomUpdates:
    """A learning problem whose updates are random vectors: the laws hold whatever the numbers are."""

    parameter_count = MODEL_LENGTH
    local_steps = 1

    def init(self) -> np.ndarray:
        return np.arange(MODEL_LENGTH, dtype=np.float32)

    def compile(self) -> None: ...

    def local_update(self, model: np.ndarray, user: int, number: int) -> np.ndarray:
        return np.random.default_rng([user, number]).standard_normal(MODEL_LENGTH).astype(np.float32)

    def evaluate(self, models: np.ndarray, final: bool) -> list[None]:
        raise AssertionError("the laws are about the models, not their scores")

    def test_samples(self, final: bool) -> int:
        return 0


def play_operation(executor: ReferenceExecutor, operation: Operation) -> None:
    if not isinstance(operation, Evaluate):
        executor.play([operation])


def check_law_1(timeline: Timeline) -> None:
    transmissions = [event for event in timeline.events if event.kind is EventKind.SENT]
    successors = timeline.simulator.network.nodes
    intended = Counter(
        (event.user, event.number, receiver)
        for event in transmissions
        for receiver in successors[event.user]._receivers
    )
    assert Counter((row.sender, row.number, row.receiver) for row in timeline.messages) == intended
    arrivals = Counter(
        (event.peer, event.number, event.user) for event in timeline.events if event.kind is EventKind.RECEIVED
    )
    delivered = Counter((r.sender, r.number, r.receiver) for r in timeline.messages if not math.isnan(r.arrived_s))
    assert arrivals == delivered
    for row in timeline.messages:
        arrived = not math.isnan(row.arrived_s)
        assert arrived or row.fate in (Fate.LATE, Fate.LOST, Fate.PENDING)
        assert not (arrived and row.fate in (Fate.LATE, Fate.LOST))
        assert (row.fate is Fate.APPLIED) == (not math.isnan(row.age_s))
        assert 0.0 <= row.sent_s <= row.settled_s <= timeline.config.duration_s


@given(configurations())
@settings(max_examples=120)
def test_law_1_every_message_ends_in_exactly_one_fate(config: Config) -> None:
    check_law_1(play(config))


def test_the_random_configurations_produce_every_fate() -> None:
    fates: Counter[Fate] = Counter()
    pending = Counter({"in flight": 0, "in a window": 0})

    @given(configurations())
    @settings(max_examples=120)
    def count(config: Config) -> None:
        for row in play(config).messages:
            fates[row.fate] += 1
            if row.fate is Fate.PENDING:
                pending["in flight" if math.isnan(row.arrived_s) else "in a window"] += 1

    count()
    assert set(fates) == set(Fate), fates
    assert min(fates.values()) >= 20, fates
    assert min(pending.values()) >= 5, pending


@given(configurations(method={"psi": 2, "period_s": 7.5}))
@settings(max_examples=80)
def test_law_2_nobody_accepts_more_than_psi_messages_in_a_period(config: Config) -> None:
    timeline = play(config)
    accepted: Counter[tuple[int, int]] = Counter()
    refused: Counter[tuple[int, int]] = Counter()
    for row in timeline.messages:
        if not math.isnan(row.arrived_s):
            period = (row.receiver, math.floor(row.arrived_s / 7.5))
            (refused if row.fate is Fate.OVER_BUDGET else accepted)[period] += 1
    assert all(count <= 2 for count in accepted.values())
    # And the budget is spent before anything is refused.
    assert all(accepted[period] == 2 for period in refused)


@given(configurations(transmit={"backlog": "sum"}))
@settings(max_examples=120)
def test_law_3_no_update_is_applied_twice_by_the_same_user(config: Config) -> None:
    timeline = play(config)
    for applied in contents(timeline).applied.values():
        assert all(count == 1 for count in sum(applied, Counter()).values())


@given(configurations(transmit={"when": "poisson", "backlog": "sum", "rate": 0.3}))
@settings(max_examples=80)
def test_law_3_every_finished_update_is_in_exactly_one_transmission_or_unsent(config: Config) -> None:
    timeline = play(config)
    carried = {(row.sender, row.number): row.updates for row in timeline.messages}
    for user, node in enumerate(timeline.simulator.network.nodes):
        sent = sum(updates for (sender, _), updates in carried.items() if sender == user)
        assert sent + node.state.unsent_updates == node.state.finished
    # What the messages say they carry is what their vectors are made of.
    for receiver, applied in contents(timeline).applied.items():
        of_others = [content for content in applied if all(user != receiver for user, _ in content)]
        rows = [row for row in timeline.messages if row.receiver == receiver and row.fate is Fate.APPLIED]
        assert sum(content.total() for content in of_others) == sum(row.updates for row in rows)


@given(configurations())
@settings(max_examples=80)
def test_law_4_each_row_of_weights_sums_to_1(config: Config) -> None:
    timeline = play(config)
    rows: dict[tuple[int, int], list[float]] = {}
    for message in timeline.messages:
        reached = message.fate not in (Fate.LATE, Fate.LOST)
        if config.method.weights == "uniform" or reached:
            rows.setdefault((message.sender, message.number), []).append(message.weight)
    assert all(math.isclose(sum(weights), 1.0, abs_tol=1e-12) for weights in rows.values())


@pytest.mark.parametrize("users", [2, 3, 8])
@pytest.mark.parametrize("snapshot", ["finish", "start"])
def test_law_5_the_mean_model_moves_by_two_nths_of_each_update(users: int, snapshot: str) -> None:
    config = load_config(
        {
            "users": users,
            "duration_s": 40.0,
            "task": {"kind": "quadratic"},
            "compute": {"snapshot": snapshot, "rate": 0.5},
            "method": {"period_s": "none", "own_weight": 1.0},
            "channel": {"kind": "ideal"},
            "topology": {"kind": "complete"},
        }
    )
    timeline = play(config)
    executor = ReferenceExecutor(RandomUpdates(), users)
    whole = 0
    for user, number in finished_updates(timeline):
        # The mean model right before this update is applied, and once everybody has it.
        operations = operations_of_update(timeline, user, number)
        before = executor.models().mean(axis=0, dtype=np.float64)
        for operation in operations:
            play_operation(executor, operation)
        moved = executor.models().mean(axis=0, dtype=np.float64) - before
        update = RandomUpdates().local_update(executor.vectors[user], user, number)
        np.testing.assert_allclose(moved, 2.0 / users * update, atol=2e-5)
        whole += 1
    assert whole > 5


def finished_updates(timeline: Timeline) -> list[tuple[int, int]]:
    return [(event.user, event.number) for event in timeline.events if event.kind is EventKind.FINISHED]


def operations_of_update(timeline: Timeline, user: int, number: int) -> list[Operation]:
    """Training it, and every operation that reads it: on an ideal channel they all happen at one instant."""
    train = next(o for o in timeline.operations if isinstance(o, Train) and (o.user, o.number) == (user, number))
    reads = [
        operation
        for operation in timeline.operations
        if not isinstance(operation, Train | Copy | Evaluate) and train.destination in _reads(operation)
    ]
    return [train, *reads]


def _reads(operation: Operation) -> list[int]:
    terms = getattr(operation, "terms", None)
    return [operation.vector] if terms is None else [vector for vector, _ in terms]


@given(configurations(method={"unification": "reliable", "period_s": 9.0, "psi": "none"}, duration_s=50.0))
@settings(max_examples=60)
def test_law_6_after_a_reliable_unification_all_models_are_equal_bit_for_bit(config: Config) -> None:
    timeline = play(config)
    executor = ReferenceExecutor(RandomUpdates(), config.users)
    unified = 0
    for operation, following in zip(timeline.operations, [*timeline.operations[1:], None], strict=True):
        play_operation(executor, operation)
        if isinstance(operation, Copy) and not isinstance(following, Copy):
            # The last copy of a unification; the hub's own copy for the air is the first of them.
            assert len({vector.tobytes() for vector in executor.models()}) == 1
            unified += 1
    assert unified == 5


@given(configurations())
@settings(max_examples=60)
def test_every_vector_that_is_made_is_freed_or_still_held(config: Config) -> None:
    timeline = play(config)
    alive = set(contents(timeline).vectors) - set(range(config.users))
    assert alive == set(timeline.simulator.network.vectors.state.references)
    held = {row.number for row in timeline.messages if row.fate is Fate.PENDING}
    assert len(alive) <= 2 * config.users + len(held) * config.users + 1


def test_own_weight_zero_means_a_user_is_moved_only_by_others() -> None:
    config = load_config("tiny", ["task.kind=quadratic", "method.own_weight=0", "method.unification=off"])
    for user, applied in contents(play(config)).applied.items():
        assert applied
        assert all(maker != user for content in applied for maker, _ in content)
