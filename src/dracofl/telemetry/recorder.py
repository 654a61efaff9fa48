"""Gathers rows while a run goes on, compactly, until they are saved."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from dracofl.telemetry.tables import SCHEMAS, concatenate, to_table

_ROWS_BEFORE_PACKING = 20_000  # Python tuples take several times the room of an Arrow column


class Recorder:
    def __init__(self) -> None:
        self._rows: dict[str, list[tuple[object, ...]]] = {name: [] for name in SCHEMAS}
        self._packed: dict[str, list[pa.Table]] = {name: [] for name in SCHEMAS}

    def add(self, name: str, rows: Sequence[tuple[object, ...]]) -> None:
        waiting = self._rows[name]
        waiting.extend(rows)
        if len(waiting) >= _ROWS_BEFORE_PACKING:
            self._pack(name)

    def take(self) -> dict[str, pa.Table]:
        """All rows since the last take."""
        for name in SCHEMAS:
            self._pack(name)
        taken = {name: concatenate(name, tables) for name, tables in self._packed.items()}
        self._packed = {name: [] for name in SCHEMAS}
        return taken

    def _pack(self, name: str) -> None:
        if self._rows[name]:
            self._packed[name].append(to_table(name, self._rows[name]))
            self._rows[name] = []
