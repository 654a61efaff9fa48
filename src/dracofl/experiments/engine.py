"""Many runs at once, one process a core. What is finished is not run again; what was stopped goes on."""

from __future__ import annotations

import multiprocessing
import os
import queue
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dracofl.compute.reference import Evaluation
from dracofl.config.load import load_config
from dracofl.config.render import to_toml
from dracofl.config.schema import Config
from dracofl.errors import DivergedError, RunFolderError
from dracofl.experiments.run import continue_run, run_config
from dracofl.telemetry.folder import RunFolder
from dracofl.telemetry.run import Run


@dataclass(frozen=True, slots=True)
class Job:
    """One run: what, and where."""

    config: Config
    folder: Path


Progress = Callable[[float, float], None]
"""Told how much simulated time is done, of how much."""


def run_all(jobs: Sequence[Job], on_progress: Progress, workers: int | None = None) -> list[Run]:
    """Every job's run, in order. A diverged run is a result like others; any other failure ends it all."""
    total_s = sum(job.config.duration_s for job in jobs)
    done_s: dict[str, float] = {}
    workers = min(workers or len(os.sched_getaffinity(0)), len(jobs)) if jobs else 0
    waiting = [job for job in jobs if not RunFolder(job.folder).finished]
    for job in jobs:
        _check_same(job)
        if job not in waiting:
            done_s[str(job.folder)] = job.config.duration_s
    if waiting:
        context = multiprocessing.get_context("spawn")  # JAX has threads, which a fork would break
        reports: Any = context.Queue()
        with ProcessPoolExecutor(workers, mp_context=context, initializer=_listen, initargs=(reports,)) as pool:
            running = {pool.submit(_work, to_toml(job.config, comments=False), str(job.folder)) for job in waiting}
            try:
                while running:
                    ended, running = wait(running, timeout=0.2)
                    for future in ended:
                        future.result()
                    _drain(reports, done_s)
                    on_progress(min(sum(done_s.values()), total_s), total_s)
            except BaseException:
                pool.shutdown(wait=True, cancel_futures=True)
                raise
    on_progress(total_s, total_s)
    return [Run(job.folder) for job in jobs]


def _check_same(job: Job) -> None:
    folder = RunFolder(job.folder)
    if folder.config_file.exists() and load_config(folder.config_file) != job.config:
        raise RunFolderError(f"{job.folder} holds a run of another configuration; name another folder with --out")


def _drain(reports: Any, done_s: dict[str, float]) -> None:
    try:
        while True:
            name, now_s = reports.get_nowait()
            done_s[name] = now_s
    except queue.Empty:
        pass


class _Reporter:
    """Watches a run in a worker, and tells the process that waits."""

    def __init__(self, name: str) -> None:
        self._name = name

    def began(self, folder: str, duration_s: float, now_s: float) -> None: ...

    def advanced(self, now_s: float, updates: int) -> None:
        _reports.put((self._name, now_s))

    def evaluated(self, evaluation: Evaluation) -> None: ...

    def doubted(self, doubt: str) -> None: ...

    def ended(self) -> None: ...


_reports: Any = None  # of this worker process


def _listen(reports: Any) -> None:
    global _reports
    _reports = reports


def _work(config_toml: str, folder: str) -> None:
    import tomllib

    watcher = _Reporter(folder)
    try:
        if RunFolder(Path(folder)).config_file.exists():
            continue_run(folder, watcher)
        else:
            run_config(tomllib.loads(config_toml), out=folder, watcher=watcher)
    except DivergedError:
        pass  # its folder says so
