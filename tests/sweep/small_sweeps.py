"""Sweeps of runs that take a moment, carried out in this process, and what is found in their folders."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from dracofl.config.render import to_toml
from dracofl.experiments import engine, run
from dracofl.experiments.engine import Job, OnRun

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


class HereAndNow:
    """In the place of worker processes: one run after the other, in this process, and a note of each."""

    def __init__(self) -> None:
        self.begun: list[Path] = []
        self.stop_before: int | None = None  # a Ctrl-C before the run of this number

    def __call__(
        self,
        jobs: Sequence[Job],
        workers: int,
        on_progress: Callable[[float], None],
        on_run: OnRun | None = None,
    ) -> None:
        assert 1 <= workers <= len(jobs)
        for job in jobs:
            if self.stop_before == len(self.begun):
                raise KeyboardInterrupt
            self.begun.append(job.folder)
            assert engine._work(to_toml(job.config, comments=False), str(job.folder))
            if on_run is not None:
                on_run(job, job.config.duration_s)
            on_progress(sum(one.config.duration_s for one in jobs[: len(self.begun)]))


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> HereAndNow:
    stand_in = HereAndNow()
    monkeypatch.setattr(engine, "_run_in_processes", stand_in)
    monkeypatch.setattr(engine, "_reports", queue.Queue())
    monkeypatch.setattr(engine, "_stop", threading.Event())
    monkeypatch.setattr(run, "draw_curves", lambda *_: None)  # the picture of a single run takes longer than the run
    return stand_in


def rows(folder: Path) -> list[dict[str, Any]]:
    with open(folder / "results.parquet", "rb") as file:
        found: list[dict[str, Any]] = pq.read_table(file).to_pylist()
    return found


def hashes(folder: Path) -> dict[str, tuple[str, str]]:
    return {row["folder"]: (row["trace_hash"], row["model_hash"]) for row in rows(folder)}


def identities(folder: Path) -> dict[Path, tuple[int, int]]:
    """Of the summaries: a run that was done again has another."""
    return {path: (path.stat().st_ino, path.stat().st_mtime_ns) for path in folder.rglob("summary.json")}
