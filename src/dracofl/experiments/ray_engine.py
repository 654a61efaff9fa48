"""Many runs at once on a Ray cluster that is there already: the tasks of the local engine, one core each.

Every machine of the cluster needs this package and sees the folder of the runs under the same path. A run whose worker
dies is begun again elsewhere, and goes on from its last checkpoint. Workers and the process that waits talk through a
desk, an actor: news of the runs one way, the wish to stop the other way.
"""

from __future__ import annotations

import importlib
import logging
import os
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import dracofl
from dracofl.compute.compiled import ONE_CORE
from dracofl.config.render import to_toml
from dracofl.errors import DracoError
from dracofl.experiments.engine import Job, OnRun, Tally, carry_out, refuse_no_workers
from dracofl.experiments.watch import stop_on_signals

try:
    ray: Any = importlib.import_module("ray")  # which mypy need not know
    exceptions: Any = importlib.import_module("ray.exceptions")
    scheduling: Any = importlib.import_module("ray.util.scheduling_strategies")
except ImportError:
    raise DracoError("--engine ray needs Ray: pip install 'dracofl[ray]'") from None

RETRIES = 5  # of a run whose worker died
_SECONDS_BETWEEN_NEWS = 0.5
_SECONDS_TO_ANSWER = 5.0


@contextmanager
def connected(address: str | None, workers: int | None) -> Iterator[RayEngine]:
    """The cluster at the address, or at RAY_ADDRESS, or the one of this machine. One in use already stays so."""
    refuse_no_workers(workers)
    mine = not ray.is_initialized()
    if mine:
        _connect(address or os.environ.get("RAY_ADDRESS") or "auto")
    try:
        yield RayEngine(workers)
    finally:
        if mine:
            ray.shutdown()


def _connect(address: str) -> None:
    try:
        _knock(address)
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
    except (OSError, ValueError, RuntimeError) as error:
        where = "on this machine" if address == "auto" else f"at {address}"
        reason = "" if address == "auto" else f" ({error})"
        raise DracoError(
            f"no Ray cluster was found {where}{reason}; start one with: ray start --head, "
            "and name it with --address HOST:PORT if it is on another machine"
        ) from None


def _knock(address: str) -> None:
    """Ray itself would wait for minutes where nobody answers."""
    host, colon, port = address.rpartition(":")
    if colon and port.isdecimal() and "/" not in host:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_SECONDS_TO_ANSWER).close()


class RayEngine:
    """Tasks on the cluster, all at once or so many at a time."""

    def __init__(self, workers: int | None) -> None:
        self._workers = workers

    def run(self, jobs: Sequence[Job], on_progress: Callable[[float], None], on_run: OnRun | None) -> None:
        here = scheduling.NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=True)
        desk = ray.remote(_Desk).options(num_cpus=0, max_restarts=-1, scheduling_strategy=here).remote()
        task = ray.remote(_work).options(
            num_cpus=1, max_retries=RETRIES, runtime_env={"env_vars": ONE_CORE}, name="dracofl run"
        )
        tally, waiting = Tally(jobs, on_run), list(reversed(jobs))
        running: dict[Any, Job] = {}
        news = None
        with stop_on_signals() as asked_to_stop:
            try:
                while waiting or running:
                    while waiting and len(running) < (self._workers or len(jobs)):
                        job = waiting.pop()
                        running[task.remote(*_described(job), desk, dracofl.__version__)] = job
                    ended, _ = ray.wait(list(running), num_returns=len(running), timeout=0.2)
                    for one in ended:
                        if not _result(one):
                            raise KeyboardInterrupt
                        tally.ended(running.pop(one))
                    if asked_to_stop.requested:
                        raise KeyboardInterrupt
                    if news is None or _ready(news):
                        for name, now_s in (_answer(news) or {}).items():
                            tally.advanced(name, now_s)
                        news = desk.news.remote()
                    on_progress(tally.done_s)
            except BaseException:
                _let_them_save(running, desk)
                raise
            finally:
                ray.kill(desk)


def _described(job: Job) -> tuple[str, str, str]:
    """The configuration, a name for it, and its folder, as a worker may be anywhere."""
    return to_toml(job.config, comments=False), str(job.folder), str(job.folder.absolute())


def _result(task: Any) -> bool:
    try:
        return bool(ray.get(task))
    except exceptions.RayTaskError as error:
        if isinstance(error.cause, DracoError):
            raise error.cause from None
        if "failed to import on the worker" in str(error):
            raise DracoError("a machine of the Ray cluster cannot import dracofl: install it there too") from None
        raise
    except exceptions.RayError as error:
        reason = str(error).strip().splitlines()[0]
        raise DracoError(
            f"Ray gave up on a part of the work after {RETRIES} retries: {reason}; repeat the same command to go on"
        ) from None


def _let_them_save(running: dict[Any, Job], desk: Any) -> None:
    """Those that have begun are asked to; a second Ctrl-C does not wait for them."""
    try:
        begun = ray.get(desk.stop.remote())
        for one, job in running.items():
            if str(job.folder) not in begun:
                ray.cancel(one)
        if running:
            ray.wait(list(running), num_returns=len(running))
    except exceptions.RayError:
        pass  # the cluster is gone, and they with it


class _Desk:
    """Where workers leave their news, and learn that they are to stop."""

    def __init__(self) -> None:
        self._begun: set[str] = set()
        self._news: dict[str, float] = {}
        self._stopping = False

    def tell(self, name: str, now_s: float) -> bool:
        self._begun.add(name)
        self._news[name] = now_s
        return self._stopping

    def news(self) -> dict[str, float]:
        found, self._news = self._news, {}
        return found

    def stop(self) -> set[str]:
        self._stopping = True
        return self._begun


# In a worker


def _work(config_toml: str, name: str, folder: str, desk: Any, version: str) -> bool:
    if version != dracofl.__version__:
        raise DracoError(f"a machine of the Ray cluster has dracofl {dracofl.__version__}, and this one {version}")
    answer, told_at, stopping = desk.tell.remote(name, 0.0), time.monotonic(), False

    def tell(now_s: float) -> bool:
        """Never waits: the answer is that to an earlier call."""
        nonlocal answer, told_at, stopping
        if _ready(answer):
            stopping = stopping or bool(_answer(answer))
            if time.monotonic() - told_at > _SECONDS_BETWEEN_NEWS:
                answer, told_at = desk.tell.remote(name, now_s), time.monotonic()
        return stopping

    return not _answer(answer) and carry_out(config_toml, folder, tell)


def _ready(answer: Any) -> bool:
    return bool(ray.wait([answer], timeout=0)[0])


def _answer(answer: Any) -> Any:
    """None if there is none: a desk that is gone is no reason to fail."""
    try:
        return None if answer is None else ray.get(answer)
    except exceptions.RayError:
        return None
