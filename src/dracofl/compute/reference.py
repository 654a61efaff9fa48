"""The reference executor: one operation at a time, in the order of the tape. The oracle for every faster one."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from dracofl.compute.compressors import compress
from dracofl.compute.problem import Problem, Scores
from dracofl.errors import DivergedError
from dracofl.tape import Combine, Compress, Copy, Evaluate, Free, Operation, Train


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Everybody's model at one instant, and the virtual mean model x-bar that nobody has."""

    at_s: float
    events: int
    final: bool
    samples: int
    users: list[Scores]
    distances: np.ndarray  # ||x(i) - x-bar||
    mean_model: Scores


class ReferenceExecutor:
    """Holds every live vector by name. Aggregation is NumPy in float32: in place, and without a dispatch a message."""

    def __init__(self, problem: Problem, users: int) -> None:
        self._problem = problem
        self._users = users
        start = problem.init()
        self.vectors: dict[int, np.ndarray] = {user: start.copy() for user in range(users)}

    def play(self, operations: Iterable[Operation], on_evaluation: Callable[[Evaluation], None]) -> None:
        """Carry out the operations; raise DivergedError at the first that makes a value non-finite."""
        with np.errstate(over="ignore", invalid="ignore"):  # found by the check, with more to say
            self._play(operations, on_evaluation)

    def _play(self, operations: Iterable[Operation], on_evaluation: Callable[[Evaluation], None]) -> None:
        vectors = self.vectors
        for operation in operations:
            if isinstance(operation, Combine):
                self._combine(operation)
                self._check(vectors[operation.destination], operation)
            elif isinstance(operation, Free):
                del vectors[operation.vector]
            elif isinstance(operation, Train):
                source = vectors[operation.source]
                update = np.asarray(self._problem.local_update(source, operation.user, operation.number))
                self._check(update, operation)
                vectors[operation.destination] = update
            elif isinstance(operation, Compress):
                source = vectors[operation.source]
                vectors[operation.destination] = compress(source, operation.compression, operation.draws)
            elif isinstance(operation, Copy):
                vectors[operation.destination] = vectors[operation.source].copy()
            else:
                on_evaluation(self._evaluate(operation))

    def models(self) -> np.ndarray:
        return np.stack([self.vectors[user] for user in range(self._users)])

    def model_hash(self) -> str:
        digest = hashlib.blake2b(digest_size=16)
        for user in range(self._users):
            digest.update(self.vectors[user].astype("<f4").tobytes())
        return digest.hexdigest()

    def _combine(self, operation: Combine) -> None:
        vectors = self.vectors
        destination, terms = operation.destination, operation.terms
        first, first_weight = terms[0]
        others = terms[1:]
        if first == destination and first_weight == 1.0 and destination not in [source for source, _ in others]:
            total = vectors[destination]
            if not total.flags.writeable:  # straight from JAX
                total = vectors[destination] = total.copy()
        else:
            total = np.float32(first_weight) * vectors[first]
        for source, weight in others:
            total += np.float32(weight) * vectors[source]
        vectors[destination] = total

    @staticmethod
    def _check(vector: np.ndarray, operation: Train | Combine) -> None:
        # One pass of BLAS suspects; the exact test runs only then, as the square of a large finite vector overflows.
        if not np.isfinite(vector.dot(vector)) and not np.isfinite(vector).all():
            what = f"local update {operation.number}" if isinstance(operation, Train) else "applying updates"
            raise DivergedError(time_s=operation.at_s, user=operation.user, operation=what)

    def _evaluate(self, operation: Evaluate) -> Evaluation:
        models = self.models()
        mean = models.mean(axis=0, dtype=np.float64)
        distances = np.sqrt(((models - mean) ** 2).sum(axis=1))
        rows = np.concatenate([models, mean[None].astype(np.float32)])
        *users, mean_model = self._problem.evaluate(rows, operation.final)
        return Evaluation(
            operation.at_s,
            operation.events,
            operation.final,
            self._problem.test_samples(operation.final),
            users,
            distances,
            mean_model,
        )
