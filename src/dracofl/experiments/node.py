"""One real peer, from its file to its results: `draco node`."""

from __future__ import annotations

import hashlib
import math
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Protocol

import jax
import numpy as np

from dracofl.build import build_medium, build_peer_core, build_problem, build_world
from dracofl.channels.interface import Medium
from dracofl.config.node import Node
from dracofl.config.render import to_toml
from dracofl.config.schema import Config
from dracofl.errors import RunFolderError
from dracofl.experiments.memory import few_collections, give_back, keep_blocks
from dracofl.experiments.real_results import write_real_run
from dracofl.experiments.watch import Stop, stop_on_signals
from dracofl.protocol.commands import Happening
from dracofl.protocol.headers import HEADER_BYTES, shape_of
from dracofl.protocol.peer import PeerCore, PeerState
from dracofl.runtime import save
from dracofl.runtime.certificates import Certificates, check
from dracofl.runtime.clock import PeerClock
from dracofl.runtime.journal import FileJournal, JournalFile, Line
from dracofl.runtime.learners import Learner, TaskLearner, load_learner
from dracofl.runtime.peer import Peer
from dracofl.runtime.ports import Limits
from dracofl.runtime.service import Pace, Service
from dracofl.runtime.zenoh import ZenohTransport
from dracofl.runtime.zenoh_options import ZenohOptions
from dracofl.telemetry.folder import RunFolder
from dracofl.telemetry.run import Run

JOURNAL = "journal.jsonl"
STATE = "peer.npz"
_TURN_S = 2e-4


class NodeWatcher(Protocol):
    """Who watches one peer."""

    def ready(self) -> float | None:
        """Everything is set up. Returns the Unix time of second 0, if somebody else decides it."""
        ...

    def began(self, node: Node, neighbours: tuple[int, ...], folder: str, resumed: bool) -> None: ...

    def passed(self, service: Service, now_s: float) -> None: ...

    def wants_to_stop(self) -> bool: ...


def run_node(config: Config, node: Node, watcher: NodeWatcher) -> Run:
    """Until its duration is over, or it is told to stop; started again, it goes on."""
    # Messages are taken by threads of the network's, each for a moment: with Python's own 5 ms a turn they would wait.
    sys.setswitchinterval(_TURN_S)
    session = _Session(config, node)
    with session.folder.lock(), stop_on_signals() as stop:
        session.run(watcher, stop)
    return Run(session.folder.path)


def make_learner(config: Config, node: Node) -> Learner:
    if node.learner is not None:
        return load_learner(node.learner, node.user, config.users)
    learner = TaskLearner(build_problem(config), node.user)
    learner.warm_up()
    give_back()
    return learner


def radio_of(config: Config) -> Medium | None:
    """The radio in software; none where the network is to be used as it is."""
    return None if config.channel.kind == "ideal" else build_medium(config, build_world(config))


def limits_of(config: Config, node: Node, start: np.ndarray) -> Limits:
    deadline_s = node.deadline_s or getattr(config.channel, "deadline_s", None) or math.inf
    # Updates mean the same to peers that began from the same model: that is part of its shape.
    shape = shape_of(len(start), start.astype("<f4").tobytes())
    return Limits(shape, len(start), node.norm_limit, deadline_s)


def identity_of(config_toml: str, user: int) -> str:
    return hashlib.blake2b(f"{user}\n{config_toml}".encode(), digest_size=16).hexdigest()


def _network_options(config: Config, node: Node) -> ZenohOptions:
    files = None if node.certificates is None else Certificates.in_folder(Path(node.certificates), node.user)
    if files is not None:
        check(files, node.user)
    return ZenohOptions(
        network=node.network,
        user=node.user,
        users=config.users,
        epoch=0,
        listen=node.listen,
        connect=node.connect,
        discovery=node.discovery,
        certificates=files,
        insecure=node.insecure,
        lease_s=node.lease_s,
    )


