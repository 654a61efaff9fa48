"""What a run asks of whatever plays its tape."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from dracofl.compute.evaluation import Evaluation
from dracofl.tape import Operation


class Executor(Protocol):
    def compile(self) -> None:
        """Build every program now, so that a run's time can be told apart from its compilation."""
        ...

    def prepare(self, operations: Sequence[Operation]) -> Any:
        """Get a stretch ready to be played. Stretches are prepared in order, in another thread than they are played,
        and possibly ahead of it."""
        ...

    def play(self, prepared: Any) -> None:
        """Carry it out; raise DivergedError if an operation makes a value that is not finite."""
        ...

    def evaluations(self, wait: bool) -> list[Evaluation]:
        """Those finished since the last call, in order; all that were asked for, if told to wait."""
        ...

    def state(self) -> dict[int, np.ndarray]:
        """Every live vector by name. Only while everything that is prepared has been played."""
        ...

    def restore(self, state: dict[int, np.ndarray]) -> None: ...

    def models(self) -> np.ndarray:
        """A row a user."""
        ...

    def close(self) -> None:
        """Stop what runs in the background."""
        ...


def hash_of(models: np.ndarray) -> str:
    return hashlib.blake2b(np.ascontiguousarray(models, dtype="<f4").data, digest_size=16).hexdigest()
