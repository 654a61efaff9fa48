"""Which samples a user's SGD steps see: a function of (seed, user, step), so a position in an epoch is just a number.

"reshuffle" puts a user's samples in a new seeded order each epoch and cuts it into whole batches; the remainder is
left out of that epoch. "replacement" draws every batch afresh.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Literal

import numpy as np

from dracofl import rng


class Batches:
    def __init__(
        self,
        rows_by_user: Sequence[np.ndarray],
        batch: int,
        local_steps: int,
        order: Literal["reshuffle", "replacement"],
        seed: int,
    ) -> None:
        self._rows_by_user = rows_by_user
        self._batch = batch
        self._local_steps = local_steps
        self._order = order
        self._seed = seed
        self._shuffles = rng.Shuffles()
        self._turn = threading.Lock()  # the control plane draws ahead while a lane may look for what made a NaN
        self._begun: dict[int, tuple[int, np.ndarray]] = {}  # user -> the epoch it is in the middle of, and its batches

    def rows(self, user: int, number: int) -> np.ndarray:
        """Rows of the pooled training data for local update `number`: shape (local_steps, batch)."""
        if self._order == "replacement":
            return self._drawn(user, number)
        per_epoch = len(self._rows_by_user[user]) // self._batch
        first = number * self._local_steps
        end = first + self._local_steps
        with self._turn:
            batches = self._epochs(user, range(first // per_epoch, -(-end // per_epoch)))
            if end % per_epoch:
                last = batches if len(batches) == per_epoch else batches[-per_epoch:].copy()
                self._begun[user] = end // per_epoch, last
            else:
                self._begun.pop(user, None)
        start = first % per_epoch
        return batches[start : start + self._local_steps]

    def _drawn(self, user: int, number: int) -> np.ndarray:
        rows = self._rows_by_user[user]
        draws = rng.generator(self._seed, "batches", user, number)
        return rows[draws.integers(len(rows), size=(self._local_steps, self._batch))]

    def _epochs(self, user: int, epochs: range) -> np.ndarray:
        """The batches of these epochs, one after the other."""
        begun, batches = self._begun.get(user, (None, None))
        known = [batches] if begun == epochs[0] and batches is not None else []
        if len(known) < len(epochs):
            rows = self._rows_by_user[user]
            shuffled = self._shuffles.permutations(rows, epochs[len(known) :], self._seed, "batches", user)
            whole = len(rows) // self._batch
            known.append(shuffled[:, : whole * self._batch].reshape(-1, self._batch))
        return known[0] if len(known) == 1 else np.concatenate(known)
