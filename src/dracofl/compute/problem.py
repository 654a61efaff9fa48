"""What an executor needs of a learning problem: numbers in, numbers out, models as flat float32 vectors."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import jax
import numpy as np

COMPILER_OPTIONS: dict[str, bool | str] = {"xla_cpu_multi_thread_eigen": False}
"""One thread an operation on the CPU: the bits must not depend on how many cores there are, and operations this small
gain nothing from being cut up."""


class Scores(NamedTuple):
    """One model on the test set. Accuracy and F1 are not numbers where there are no classes."""

    accuracy: float
    f1: float
    loss: float


class Problem(Protocol):
    @property
    def parameter_count(self) -> int: ...

    @property
    def local_steps(self) -> int:
        """SGD steps in one local update."""
        ...

    def init(self) -> np.ndarray:
        """The model that everybody starts from."""
        ...

    def compile_evaluation(self) -> None:
        """Build the programs of `evaluate` now, so that a run's time can be told apart from its compilation."""
        ...

    @property
    def pool(self) -> tuple[jax.Array, ...]:
        """The data of all users, as the compiled step reads it."""
        ...

    def batch(self, user: int, number: int) -> np.ndarray:
        """What local update `number` (from 0) of this user takes from the pool: int32, always of one shape."""
        ...

    def delta(self, flat: jax.Array, pool: tuple[jax.Array, ...], batch: jax.Array) -> jax.Array:
        """The update begun from the model `flat`: pure, to be compiled alone or inside a larger program."""
        ...

    def local_update(self, model: np.ndarray, user: int, number: int) -> jax.Array:
        """The update `number` of this user, begun from `model`, in a call of its own."""
        ...

    def evaluate(self, models: np.ndarray, final: bool) -> list[Scores]:
        """Scores of each row on the usual part of the test set, or on all of it."""
        ...

    def test_samples(self, final: bool) -> int: ...
