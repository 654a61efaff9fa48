"""Many runs at once, one process a core. What is finished is not run again; what was stopped goes on.

A Ctrl-C is for the process that waits. It asks the workers, who do not hear of it otherwise, to save their runs and
stop; a second one does not wait for that. A worker whose master is gone, however it went, ends at once.
"""

from __future__ import annotations

import multiprocessing
import os
import queue
import signal
import threading
import tomllib
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dracofl.compute.reference import Evaluation
from dracofl.config.load import load_config
from dracofl.config.render import to_toml
from dracofl.config.schema import Config
from dracofl.errors import DivergedError, DracoError, Interrupted, RunFolderError
from dracofl.experiments.run import continue_run, run_config
from dracofl.experiments.watch import stop_on_signals
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
    """Every job's run, in order; jobs of one folder share its run.

    A diverged run is a result like others; any other failure ends it all. A Ctrl-C ends it with a KeyboardInterrupt.
    """
    different = {job.folder: job for job in jobs}.values()
    for job in jobs:
        _check_same(job)
    waiting = [job for job in different if not RunFolder(job.folder).finished]
    total_s = sum(job.config.duration_s for job in different)
    before_s = total_s - sum(job.config.duration_s for job in waiting)
    if waiting:
        workers = min(workers or len(os.sched_getaffinity(0)), len(waiting))
        _run_in_processes(waiting, workers, lambda done_s: on_progress(min(before_s + done_s, total_s), total_s))
    on_progress(total_s, total_s)
    return [Run(job.folder) for job in jobs]


def _check_same(job: Job) -> None:
    folder = RunFolder(job.folder)
    if folder.config_file.exists() and load_config(folder.config_file) != job.config:
        raise RunFolderError(f"{job.folder} holds a run of another configuration; name another folder with --out")


def _run_in_processes(jobs: Sequence[Job], workers: int, on_progress: Callable[[float], None]) -> None:
    context = multiprocessing.get_context("spawn")  # JAX has threads, which a fork would break
    reports, stop = context.Queue(), context.Event()
    their_end, lifeline = context.Pipe(duplex=False)
    done_s: dict[str, float] = {}
    with (
        lifeline,
        stop_on_signals() as asked_to_stop,
        ProcessPoolExecutor(workers, context, initializer=_serve, initargs=(reports, stop, their_end)) as pool,
    ):
        with _ctrl_c_kept_from_new_processes():
            running = {pool.submit(_work, to_toml(job.config, comments=False), str(job.folder)): job for job in jobs}
        their_end.close()
        try:
            left = set(running)
            while left:
                ended, left = wait(left, timeout=0.2)
                _drain(reports, done_s)
                for future in ended:
                    if not future.result():
                        raise KeyboardInterrupt
                    done_s[str(running[future].folder)] = running[future].config.duration_s  # also if it diverged
                if asked_to_stop.requested:
                    raise KeyboardInterrupt
                on_progress(sum(done_s.values()))
        except BrokenProcessPool:
            lifeline.close()
            if asked_to_stop.requested:  # by a signal to the whole group of processes
                raise KeyboardInterrupt from None
            raise DracoError(
                "a process that ran a part of the work was killed, perhaps for want of memory; "
                "repeat the same command to go on"
            ) from None
        except BaseException:
            stop.set()
            _let_them_save(running, lifeline)
            raise


@contextmanager
def _ctrl_c_kept_from_new_processes() -> Iterator[None]:
    """They inherit what is blocked. Here a Ctrl-C is only put off."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _drain(reports: Any, done_s: dict[str, float]) -> None:
    try:
        while True:
            name, now_s = reports.get_nowait()
            done_s[name] = max(now_s, done_s.get(name, 0.0))
    except queue.Empty:
        pass


def _let_them_save(running: Collection[Future[bool]], lifeline: Any) -> None:
    for future in running:
        future.cancel()
    try:
        wait(running)
    except BaseException:  # a second Ctrl-C
        lifeline.close()
        raise


# In a worker

_reports: Any = None
_stop: Any = None


def _serve(reports: Any, stop: Any, lifeline: Any) -> None:
    global _reports, _stop
    _reports, _stop = reports, stop
    reports.cancel_join_thread()  # who is no longer listened to need not finish telling
    threading.Thread(target=_end_with, args=(lifeline,), daemon=True).start()


def _end_with(lifeline: Any) -> None:
    lifeline.poll(None)  # nothing is ever sent: this returns when the other end is closed
    os._exit(1)


class _Reporter:
    """Watches a run in a worker, and tells the process that waits."""

    def __init__(self, name: str) -> None:
        self._name = name

    def began(self, folder: str, duration_s: float, now_s: float) -> None: ...

    def advanced(self, now_s: float, updates: int) -> None:
        _reports.put((self._name, now_s))
        if _stop.is_set():
            signal.raise_signal(signal.SIGTERM)  # on which a run saves itself and stops

    def evaluated(self, evaluation: Evaluation) -> None: ...

    def doubted(self, doubt: str) -> None: ...

    def ended(self) -> None: ...


def _work(config_toml: str, folder: str) -> bool:
    """Whether the run came to its end, a bad one included."""
    if _stop.is_set():
        return False
    files, watcher = RunFolder(Path(folder)), _Reporter(folder)
    try:
        if files.config_file.exists():
            continue_run(folder, watcher)
        else:
            files.config_file.with_name("config.toml.unfinished").unlink(missing_ok=True)  # of a process killed there
            run_config(tomllib.loads(config_toml), out=folder, watcher=watcher)
    except DivergedError:
        pass  # its folder says so
    except Interrupted:
        return False
    return True
