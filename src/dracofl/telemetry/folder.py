"""A run folder.

config.toml       the whole configuration: `draco run` of it repeats the run
summary.json      written last: a folder that has it is a finished run
metrics.parquet   a row per evaluation and user
messages.parquet  a row per message
events.parquet    a row per event
models.npy        the final models, a row a user
curves.png        the picture
checkpoint/       of a run that is not finished: its state, and its tables so far in parts
"""

from __future__ import annotations

import fcntl
import json
import shutil
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from dracofl.errors import RunFolderError
from dracofl.telemetry.storage import storage_errors, write_atomically
from dracofl.telemetry.tables import SCHEMAS, concatenate


class RunFolder:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.config_file = path / "config.toml"
        self.summary_file = path / "summary.json"
        self.models_file = path / "models.npy"
        self.picture_file = path / "curves.png"
        self.checkpoint_dir = path / "checkpoint"
        self.state_file = self.checkpoint_dir / "state.npz"

    @classmethod
    def create(cls, path: Path, config_toml: str) -> RunFolder:
        """A new folder. One that holds anything is left alone."""
        folder = cls(path)
        if path.is_file() or (path.is_dir() and any(path.iterdir())):
            hint = f"continue it with: draco run {path}" if folder.config_file.exists() else "name another"
            raise RunFolderError(f"{path} exists and is not empty; {hint}")
        with storage_errors(path):
            path.mkdir(parents=True, exist_ok=True)
        write_atomically(folder.config_file, lambda file: file.write(config_toml.encode()))
        return folder

    @classmethod
    def open(cls, path: Path) -> RunFolder:
        folder = cls(path)
        if not folder.config_file.is_file():
            raise RunFolderError(f"{path} is not a run folder: it has no config.toml")
        return folder

    @property
    def finished(self) -> bool:
        return self.summary_file.exists()

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Two processes that continue one run would spoil it."""
        with open(self.config_file) as held:
            try:
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise RunFolderError(f"{self.path} is in use by another process") from None
            yield

    def write_part(self, number: int, tables: dict[str, pa.Table]) -> None:
        """The rows since the last checkpoint. They count once a checkpoint says so."""
        with storage_errors(self.checkpoint_dir):
            self.checkpoint_dir.mkdir(exist_ok=True)
        for name, table in tables.items():
            write_atomically(self._part(name, number), _parquet(table))

    def read_parts(self, count: int, names: Iterable[str] = tuple(SCHEMAS)) -> dict[str, pa.Table]:
        return {
            name: concatenate(name, [_read(self._part(name, number), name) for number in range(count)])
            for name in names
        }

    def write_tables(self, tables: dict[str, pa.Table]) -> None:
        def write(name: str) -> None:
            write_atomically(self.path / f"{name}.parquet", _parquet(tables[name]))

        with ThreadPoolExecutor(len(tables)) as pool:  # it is the disk that takes its time
            list(pool.map(write, tables))

    def read_table(self, name: str) -> pa.Table:
        return _read(self.path / f"{name}.parquet", name)

    def write_models(self, models: np.ndarray) -> None:
        write_atomically(self.models_file, lambda file: np.save(file, models))

    def write_summary(self, summary: dict[str, Any]) -> None:
        """The last thing written: with it the run is finished, and its checkpoint is not needed."""
        text = json.dumps(summary, indent=2, allow_nan=False) + "\n"
        write_atomically(self.summary_file, lambda file: file.write(text.encode()))
        shutil.rmtree(self.checkpoint_dir, ignore_errors=True)

    def read_summary(self) -> dict[str, Any]:
        try:
            summary: dict[str, Any] = json.loads(self.summary_file.read_text())
            if not isinstance(summary, dict) or "status" not in summary:
                raise ValueError("it is not the summary of a run")
            return summary
        except FileNotFoundError:
            raise RunFolderError(
                f"{self.path} holds a run that is not finished; go on with: draco run {self.path}"
            ) from None
        except (OSError, ValueError) as error:
            raise RunFolderError(f"{self.summary_file} cannot be read: {error}") from None

    def _part(self, name: str, number: int) -> Path:
        return self.checkpoint_dir / f"{name}-{number:05d}.parquet"


def _parquet(table: pa.Table) -> Any:
    # Words and whole numbers repeat themselves, times do not: to look for repetitions there doubles the work.
    repeating = [column.name for column in table.schema if not pa.types.is_floating(column.type)]
    return lambda file: pq.write_table(table, file, compression="zstd", use_dictionary=repeating)


def _read(path: Path, name: str) -> pa.Table:
    try:
        with open(path, "rb") as file:  # pyarrow would want the name in UTF-8
            data = pa.BufferReader(file.read())
        # On no threads of Arrow's: a process that ends soon after they were started is aborted now and then.
        return pq.ParquetFile(data).read(use_threads=False).cast(SCHEMAS[name])
    except (OSError, pa.ArrowException, ValueError) as error:
        raise RunFolderError(f"{path} cannot be read: {error}") from None
