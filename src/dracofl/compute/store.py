"""The store: every live vector in one array, a row a slot, which compiled programs read where it lies."""

from __future__ import annotations

import mmap

import jax
import numpy as np


class Store:
    """Memory mapped and hence aligned as XLA wants it, so that on a CPU a program reads it without a copy. Pages that
    were never written take no memory, so there is room to grow without moving."""

    def __init__(self, users: int, parameters: int, shared: bool) -> None:
        self._parameters = parameters
        self.shared = shared  # with programs on the CPU; those on another device are given copies
        self.rows = self._map(users + max(users, 1024))

    def make_room(self, slots: int) -> None:
        """Has to be called while nobody reads."""
        if slots > len(self.rows):
            before = self.rows
            self.rows = self._map(max(slots, 2 * len(before)))
            self.rows[: len(before)] = before

    def shown_to_programs(self, slots: list[int], room: int) -> jax.Array:
        """What a program is given to fetch from: the store itself, or, on another device, a copy of these rows, of
        which it can have at most `room`."""
        if self.shared:
            return self._alias
        copied = np.zeros((room, self._parameters), dtype=np.float32)
        copied[: len(slots)] = self.rows[slots]
        shown: jax.Array = jax.device_put(copied)
        return shown

    def _map(self, slots: int) -> np.ndarray:
        rows = np.frombuffer(mmap.mmap(-1, 4 * slots * self._parameters), dtype=np.float32)
        rows = rows.reshape(slots, self._parameters)
        if self.shared:
            # JAX takes arrays to be constant. This one changes, but only between the calls that read it.
            self._alias: jax.Array = jax.dlpack.from_dlpack(rows)
            assert self._alias.unsafe_buffer_pointer() == rows.ctypes.data, "a copy, which would never change"
        return rows
