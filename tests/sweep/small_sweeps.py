"""Sweeps of runs that take a moment, carried out in this process, and what is found in their folders."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

QUADRATIC = (
    "executor=reference",
    "task.kind=quadratic",
    "users=3",
    "duration_s=30",
    "compute.rate=1.0",
    "evaluate.every_s=10",
    "channel.kind=exponential",
    "channel.rate=0.2",
    "checkpoint.every_s=none",
)
"""Of `tiny`: no classes, and no model to speak of, and little to compile."""

DIVERGES = "train.step=1e30"


def rows(folder: Path) -> list[dict[str, Any]]:
    with open(folder / "results.parquet", "rb") as file:
        found: list[dict[str, Any]] = pq.read_table(file).to_pylist()
    return found


def hashes(folder: Path) -> dict[str, tuple[str, str]]:
    return {row["folder"]: (row["trace_hash"], row["model_hash"]) for row in rows(folder)}


def identities(folder: Path) -> dict[Path, tuple[int, int]]:
    """Of the summaries: a run that was done again has another."""
    return {path: (path.stat().st_ino, path.stat().st_mtime_ns) for path in folder.rglob("summary.json")}
