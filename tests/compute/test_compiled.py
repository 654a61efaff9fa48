"""The compiled executor against its slow twin, the reference: the same tapes, the same problem."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import numpy as np
import pytest
from method_table import CHANNELS, EVERYWHERE, TABLE
from timelines import play

from dracofl.build import build_problem, build_simulator, build_world
from dracofl.compute.compiled import CompiledExecutor, lanes_available
from dracofl.compute.evaluation import Evaluation
from dracofl.compute.executor import hash_of
from dracofl.compute.fold import Fold
from dracofl.compute.plan import Planner
from dracofl.compute.problem import Problem
from dracofl.compute.program import Program
from dracofl.compute.reference import ReferenceExecutor
from dracofl.config.load import load_config
from dracofl.config.schema import Config
from dracofl.errors import ConfigError, DivergedError
from dracofl.tape import Combine, Copy, Evaluate, Free, Operation, Train

CLOSE = 1e-5


def tiny(*overrides: str) -> Config:
    return load_config("tiny", ["evaluate.every_s=none", *overrides])


@pytest.fixture(scope="module")
def problem() -> Problem:
    return build_problem(tiny())


@pytest.fixture(scope="module")
def program(problem: Problem) -> Program:
    return CompiledExecutor(problem, 8).program


def stretches_of(config: Config, parameters: int) -> list[list[Operation]]:
    simulator = build_simulator(config, build_world(config), parameters)
    simulator.start()
    stretches = []
    while not simulator.state.done:
        stretches.append(simulator.next_stretch().operations)
    return stretches


def played(executor: Any, stretches: Sequence[Sequence[Operation]]) -> list[Evaluation]:
    for stretch in stretches:
        executor.play(executor.prepare(stretch))
    evaluations: list[Evaluation] = executor.evaluations(wait=True)
    executor.close()
    return evaluations


def distance(models: np.ndarray, expected: np.ndarray) -> float:
    """The largest of ||a - b|| / ||b|| over users."""
    return float((np.linalg.norm(models - expected, axis=1) / np.linalg.norm(expected, axis=1)).max())


@pytest.mark.parametrize(("method", "topology", "channel"), EVERYWHERE)
def test_both_executors_end_with_the_same_models(
    method: str, topology: str, channel: str, problem: Problem, program: Program
) -> None:
    options = [f"method.kind={method}", *TABLE[method][0], f"topology.kind={topology}", *CHANNELS[channel]]
    stretches = stretches_of(tiny(*options), problem.parameter_count)
    slow = ReferenceExecutor(problem, 8, measured_users=0)
    fast = CompiledExecutor(problem, 8, measured_users=0, lanes=2, program=program)
    played(slow, stretches)
    played(fast, stretches)
    assert distance(fast.models(), slow.models()) <= CLOSE
    assert fast.state().keys() == slow.state().keys()


@pytest.mark.parametrize("compressor", ["top-k", "random-k", "qsgd"])
def test_both_executors_agree_after_a_round_with_compression(
    compressor: str, problem: Problem, program: Program
) -> None:
    # A compressor may turn a difference in the last bit into one of the first; a round has one compression a link.
    options = ["method.kind=sync-symm", f"method.compressor={compressor}", "channel.kind=ideal", "topology.kind=cycle"]
    (stretch, *_) = stretches_of(tiny(*options), problem.parameter_count)
    trainings = [index for index, operation in enumerate(stretch) if isinstance(operation, Train)]
    first_round = stretch[: trainings[8]]
    slow = ReferenceExecutor(problem, 8, measured_users=0)
    fast = CompiledExecutor(problem, 8, measured_users=0, lanes=2, program=program)
    played(slow, [first_round])
    played(fast, [first_round])
    assert distance(fast.models(), slow.models()) <= CLOSE


def test_evaluations_measure_the_same_models_at_the_same_instants(problem: Problem, program: Program) -> None:
    stretches = stretches_of(load_config("tiny", ["evaluate.every_s=30"]), problem.parameter_count)
    slow, fast = ReferenceExecutor(problem, 8), CompiledExecutor(problem, 8, lanes=2, program=program)
    expected, found = played(slow, stretches), played(fast, stretches)
    assert [one.at_s for one in found] == [one.at_s for one in expected]
    for one, other in zip(found, expected, strict=True):
        assert (one.events, one.final, one.samples) == (other.events, other.final, other.samples)
        np.testing.assert_allclose(np.array(one.users), np.array(other.users), atol=2e-3)
        np.testing.assert_allclose(one.distances, other.distances, rtol=1e-3, atol=1e-5)


def test_only_the_first_users_are_measured_if_so_asked(problem: Problem, program: Program) -> None:
    for executor in (
        ReferenceExecutor(problem, 8, measured_users=3),
        CompiledExecutor(problem, 8, measured_users=3, program=program),
    ):
        (evaluation,) = played(executor, [[Evaluate(0.0, 0, final=True)]])
        assert len(evaluation.users) == len(evaluation.distances) == 3
    (nothing,) = (CompiledExecutor(problem, 8, measured_users=0, program=program),)
    assert played(nothing, [[Evaluate(0.0, 0, final=True)]]) == []


@pytest.mark.parametrize("topology", ["complete", "cycle"])
def test_how_the_work_is_dealt_out_changes_no_bit(topology: str, problem: Problem, program: Program) -> None:
    stretches = stretches_of(tiny(f"topology.kind={topology}"), problem.parameter_count)
    found = set()
    for lanes in (1, 2, 5):
        fast = CompiledExecutor(problem, 8, measured_users=0, lanes=lanes, program=program)
        played(fast, stretches)
        found.add(hash_of(fast.models()))
    assert len(found) == 1


def test_where_stretches_end_changes_no_bit(problem: Problem, program: Program) -> None:
    whole = [operation for stretch in stretches_of(tiny(), problem.parameter_count) for operation in stretch]
    found = set()
    for length in (7, 100, len(whole)):
        fast = CompiledExecutor(problem, 8, measured_users=0, lanes=2, program=program)
        played(fast, [whole[start : start + length] for start in range(0, len(whole), length)])
        found.add(hash_of(fast.models()))
    assert len(found) == 1


def test_trainings_in_groups_as_on_an_accelerator_end_alike(problem: Problem) -> None:
    stretches = stretches_of(tiny("topology.kind=cycle"), problem.parameter_count)
    slow = ReferenceExecutor(problem, 8, measured_users=0)
    wide = CompiledExecutor(problem, 8, measured_users=0, lanes=1, width=4, shared_store=False)
    played(slow, stretches)
    played(wide, stretches)
    assert distance(wide.models(), slow.models()) <= CLOSE


def test_a_state_put_into_another_executor_goes_on_there(problem: Problem, program: Program) -> None:
    stretches = stretches_of(tiny(), problem.parameter_count)
    whole, first, second = (CompiledExecutor(problem, 8, measured_users=0, lanes=2, program=program) for _ in range(3))
    played(whole, stretches)
    played(first, stretches[:2])
    second.restore({name: vector.copy() for name, vector in first.state().items()})
    played(second, stretches[2:])
    assert hash_of(second.models()) == hash_of(whole.models())


@pytest.mark.parametrize("wanted", ["0", "-1", "two", ""])
def test_a_senseless_number_of_lanes_is_refused(wanted: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRACOFL_LANES", wanted)
    with pytest.raises(ConfigError, match="DRACOFL_LANES"):
        lanes_available()


def test_both_executors_have_the_same_bits_on_a_cpu(problem: Problem, program: Program) -> None:
    stretches = stretches_of(tiny(), problem.parameter_count)
    slow = ReferenceExecutor(problem, 8, measured_users=0)
    fast = CompiledExecutor(problem, 8, measured_users=0, lanes=2, program=program)
    played(slow, stretches)
    played(fast, stretches)
    assert hash_of(fast.models()) == hash_of(slow.models())


@pytest.mark.parametrize(("lanes", "shared_store"), [(1, True), (2, True), (1, False)])
def test_many_users_of_whom_few_train_in_a_stretch_have_the_same_bits(lanes: int, shared_store: bool) -> None:
    config = tiny("users=500", "topology.kind=k-out", "topology.k=5", "duration_s=20", "data.samples_per_user=32")
    problem = build_problem(config)
    whole = [operation for stretch in stretches_of(config, problem.parameter_count) for operation in stretch]
    stretches = [whole[start : start + 1000] for start in range(0, len(whole), 1000)]
    planner = Planner(500, lanes=1, switch_cost=0.0, most_terms=100, add_every=0)
    assert any(isinstance(action, Fold) for stretch in stretches for action in planner.plan(stretch)[0])
    slow = ReferenceExecutor(problem, 500, measured_users=0)
    fast = CompiledExecutor(problem, 500, measured_users=0, lanes=lanes, shared_store=shared_store)
    played(slow, stretches)
    played(fast, stretches)
    assert hash_of(fast.models()) == hash_of(slow.models())


def test_the_store_grows_when_slots_run_short(problem: Problem, program: Program) -> None:
    fast = CompiledExecutor(problem, 8, measured_users=0, lanes=2, program=program)
    many = 3000
    played(fast, [[Copy(0.0, 0, number % 8, 8 + number) for number in range(many)]])
    assert len(fast.state()) == 8 + many
    assert fast.state()[8 + many - 1].tobytes() == problem.init().tobytes()


def test_a_run_of_any_length_compiles_the_same_few_programs() -> None:
    compiled: list[str] = []

    def listen(event: str, _duration_s: float, fun_name: str = "", **_: Any) -> None:
        if "backend_compile" in event:
            compiled.append(fun_name)

    found = []
    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        for duration_s in (60, 400):
            config = load_config("tiny", [f"duration_s={duration_s}", "evaluate.every_s=20"])
            compiled.clear()
            problem = build_problem(config)
            fast = CompiledExecutor(problem, 8, lanes=2)
            fast.compile()
            played(fast, stretches_of(config, problem.parameter_count))
            found.append(sorted(name for name in compiled if name in ("jit(play)", "jit(confusion)")))
    finally:
        jax.monitoring.clear_event_listeners()
    # The tape's program, and one of evaluation for each of two numbers of samples.
    assert found == [["jit(confusion)", "jit(confusion)", "jit(play)"]] * 2


class Exploding:
    """Updates grow without bound; what is left is as a problem has to be."""

    parameter_count = 3
    local_steps = 1
    pool = ()

    def init(self) -> np.ndarray:
        return np.ones(3, dtype=np.float32)

    def batch(self, user: int, number: int) -> np.ndarray:
        return np.array([user, number], dtype=np.int32)

    def delta(self, flat: jax.Array, pool: tuple[jax.Array, ...], batch: jax.Array) -> jax.Array:
        return flat * jax.numpy.where(batch[1] == 3, np.float32(np.inf), np.float32(1e12))

    def local_update(self, model: np.ndarray, user: int, number: int) -> jax.Array:
        return jax.jit(self.delta)(model, self.pool, self.batch(user, number))

    def compile_evaluation(self) -> None: ...

    def evaluate(self, models: np.ndarray, final: bool) -> list[Any]:
        raise AssertionError("nothing is evaluated after a value stopped being finite")

    def test_samples(self, final: bool) -> int:
        return 0


@pytest.mark.parametrize(
    ("operations", "blamed"),
    [
        ([Train(1.0, 0, 0, 0, 4), Train(2.0, 1, 3, 1, 5), Train(3.0, 2, 3, 2, 6)], (2.0, 1, "local update 3")),
        # The later operation has fewer to wait for and is played first; the earlier one is still the one to blame.
        (
            [
                Train(1.0, 0, 0, 0, 4),
                Combine(1.5, 1, 1, ((1, 1.0), (4, 1.0))),
                Train(2.0, 1, 3, 1, 5),
                Train(3.0, 2, 3, 2, 6),
            ],
            (2.0, 1, "local update 3"),
        ),
        # Of what is added in one go, the message that was too much.
        (
            [
                Train(1.0, 0, 0, 0, 4),
                Combine(1.1, 1, 1, ((1, 0.0), (4, 1e25))),
                *(Combine(2.0 + k, 2, 2, ((2, 1.0), (1, 10.0))) for k in range(6)),
                Train(9.0, 2, 0, 2, 7),
                Evaluate(9.5, 0, final=False),
            ],
            (5.0, 2, "applying updates"),
        ),
        (
            [Train(1.0, 0, 0, 0, 4), Train(2.0, 0, 3, 0, 5), Free(5), Evaluate(3.0, 0, final=True)],
            (2.0, 0, "local update 3"),
        ),
    ],
)
@pytest.mark.parametrize(
    "make",
    [
        ReferenceExecutor,
        partial(CompiledExecutor, lanes=1),
        partial(CompiledExecutor, lanes=2),
        partial(CompiledExecutor, lanes=1, width=4, shared_store=False),
    ],
    ids=["reference", "one lane", "two lanes", "groups"],
)
def test_a_value_that_is_not_finite_is_traced_to_its_maker(
    make: Callable[..., Any], operations: list[Operation], blamed: tuple[float, int, str]
) -> None:
    executor = make(Exploding(), 4)
    with pytest.raises(DivergedError) as caught:
        played(executor, [operations])
    assert (caught.value.time_s, caught.value.user, caught.value.operation) == blamed


@pytest.mark.parametrize("make", [ReferenceExecutor, CompiledExecutor])
def test_of_many_short_sums_the_one_that_is_not_finite_is_blamed(make: Callable[..., Any]) -> None:
    users = 300
    operations: list[Operation] = [
        Train(1.0, 0, 0, 0, users),
        Combine(1.1, 1, 1, ((1, 0.0), (users, 1e25))),
        *(Combine(2.0 + user, user, user, ((user, 1.0), (1, 1e3 if user > 70 else 1.0))) for user in range(2, users)),
    ]
    with pytest.raises(DivergedError) as caught:
        played(make(Exploding(), users), [operations])
    assert (caught.value.time_s, caught.value.user, caught.value.operation) == (73.0, 71, "applying updates")


def test_the_tape_of_a_timeline_is_the_one_played_here() -> None:
    config = tiny()
    assert [one for part in stretches_of(config, 10) for one in part] == play(config).operations
