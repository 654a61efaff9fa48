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
        self._epochs: dict[int, tuple[int, np.ndarray]] = {}  # user -> its latest epoch and that epoch's batches

    def rows(self, user: int, number: int) -> np.ndarray:
        """Rows of the pooled training data for local update `number`: shape (local_steps, batch)."""
        if self._order == "replacement":
            return self._drawn(user, number)
        per_epoch = len(self._rows_by_user[user]) // self._batch
        epoch, start = divmod(number * self._local_steps, per_epoch)
        if start + self._local_steps <= per_epoch:
            return self._epoch(user, epoch)[start : start + self._local_steps]
        parts, left = [], self._local_steps
        while left:
            parts.append(self._epoch(user, epoch)[start : start + left])
            left -= len(parts[-1])
            epoch, start = epoch + 1, 0
        return np.concatenate(parts)

    def _drawn(self, user: int, number: int) -> np.ndarray:
        rows = self._rows_by_user[user]
        draws = rng.generator(self._seed, "batches", user, number)
        return rows[draws.integers(len(rows), size=(self._local_steps, self._batch))]

    def _epoch(self, user: int, epoch: int) -> np.ndarray:
        with self._turn:
            kept = self._epochs.get(user)
            if kept is not None and kept[0] == epoch:
                return kept[1]
            rows = self._rows_by_user[user]
            shuffled = self._shuffles.permutation(rows, self._seed, "batches", user, epoch)
            whole = len(rows) // self._batch
            batches = shuffled[: whole * self._batch].reshape(whole, self._batch)
            self._epochs[user] = epoch, batches
            return batches