class _Session:
    def __init__(self, config: Config, node: Node) -> None:
        self._config, self._node = config, node
        self._began = time.time()
        self._options = _network_options(config, node)  # first, as what is wrong with it is soon found
        self._learner = make_learner(config, node)
        self._model = np.array(self._learner.init(), dtype=np.float32)
        self.folder = _open_folder(Path(node.folder), to_toml(config, comments=False))
        self._state_file = self.folder.path / STATE
        self._journal_file = self.folder.path / JOURNAL
        self._identity = identity_of(to_toml(config, comments=False), node.user)

    def run(self, watcher: NodeWatcher, stop: Stop) -> None:
        config, node = self._config, self._node
        saved = save.load(self._state_file, self._identity)
        latest_epoch, lines = self._past()
        epoch = save.new_epoch(latest_epoch)
        core = self._build_core(epoch)
        vectors = {node.user: self._model}
        if saved is not None:
            vectors = save.resume(core, saved, epoch, islice(self._earlier_lines(), saved.lines, None))
        decided = watcher.ready() or node.starts_at
        self._starts_at = decided or (saved.starts_at if saved is not None else time.time())
        clock = PeerClock(self._starts_at, node.time_scale)
        self._journal = _Counting(FileJournal(self._journal_file), lines)
        self._journal.write("start", clock.now_s(), save.control_state(core) | {"saved_lines": saved and saved.lines})
        service = Service(
            clock,
            ZenohTransport(self._network(epoch)),
            self._learner,
            self._journal,
            self._pace(),
            self._prepare_save,
        )
        limits = limits_of(config, node, self._learner.init())
        self._peer = Peer(core, vectors.pop(node.user), radio_of(config), limits, service, self._journal)
        self._peer.vectors.update(vectors)
        keep_blocks()
        # So that one that is killed soon knows when its time began and what it had accepted.
        self._prepare_save(clock.now_s())()
        watcher.began(node, tuple(sorted(core.neighbours())), str(self.folder.path), saved is not None)
        try:
            with few_collections():
                status = service.run(self._peer, _Watched(watcher, stop))
            self._finish(service, status)
        finally:
            self._journal.close()

    def _past(self) -> tuple[int, int]:
        """The latest epoch in the journal of earlier starts, and how many lines it has."""
        latest_epoch = lines = 0
        for line in self._earlier_lines():
            lines += 1
            if line[0] == "start":
                latest_epoch = max(latest_epoch, line[2]["epoch"])
        return latest_epoch, lines

    def _earlier_lines(self) -> Iterable[Line]:
        return JournalFile(self._journal_file) if self._journal_file.exists() else ()

    def _build_core(self, epoch: int) -> PeerCore:
        config = self._config
        state = PeerState(epoch)
        return build_peer_core(config, build_world(config), len(self._model), self._node.user, state)

    def _network(self, epoch: int) -> ZenohOptions:
        return replace(self._options, epoch=epoch, max_message_bytes=2 * (HEADER_BYTES + 4 * len(self._model)) + 4096)

    def _pace(self) -> Pace:
        config, node = self._config, self._node
        return Pace(
            duration_s=config.duration_s,
            evaluate_every_s=None if config.evaluate.users == 0 else config.evaluate.every_s,
            save_every_s=config.checkpoint.every_s,
            free=node.pace == "free",
            answer_timeout_s=node.answer_timeout_s,
            waiting=node.waiting,
        )

    def _prepare_save(self, now_s: float) -> Callable[[], None]:
        peer, path = self._peer, self._state_file
        self._journal.write("saved", now_s)
        lines = self._journal.lines
        return save.prepare_save(path, peer.core, peer.vectors, self._identity, self._starts_at, lines)

    def _finish(self, service: Service, status: str) -> None:
        now_s, peer = service.clock.now_s(), self._peer
        if peer.core.node.state.window:
            peer.timer(Happening.WINDOW_CLOSED, now_s)
        if self._config.evaluate.users != 0:
            service.evaluate_finally(now_s)
        self._journal.write("stopped", now_s, status, service.dropped)
        self._prepare_save(now_s)()
        self._journal.close()
        jax.clear_caches()  # type: ignore[no-untyped-call]  # nothing is computed any more, and the results need room
        give_back()
        journal = {self._node.user: JournalFile(self._journal_file)}
        write_real_run(self.folder, self._config, journal, peer.model[None], status, self._began)


class _Counting:
    """A journal that knows how long it is."""

    def __init__(self, journal: FileJournal, lines: int) -> None:
        self._journal = journal
        self.lines = lines

    def write(self, *line: object) -> None:
        self._journal.write(*line)
        self.lines += 1

    def close(self) -> None:
        self._journal.close()


class _Watched:
    def __init__(self, watcher: NodeWatcher, stop: Stop) -> None:
        self._watcher, self._stop = watcher, stop
        self.passed = watcher.passed

    def wants_to_stop(self) -> bool:
        return self._stop.requested or self._watcher.wants_to_stop()


def _open_folder(path: Path, config_toml: str) -> RunFolder:
    """A new one, or that of the same peer."""
    folder = RunFolder(path)
    if not folder.config_file.exists():
        return RunFolder.create(path, config_toml)
    if folder.config_file.read_text() != config_toml:
        raise RunFolderError(
            f"{path} belongs to a peer with another configuration (see config.toml there): put that back, or name "
            "another folder (node.folder)"
        )
    return folder
