"""The compiled executor: whole stretches of tape in a few XLA calls, side by side where the tape allows it.

A stretch is prepared in the thread of the control plane: planned, cut into waves, and packed into blocks; a fold is a
wave, too, by then. Playing it is then, wave by wave: each lane fetches the rows it needs from the store into its
workspace, runs through its block, and puts back what somebody will read. XLA lets go of the interpreter meanwhile, so
lanes are threads, each with one XLA call at a time. All lanes use the same program, so how work is dealt out to them
changes no bit of it. An evaluation takes a copy of the models and is measured in a thread of its own.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from dracofl.compute.arithmetic import are_finite
from dracofl.compute.blocks import Assembler, Block, BlockWave, Shape
from dracofl.compute.compressors import compress
from dracofl.compute.dealing import Node, Term
from dracofl.compute.evaluation import Evaluation, measure, snapshot
from dracofl.compute.plan import Planner
from dracofl.compute.problem import Problem
from dracofl.compute.program import NOT_FINITE, Program, compile_program
from dracofl.compute.reference import failed
from dracofl.compute.store import Store
from dracofl.compute.timings import Timings
from dracofl.errors import ConfigError
from dracofl.tape import Evaluate, Operation, Train

_HANDING_OVER_S = 3e-3  # to another thread and back: its vectors come from another core's cache, and go there again
_WIDTH_ON_ACCELERATORS = 32
_MOST_LANES = 16
_NEAR_BYTES = 512 << 10  # of vectors that stay near a core, beside what it trains with
_EVALUATIONS_WAITING = 2  # copies of all models that may be kept for the thread that measures them


LANES = "DRACOFL_LANES"
"""The variable that says how many lanes a run has."""

ONE_CORE = {LANES: "1", "NPROC": "1"}
"""The environment of a run that has one core to itself, where many share a machine. NPROC is XLA's: its threads hand
single operations to one another, which costs a tenth of the time and is of no use here."""


def lanes_available() -> int:
    """What LANES says, or one for each core, to a limit, as each has a workspace."""
    wanted = os.environ.get(LANES)
    if wanted is not None:
        if not wanted.isdecimal() or int(wanted) < 1:
            raise ConfigError(f"{LANES} is {wanted!r}; it must be a number of threads, 1 or more")
        return int(wanted)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(cores, _MOST_LANES)


@dataclass(frozen=True, slots=True)
class Prepared:
    operations: Sequence[Operation]
    actions: list[BlockWave | Evaluate]
    slots: int  # that the store must have room for


class CompiledExecutor:
    def __init__(
        self,
        problem: Problem,
        users: int,
        measured_users: int | None = None,
        timings: Timings | None = None,
        *,
        lanes: int | None = None,
        width: int | None = None,
        shared_store: bool | None = None,
        program: Program | None = None,
    ) -> None:
        """`program` is one that was compiled for the same problem before. The options before it follow from the
        device: a CPU has lanes that share the store, and an accelerator has one, where it trains `width` models at
        once."""
        self._problem = problem
        self._users = users
        self._measured_users = users if measured_users is None else measured_users
        self._timings = timings or Timings()
        on_cpu = jax.default_backend() == "cpu"
        self._lanes = (lanes or lanes_available()) if on_cpu else 1
        assert width in (None, 1) or self._lanes == 1
        self._shape = Shape.for_model(problem.parameter_count, width or (1 if on_cpu else _WIDTH_ON_ACCELERATORS))
        self._planner = Planner(
            users,
            lanes=self._lanes,
            switch_cost=0.0,
            most_terms=self._shape.most_terms,
            add_every=_NEAR_BYTES // (4 * problem.parameter_count) if on_cpu else 0,
        )
        shared = on_cpu if shared_store is None else shared_store
        self._assembler = Assembler(self._shape, problem.batch, shared, self._lanes)
        self._store = Store(users, problem.parameter_count, shared)
        self._store.rows[:users] = problem.init()
        self.program = program or compile_program(problem, self._shape)
        shape = (self._shape.rows + 1, problem.parameter_count)
        # Committed to a device, as the results are that take their place: otherwise the program is compiled twice.
        device = jax.devices()[0]
        self._workspaces = [jax.device_put(jnp.zeros(shape, jnp.float32), device) for _ in range(self._lanes)]
        self._training_s = 0.0  # not known yet
        self._lane_threads = ThreadPoolExecutor(max(1, self._lanes - 1), thread_name_prefix="lane")
        self._evaluation_thread = ThreadPoolExecutor(1, thread_name_prefix="evaluation")
        self._evaluations: deque[Future[Evaluation]] = deque()
        self._first_bad: int | None = None  # index of the first operation found to make a value that is not finite
        self._operations: Sequence[Operation] = ()

    def compile(self) -> None:
        if self._measured_users:
            self._problem.compile_evaluation()
        self._training_s, call_s = self._time_a_training()
        # A wave ends a chain, and another begins after it: two calls more.
        self._planner.switch_cost = (2 * call_s + _HANDING_OVER_S) / self._training_s

    def prepare(self, operations: Sequence[Operation]) -> Prepared:
        if not self._measured_users:  # then nobody's model has to be brought up to date for it either
            operations = [operation for operation in operations if not isinstance(operation, Evaluate)]
        actions, freed = self._planner.plan(operations)
        return Prepared(operations, self._assembler.assemble(actions, freed), self._planner.slots.used)

    def play(self, prepared: Prepared) -> None:
        self._store.make_room(prepared.slots)
        self._operations, self._first_bad = prepared.operations, None
        for action in prepared.actions:
            if isinstance(action, Evaluate):
                self._stop_if_diverged()
                self._begin_evaluation(action)
            else:
                self._play_wave(action)
        self._stop_if_diverged()

    def evaluations(self, wait: bool) -> list[Evaluation]:
        finished = []
        while self._evaluations and (wait or self._evaluations[0].done()):
            finished.append(self._evaluations.popleft().result())
        return finished

    def state(self) -> dict[int, np.ndarray]:
        models = dict(enumerate(self._store.rows[: self._users]))
        return models | {name: self._store.rows[slot] for name, slot in self._planner.slots.by_name.items()}

    def restore(self, state: dict[int, np.ndarray]) -> None:
        slots = {name: self._planner.slots.for_writing(name) for name in state}
        self._store.make_room(self._planner.slots.used)
        for name, slot in slots.items():
            self._store.rows[slot] = state[name]

    def models(self) -> np.ndarray:
        return self._store.rows[: self._users]

    def close(self) -> None:
        self._lane_threads.shutdown(cancel_futures=True)
        self._evaluation_thread.shutdown(cancel_futures=True)

    def _play_wave(self, wave: BlockWave) -> None:
        first, *others = wave.lanes
        elsewhere = [self._lane_threads.submit(self._play_lane, lane + 1, blocks) for lane, blocks in enumerate(others)]
        bad = [self._play_lane(0, first), *(played.result() for played in elsewhere)]  # the first lane is this thread
        for operation, source, destination in wave.compressions:
            with self._timings.under("aggregation"):
                self._store.rows[destination] = compress(
                    self._store.rows[source], operation.compression, operation.draws
                )
        found = [order for order in [self._first_bad, *bad] if order is not None]
        self._first_bad = min(found, default=None)

    def _play_lane(self, lane: int, blocks: list[Block]) -> int | None:
        """Returns the index of the first operation on the tape that made a value in them that is not finite."""
        bad = []
        for block in blocks:
            began = time.perf_counter()
            finite = self._call(lane, block)
            called = time.perf_counter()
            bad += [] if finite else self._trace(block)
            self._put_back(lane, block)
            self._note_times(block, called - began, time.perf_counter() - called)
        return min(bad, default=None)

    def _call(self, lane: int, block: Block) -> bool:
        """Returns whether all numbers in it are finite."""
        store = self._store.shown_to_programs(block.fetched, self._shape.rows)
        self._workspaces[lane], largest = self.program(
            self._workspaces[lane], store, self._problem.pool, block.code, block.weights, block.batches
        )
        return int(largest) < NOT_FINITE  # waits

    def _put_back(self, lane: int, block: Block) -> None:
        """In one operation on many rows, as each lets go of the interpreter and may have to wait to get it back."""
        # The view must be gone before the next call: memory that somebody looks at is not used again but copied.
        workspace = self._workspaces[lane]
        rows = np.from_dlpack(workspace) if self._store.shared else np.asarray(workspace)
        self._store.rows[block.put_back] = rows[: len(block.put_back)]

    def _note_times(self, block: Block, call_s: float, copying_s: float) -> None:
        # One call trains and aggregates. A training takes the same time always, so the rest is known.
        training_s = min(call_s, block.trainings * self._training_s)
        self._timings.add("training", training_s)
        self._timings.add("aggregation", call_s - training_s + copying_s)

    def _trace(self, block: Block) -> list[int]:
        """Play the block again, one operation at a time, from what is still in the store. Returns the indices of all
        operations that made a value that is not finite: nodes are not in the order of the tape, and what such a value
        went into comes later on the tape than its maker, so the lowest index is the maker's."""
        bad, nodes = [], block.nodes()
        values = {slot: self._store.rows[slot].copy() for slot in block.fetched}
        with np.errstate(over="ignore", invalid="ignore"):
            for node in nodes:
                if node.terms:
                    total, found = _sum(node.terms, values)
                    values[node.destination] = total
                    bad += found
                if node.train is not None:
                    model, train = values[node.source], node.train
                    values[node.result] = np.asarray(self._problem.local_update(model, train.user, train.number))
                    if not are_finite(values[node.result]):
                        bad.append(node.train_order)
        # Only where these bits are not the program's can there be nothing to find; then the block's end is to blame.
        return bad or [nodes[-1].last_order]

    def _stop_if_diverged(self) -> None:
        if self._first_bad is not None:
            raise failed(self._operations[self._first_bad])

    def _begin_evaluation(self, operation: Evaluate) -> None:
        while len(self._evaluations) >= _EVALUATIONS_WAITING and not self._evaluations[-_EVALUATIONS_WAITING].done():
            self._evaluations[-_EVALUATIONS_WAITING].exception()  # waits
        taken = snapshot(operation, self.models(), self._measured_users)

        def measure_it() -> Evaluation:
            with self._timings.under("evaluation"):
                return measure(self._problem, taken)

        self._evaluations.append(self._evaluation_thread.submit(measure_it))

    def _time_a_training(self) -> tuple[float, float]:
        """Seconds of a training, and of a call that has none. The first call also compiles the program."""
        spare = self._users
        call_s = self._time([Node(destination=spare, terms=[(0, 1.0, 0)])])
        for trainings in (2, 20):  # few of what takes long
            nodes = [
                Node(wave=number, train=Train(0.0, 0, number, 0, spare), source=0, result=spare)
                for number in range(trainings)
            ]
            training_s = (self._time(nodes) - call_s) / trainings
            if training_s > 5e-3:
                break
        return max(training_s, 1e-6), call_s

    def _time(self, nodes: list[Node]) -> float:
        block = self._assembler.alone(nodes)
        times = []
        for _ in range(4):
            began = time.perf_counter()
            self._call(0, block)
            times.append(time.perf_counter() - began)
        return min(times)


def _sum(terms: list[Term], values: dict[int, np.ndarray]) -> tuple[np.ndarray, list[int]]:
    """The sum, and which operation's term made it a number that is not finite, if one did."""
    first, weight, order = terms[0]
    total: np.ndarray = np.float32(weight) * values[first]
    for slot, weight, next_order in terms[1:]:
        if not are_finite(total):
            break
        order = next_order
        total = total + np.float32(weight) * values[slot]
    return total, [] if are_finite(total) else [order]
