"""Many runs at once. What is finished is not run again; what was stopped goes on.

An engine is what carries runs out: `Local` here, one process a core, or `ray_engine` on a cluster.

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
from typing import Any, Protocol

from dracofl.compute.compiled import ONE_CORE
from dracofl.compute.evaluation import Evaluation
from dracofl.config.load import load_config
from dracofl.config.render import to_toml
from dracofl.config.schema import Config
from dracofl.errors import ConfigError, DivergedError, DracoError, Interrupted, RunFolderError
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

Announce = Callable[[str], Progress]
"""Given a headline, returns who is to be told of the progress under it."""

OnRun = Callable[[Job, float], None]
"""Told how much simulated time of one run is done; all of it when the run has ended, well or badly."""


class Engine(Protocol):
    def run(self, jobs: Sequence[Job], on_progress: Callable[[float], None], on_run: OnRun | None) -> None:
        """Bring every job to its end; a diverged run is one. A Ctrl-C saves them and ends in a KeyboardInterrupt."""
        ...


@dataclass(frozen=True)
class Local:
    """Processes on this machine, one a core unless told how many."""

    workers: int | None = None

    def __post_init__(self) -> None:
        refuse_no_workers(self.workers)

    def run(self, jobs: Sequence[Job], on_progress: Callable[[float], None], on_run: OnRun | None) -> None:
        workers = min(self.workers or len(os.sched_getaffinity(0)), len(jobs))
        _run_in_processes(jobs, workers, on_progress, on_run)


def refuse_no_workers(workers: int | None) -> None:
    if workers is not None and workers < 1:
        raise ConfigError(f"--workers {workers}: there must be at least one")


@contextmanager
def open_engine(name: str = "local", address: str | None = None, workers: int | None = None) -> Iterator[Engine]:
    """The engine of that name, ready to work."""
    if name == "local":
        if address is not None:
            raise ConfigError("--address is where a Ray cluster is: say --engine ray too")
        yield Local(workers)
    elif name == "ray":
        from dracofl.experiments.ray_engine import connected

        with connected(address, workers) as engine:
            yield engine
    else:
        raise ConfigError(f'"{name}" is not an engine; choose from local, ray')


def run_all(
    jobs: Sequence[Job], on_progress: Progress, engine: Engine | None = None, on_run: OnRun | None = None
) -> list[Run]:
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
        (engine or Local()).run(waiting, lambda done_s: on_progress(min(before_s + done_s, total_s), total_s), on_run)
    on_progress(total_s, total_s)
    return [Run(job.folder) for job in jobs]


class Tally:
    """How far each of the jobs has come, as their workers tell."""

    def __init__(self, jobs: Sequence[Job], on_run: OnRun | None) -> None:
        self._jobs = {str(job.folder): job for job in jobs}
        self._done_s: dict[str, float] = {}
        self._on_run = on_run

    def advanced(self, name: str, now_s: float) -> None:
        if now_s >= self._done_s.get(name, 0.0):  # one that was killed and goes on has been there before
            self._done_s[name] = now_s
            if self._on_run is not None:
                self._on_run(self._jobs[name], now_s)

    def ended(self, job: Job) -> None:
        self.advanced(str(job.folder), job.config.duration_s)  # also if it diverged

    @property
    def done_s(self) -> float:
        return sum(self._done_s.values())


def _check_same(job: Job) -> None:
    folder = RunFolder(job.folder)
    if folder.config_file.exists() and load_config(folder.config_file) != job.config:
        raise RunFolderError(f"{job.folder} holds a run of another configuration; name another folder with --out")


def _run_in_processes(
    jobs: Sequence[Job], workers: int, on_progress: Callable[[float], None], on_run: OnRun | None
) -> None:
    context = multiprocessing.get_context("spawn")  # JAX has threads, which a fork would break
    reports, stop = context.Queue(), context.Event()
    their_end, lifeline = context.Pipe(duplex=False)
    tally = Tally(jobs, on_run)
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
                _drain(reports, tally)
                for future in ended:
                    if not future.result():
                        raise KeyboardInterrupt
                    tally.ended(running[future])
                if asked_to_stop.requested:
                    raise KeyboardInterrupt
                on_progress(tally.done_s)
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


def _drain(reports: Any, tally: Tally) -> None:
    try:
        while True:
            tally.advanced(*reports.get_nowait())
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
    os.environ.update(ONE_CORE)  # there are as many runs as cores
    reports.cancel_join_thread()  # who is no longer listened to need not finish telling
    threading.Thread(target=_end_with, args=(lifeline,), daemon=True).start()


def _end_with(lifeline: Any) -> None:
    lifeline.poll(None)  # nothing is ever sent: this returns when the other end is closed
    os._exit(1)


class Reporter:
    """Watches a run in a worker, tells the process that waits, and learns from it whether to stop."""

    def __init__(self, tell: Callable[[float], bool]) -> None:
        self._tell = tell
        self._told_to_stop = False

    def began(self, folder: str, duration_s: float, now_s: float) -> None: ...

    def advanced(self, now_s: float, updates: int) -> None:
        self._told_to_stop = self._tell(now_s)

    def wants_to_stop(self) -> bool:
        return self._told_to_stop

    def evaluated(self, evaluation: Evaluation) -> None: ...

    def doubted(self, doubt: str) -> None: ...

    def ended(self) -> None: ...


def carry_out(config_toml: str, folder: str, tell: Callable[[float], bool]) -> bool:
    """Begin a run or go on with it. Whether it came to its end, a bad one included."""
    files, watcher = RunFolder(Path(folder)), Reporter(tell)
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


def _work(config_toml: str, folder: str) -> bool:
    def tell(now_s: float) -> bool:
        _reports.put((folder, now_s))
        return bool(_stop.is_set())

    return not _stop.is_set() and carry_out(config_toml, folder, tell)
