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

    def take(self, names: Iterable[str] = tuple(SCHEMAS)) -> dict[str, pa.Table]:
        """All rows of these tables since the last take."""
        return {name: self._take(name) for name in names}

    def _take(self, name: str) -> pa.Table:
        self._pack(name)
        tables, self._packed[name] = self._packed[name], []
        return concatenate(name, tables)

    def _pack(self, name: str) -> None:
        if self._flat[name]:
            self._packed[name].append(from_flat(name, self._flat[name]))
            self._flat[name] = []
