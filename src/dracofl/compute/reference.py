"""The reference executor: one operation at a time, in the order of the tape. The oracle for every faster one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dracofl.compute.arithmetic import PLAIN, are_finite, play
from dracofl.compute.compressors import compress
from dracofl.compute.evaluation import Evaluation, measure, snapshot
from dracofl.compute.problem import Problem
from dracofl.compute.timings import Timings
from dracofl.errors import DivergedError
from dracofl.tape import Combine, Compress, Copy, Operation, Train


class ReferenceExecutor:
    """Holds every live vector by name. Aggregation is NumPy in float32: in place, and without a dispatch a message."""

    def __init__(
        self, problem: Problem, users: int, measured_users: int | None = None, timings: Timings | None = None
    ) -> None:
        self._problem = problem
        self._users = users
        self._measured_users = users if measured_users is None else measured_users
        self._timings = timings or Timings()
        self._evaluations: list[Evaluation] = []
        start = problem.init()
        self.vectors: dict[int, np.ndarray] = {user: start.copy() for user in range(users)}

    def compile(self) -> None:
        self._problem.local_update(self._problem.init(), 0, 0).block_until_ready()
        if self._measured_users:
            self._problem.compile_evaluation()

    def prepare(self, operations: Sequence[Operation]) -> Sequence[Operation]:
        return operations

    def play(self, prepared: Sequence[Operation]) -> None:
        """Raises DivergedError at the first operation that makes a value non-finite."""
        with np.errstate(over="ignore", invalid="ignore"):  # found by the check, with more to say
            for operation in prepared:
                self._play(operation)

    def evaluations(self, wait: bool) -> list[Evaluation]:
        finished, self._evaluations = self._evaluations, []
        return finished

    def state(self) -> dict[int, np.ndarray]:
        return self.vectors

    def restore(self, state: dict[int, np.ndarray]) -> None:
        self.vectors = {name: vector.copy() for name, vector in state.items()}

    def models(self) -> np.ndarray:
        return np.stack([self.vectors[user] for user in range(self._users)])

    def close(self) -> None:
        """Nothing runs in the background."""

    def _play(self, operation: Operation) -> None:
        vectors, timings = self.vectors, self._timings
        if isinstance(operation, PLAIN):
            with timings.under("aggregation"):
                play(vectors, operation)
                if isinstance(operation, Combine):
                    _check(vectors[operation.destination], operation)
        elif isinstance(operation, Train):
            with timings.under("training"):
                source = vectors[operation.source]
                update = np.asarray(self._problem.local_update(source, operation.user, operation.number))
                _check(update, operation)
                vectors[operation.destination] = update
        elif isinstance(operation, Compress):
            with timings.under("aggregation"):
                source = vectors[operation.source]
                vectors[operation.destination] = compress(source, operation.compression, operation.draws)
        elif self._measured_users:
            with timings.under("evaluation"):
                taken = snapshot(operation, self.models(), self._measured_users)
                self._evaluations.append(measure(self._problem, taken))


def failed(operation: Operation) -> DivergedError:
    """What to say of an operation that made a value which is not finite."""
    assert isinstance(operation, Train | Combine | Copy)
    what = f"local update {operation.number}" if isinstance(operation, Train) else "applying updates"
    return DivergedError(time_s=operation.at_s, user=operation.user, operation=what)


def _check(vector: np.ndarray, operation: Train | Combine) -> None:
    if not are_finite(vector):
        raise failed(operation)
