"""Real peers as processes on this machine, over loopback: `draco cluster`."""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import socket
import subprocess
import sys
import threading
import time
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from dracofl.build import build_world
from dracofl.config.load import load_config, read_source
from dracofl.config.node import fit_for_peers, make_node, refusals, shared_keys, split_overrides
from dracofl.config.render import to_toml
from dracofl.config.schema import Config
from dracofl.errors import ConfigError, DracoError
from dracofl.experiments.node import JOURNAL
from dracofl.experiments.picture import draw_picture
from dracofl.experiments.real_results import write_real_run
from dracofl.experiments.watch import stop_on_signals
from dracofl.runtime.journal import JournalFile
from dracofl.telemetry.folder import RunFolder
from dracofl.telemetry.run import Run
from dracofl.telemetry.storage import write_atomically
from dracofl.types import Graph

PEERS = "peers"
_MOST_NODES = 64
# If nobody says how fast the clock is to run, a cluster takes a minute: longer if this machine would be too busy, as
# every millisecond that a message waits for a processor is time_scale milliseconds of the configuration.
_SHOWN_FOR_S = 60.0
_MOST_TIME_SCALE = 100.0
_MESSAGES_PER_S_AND_CORE = 60.0
_READY_WITHIN_S = 300.0
# From "everybody is ready" to second 0: for each to find all others, or the first updates would be lost. Eight take
# some 1.5 s on two busy cores.
_HEAD_START_S, _HEAD_START_EACH_S = 1.0, 0.25
_ENDED_WITHIN_S = 30.0
_ITS_OWN = ("user", "listen", "connect", "folder", "starts_at")  # of each peer, for the cluster to say


class ClusterWatcher(Protocol):
    def said(self, sentence: str) -> None: ...

    def began(self, folder: str, config: Config, time_scale: float) -> None: ...

    def passed(self, statuses: dict[int, dict[str, Any]]) -> None: ...

    def ended(self) -> None: ...


def run_cluster(source: str, nodes: int, overrides: Sequence[str], out: Path | None, watcher: ClusterWatcher) -> Run:
    """To its end, or until it is stopped: the status in the summary tells."""
    if not 2 <= nodes <= _MOST_NODES:
        raise ConfigError(f"--nodes {nodes}: a cluster on one machine has 2 to {_MOST_NODES} peers")
    for_node, for_run = split_overrides(overrides)
    keys = {**shared_keys(read_source(source)), "users": nodes}
    config, changed = fit_for_peers(load_config(keys, for_run))
    problems = refusals(config)
    if config.users != nodes:
        problems.append(f"users={config.users}: how many peers there are is said by --nodes {config.users}")
    problems += [f"node.{name}: a cluster gives each peer its own" for name in _ITS_OWN if name in for_node]
    if problems:
        raise ConfigError(problems)
    for sentence in changed:
        watcher.said(sentence)
    graph = build_world(config).graph
    for_node.setdefault("time_scale", pleasant_time_scale(config, graph, os.cpu_count() or 1))
    files = _node_files(config, graph, for_node)  # what is wrong with them is found before a folder is made
    stamp = datetime.datetime.now().strftime("%Y%m%d-%H%M%S")
    path = out or Path("runs") / f"cluster-{Path(source).stem}-{stamp}"
    folder = RunFolder.create(path, to_toml(config, comments=False))
    cluster = _Cluster(config, folder, files, watcher)
    watcher.began(str(folder.path), config, for_node["time_scale"])
    try:
        stopped = cluster.run()
    finally:
        watcher.ended()
    gather(folder, config, "stopped" if stopped else "finished", cluster.began)
    if failure := cluster.failure():
        raise DracoError(f"{failure}. What the others did is gathered in {folder.path}")
    return Run(folder.path)


def gather(folder: RunFolder, config: Config, status: str, began: float) -> dict[str, Any]:
    """The peers' journals and models into one run folder, with every message settled."""
    journals: dict[int, JournalFile] = {}
    models: dict[int, np.ndarray] = {}
    for user in range(config.users):
        peer = folder.path / PEERS / str(user)
        if (peer / JOURNAL).exists():
            journals[user] = JournalFile(peer / JOURNAL)
        if (peer / "models.npy").exists():
            models[user] = np.load(peer / "models.npy", allow_pickle=False)[0]
    if not models:
        raise DracoError(f"no peer got as far as a result; their words are in {folder.path / PEERS}/*.log")
    unknown = np.full_like(next(iter(models.values())), np.nan)  # of a peer that did not get to its end
    rows = np.stack([models.get(user, unknown) for user in range(config.users)])
    summary = write_real_run(folder, config, journals, rows, status, began)
    draw_picture(folder)
    return summary


def pleasant_time_scale(config: Config, graph: Graph, cores: int) -> float:
    rates = config.compute.rate if config.transmit.when == "on-update" else config.transmit.rate
    of_each = rates if isinstance(rates, tuple) else (rates,) * config.users
    messages_per_s = sum(rate * len(receivers) for rate, receivers in zip(of_each, graph.successors, strict=True))
    bearable = cores * _MESSAGES_PER_S_AND_CORE / max(messages_per_s, 1e-9)
    return max(min(config.duration_s / _SHOWN_FOR_S, bearable, _MOST_TIME_SCALE), 1.0)


