"""A finished run, read back from its folder."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from dracofl.errors import RunFolderError
from dracofl.telemetry.folder import RunFolder


class Run:
    """What a run found. Tables are dictionaries of equally long NumPy arrays: `pandas.DataFrame(run.metrics)` works."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._files = RunFolder.open(folder)
        self.summary: dict[str, Any] = self._files.read_summary()

    def __repr__(self) -> str:
        return f"Run({str(self.folder)!r}, {self.summary['status']})"

    @functools.cached_property
    def metrics(self) -> dict[str, np.ndarray]:
        """A row per evaluation and user."""
        return _columns(self._files.read_table("metrics"))

    @functools.cached_property
    def messages(self) -> dict[str, np.ndarray]:
        """A row per message and intended receiver."""
        return _columns(self._files.read_table("messages"))

    @functools.cached_property
    def events(self) -> dict[str, np.ndarray]:
        """A row per event of the timeline."""
        return _columns(self._files.read_table("events"))

    @functools.cached_property
    def models(self) -> np.ndarray:
        """The final models, a row a user."""
        try:
            models: np.ndarray = np.load(self._files.models_file, allow_pickle=False)
            return models
        except (OSError, ValueError, EOFError) as error:
            raise RunFolderError(f"{self._files.models_file} cannot be read: {error}") from None

    @functools.cached_property
    def config_toml(self) -> str:
        return self._files.config_file.read_text()

    def curve(self, metric: str = "accuracy") -> tuple[np.ndarray, np.ndarray]:
        """Times of the evaluations, and the metric there: shape (evaluations,) and (evaluations, users)."""
        shape = (-1, len(np.unique(self.metrics["user"])))
        return self.metrics["time_s"].reshape(shape)[:, 0], self.metrics[metric].reshape(shape)


def _columns(table: pa.Table) -> dict[str, np.ndarray]:
    found = {}
    for name in table.column_names:
        column = table[name]
        if pa.types.is_dictionary(column.type):
            column = column.cast(pa.string())
        found[name] = column.to_numpy()
    return found
