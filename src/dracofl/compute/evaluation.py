"""Everybody's model at one instant: first a copy, taken while the tape stands still, then its scores, at leisure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dracofl.compute.problem import Problem, Scores
from dracofl.tape import Evaluate


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The measured users' models, and the virtual mean model x-bar of all users, that nobody has."""

    at_s: float
    events: int
    final: bool
    samples: int
    users: list[Scores]  # of the measured users, the first ones
    distances: np.ndarray  # ||x(i) - x-bar|| of the same
    mean_model: Scores


@dataclass(frozen=True, slots=True)
class Snapshot:
    operation: Evaluate
    models: np.ndarray  # of the measured users
    mean: np.ndarray  # x-bar, float64


def snapshot(operation: Evaluate, models: np.ndarray, measured_users: int) -> Snapshot:
    """A copy that the tape may run away from."""
    return Snapshot(operation, models[:measured_users].copy(), models.mean(axis=0, dtype=np.float64))


def measure(problem: Problem, taken: Snapshot) -> Evaluation:
    operation = taken.operation
    distances = np.array([np.sqrt(np.square(model - taken.mean).sum()) for model in taken.models])
    rows: Sequence[np.ndarray] = [*taken.models, taken.mean.astype(np.float32)]
    *users, mean_model = problem.evaluate(np.stack(rows), operation.final)
    return Evaluation(
        operation.at_s,
        operation.events,
        operation.final,
        problem.test_samples(operation.final),
        users,
        distances,
        mean_model,
    )
