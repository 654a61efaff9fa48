"""Runs of an engine carried out in this process, one after the other: processes of their own would take longer."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence

import pytest

from dracofl.config.render import to_toml
from dracofl.experiments import engine, run
from dracofl.experiments.engine import Job, OnRun


class HereAndNow:
    """In the place of worker processes: one run after the other, in this process, and a note of each."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.stop_before: int | None = None  # a Ctrl-C before the run of this number

    def __call__(
        self, jobs: Sequence[Job], workers: int, on_progress: Callable[[float], None], on_run: OnRun | None
    ) -> None:
        assert 1 <= workers <= len(jobs)
        done_s = 0.0
        for job in jobs:
            if self.stop_before == len(self.begun):
                raise KeyboardInterrupt
            self.begun.append(str(job.folder))
            assert engine._work(to_toml(job.config, comments=False), str(job.folder))
            if on_run is not None:
                on_run(job, job.config.duration_s)
            done_s += job.config.duration_s
            on_progress(done_s)


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> HereAndNow:
    stand_in = HereAndNow()
    monkeypatch.setattr(engine, "_run_in_processes", stand_in)
    monkeypatch.setattr(engine, "_reports", queue.Queue())
    monkeypatch.setattr(engine, "_stop", threading.Event())
    monkeypatch.setattr(run, "draw_curves", lambda *_: None)  # the picture of a single run takes longer than the run
    return stand_in