def _node_files(config: Config, graph: Graph, for_node: dict[str, Any]) -> dict[int, dict[str, Any]]:
    addresses = [f"tcp/127.0.0.1:{port}" for port in free_ports(config.users)]
    senders = graph.predecessors()
    body = tomllib.loads(to_toml(config, comments=False))
    files = {}
    for user in range(config.users):
        neighbours = sorted({*graph.successors[user], *senders[user]})
        section = {
            "user": user,
            "listen": [addresses[user]],
            "connect": [addresses[other] for other in neighbours],
            "network": f"cluster-{os.getpid()}",
            **for_node,
        }
        make_node({**body, "node": section})
        files[user] = section
    return files


def free_ports(count: int) -> list[int]:
    """Of this machine, at this moment: all are held until the last is found, so that they differ."""
    held = []
    try:
        for _ in range(count):
            one = socket.socket()
            held.append(one)
            one.bind(("127.0.0.1", 0))
        return [int(one.getsockname()[1]) for one in held]
    finally:
        for one in held:
            one.close()


class _Cluster:
    def __init__(
        self, config: Config, folder: RunFolder, files: dict[int, dict[str, Any]], watcher: ClusterWatcher
    ) -> None:
        self.began = time.time()
        self._config, self._folder, self._watcher = config, folder, watcher
        self._files = files
        self._statuses: dict[int, dict[str, Any]] = {}
        self._processes: dict[int, subprocess.Popen[str]] = {}
        self._listeners: list[threading.Thread] = []
        self._ready: set[int] = set()

    def run(self) -> bool:
        """Returns whether it was stopped before its time."""
        with stop_on_signals() as stop:
            try:
                for user in self._files:
                    self._start(user)
                self._wait_until(lambda: self._all_ready() or stop.requested, _READY_WITHIN_S, "ready")
                starts_at = time.time() + _HEAD_START_S + len(self._processes) * _HEAD_START_EACH_S
                for process in self._processes.values():
                    _tell(process, f"{starts_at!r}\n")
                while not stop.requested and any(one.poll() is None for one in self._processes.values()):
                    self._watcher.passed(dict(self._statuses))
                    time.sleep(0.2)
            finally:
                self._end()
            return stop.requested

    def _start(self, user: int) -> None:
        home = self._folder.path / PEERS / str(user)
        home.mkdir(parents=True)
        file = home.with_suffix(".toml")
        section = {**self._files[user], "folder": str(home.absolute())}
        text = to_toml(self._config, comments=False) + "\n[node]\n"
        text += "".join(f"{name} = {json.dumps(value, ensure_ascii=False)}\n" for name, value in section.items())
        write_atomically(file, lambda handle: handle.write(text.encode()))
        # One thread for BLAS: there are more peers than cores.
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        with open(home.with_suffix(".log"), "w") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "dracofl.experiments.cluster_peer", str(file)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=environment,
                start_new_session=True,  # a Ctrl-C is for this process, which passes it on in its own way
            )
        self._processes[user] = process
        listener = threading.Thread(target=self._listen, args=(user, process), daemon=True)
        self._listeners.append(listener)
        listener.start()

    def _listen(self, user: int, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        with process.stdout:
            for line in process.stdout:
                said = json.loads(line)
                if "ready" in said:
                    self._ready.add(user)
                elif "time_s" in said:
                    self._statuses[user] = said

    def _all_ready(self) -> bool:
        if any(process.poll() is not None for process in self._processes.values()):
            raise DracoError(self.failure() or f"a peer ended before it was ready; see {self._logs()}")
        return len(self._ready) == len(self._processes)

    def _wait_until(self, happened: Any, within_s: float, what: str) -> None:
        deadline = time.monotonic() + within_s
        while not happened():
            if time.monotonic() > deadline:
                raise DracoError(f"the peers are not {what} after {within_s:g} s; their words are in {self._logs()}")
            time.sleep(0.05)

    def _end(self) -> None:
        """All of them: asked first, then made to."""
        for process in self._processes.values():
            assert process.stdin is not None
            with contextlib.suppress(BrokenPipeError):
                process.stdin.close()
        deadline = time.monotonic() + _ENDED_WITHIN_S
        for process in self._processes.values():
            try:
                process.wait(timeout=max(deadline - time.monotonic(), 0.1))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        for listener in self._listeners:
            listener.join(timeout=1.0)  # what a peer started may hold its pipe open

    def failure(self) -> str:
        """Of the first peer that did not end well; nothing if all did."""
        failed = {user: one.returncode for user, one in self._processes.items() if one.returncode}
        if not failed:
            return ""
        user = min(failed)
        words = (self._folder.path / PEERS / f"{user}.log").read_text(errors="replace").strip().splitlines()
        ours = [line for line in words if line.startswith("draco: ")]  # a learner may have the last word
        last = (ours or words or ["it said nothing"])[-1].removeprefix("draco: ")
        return f"peer {user} ended with code {failed[user]}: {last}; see {self._logs()}"

    def _logs(self) -> str:
        return f"{self._folder.path / PEERS}/*.log"


def _tell(process: subprocess.Popen[str], text: str) -> None:
    assert process.stdin is not None
    with contextlib.suppress(BrokenPipeError):  # it has ended: its code and its words will be reported
        process.stdin.write(text)
        process.stdin.flush()
