"""Gathers rows while a run goes on, compactly, until they are saved."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from dracofl.telemetry.tables import SCHEMAS, concatenate, from_flat
from dracofl.trace import Rows, flatten

_ROWS_BEFORE_PACKING = 2048  # Python numbers take several times the room of an Arrow column


class Recorder:
    def __init__(self) -> None:
        self._flat: dict[str, list[Any]] = {name: [] for name in SCHEMAS}  # field after field, row after row
        self._packed: dict[str, list[pa.Table]] = {name: [] for name in SCHEMAS}

    def add(self, name: str, rows: Rows[Any] | Iterable[tuple[Any, ...]]) -> None:
        flat = self._flat[name]
        flat.extend(flatten(rows))
        if len(flat) >= _ROWS_BEFORE_PACKING * len(SCHEMAS[name]):
            self._pack(name)

    def take(self) -> dict[str, pa.Table]:
        """All rows since the last take."""
        for name in SCHEMAS:
            self._pack(name)
        taken = {name: concatenate(name, tables) for name, tables in self._packed.items()}
        self._packed = {name: [] for name in SCHEMAS}
        return taken

    def _pack(self, name: str) -> None:
        if self._flat[name]:
            self._packed[name].append(from_flat(name, self._flat[name]))
            self._flat[name] = []
