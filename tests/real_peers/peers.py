"""Real peers as processes that a test can kill, freeze, cut off and start again.

They are laid out like a cluster (`peers/0.toml`, `peers/0/journal.jsonl`), so that what `draco cluster` and
`draco replay` do with a folder can be done with theirs. Each is a process group of its own; whatever happens in the
test, none is left when the `with` block ends.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

import numpy as np

from dracofl.build import build_problem
from dracofl.config.load import load_config
from dracofl.config.render import to_toml
from dracofl.experiments.cluster import PEERS, gather
from dracofl.experiments.node import JOURNAL
from dracofl.runtime.journal import Line, read_journal
from dracofl.telemetry.folder import RunFolder

TIME_SCALE = 20.0
PERIOD_S = 2.0  # real seconds between unifications
LEASE_S = 2.0

QUICK = [
    "compute.snapshot=start",
    f"compute.rate={10 / TIME_SCALE}",  # ten local updates a real second
    f"method.period_s={PERIOD_S * TIME_SCALE}",
    "method.hub=round-robin",
    "channel.kind=ideal",
    "model.hidden=[16]",
    "train.step=0.002",  # slow: they are to be learning all the time
    "data.samples_per_user=1000",
    f"evaluate.every_s={TIME_SCALE}",
    "evaluate.samples=1000",
    f"checkpoint.every_s={TIME_SCALE}",
    "duration_s=100000",  # tests end it
]
"""Changes to the preset tiny: small and quick, with everything that peers do."""

_READY_WITHIN_S = 120.0
_ENDED_WITHIN_S = 60.0
_HEAD_START_S = 0.5


class Links(Protocol):
    """What lies between the peers, where it is not the loopback interface as it is."""

    def listen(self, user: int) -> str: ...

    def connect(self, user: int) -> list[str]: ...

    def command(self, user: int) -> list[str]:
        """What to put before a command so that it runs where this peer is."""
        ...


class Loopback:
    def __init__(self, users: int) -> None:
        self._addresses = [f"tcp/127.0.0.1:{port}" for port in free_ports(users)]

    def listen(self, user: int) -> str:
        return self._addresses[user]

    def connect(self, user: int) -> list[str]:
        return [address for address in self._addresses if address != self._addresses[user]]

    def command(self, user: int) -> list[str]:
        return []


def free_ports(count: int) -> list[int]:
    """Below those that the system gives to outgoing connections, so that a port stays free while its peer is down."""
    found: list[int] = []
    tries = iter(random.SystemRandom().sample(range(20000, 32000), 1000))
    while len(found) < count:
        port = next(tries)
        with socket.socket() as one, contextlib.suppress(OSError):
            one.bind(("127.0.0.1", port))
            found.append(port)
    return found


class Peers:
    """`behind_s` are the real seconds by which each peer's clock is behind.

    `cache` keeps what was compiled, so that all but the first are soon there.
    """

    def __init__(
        self,
        folder: Path,
        cache: Path,
        users: int = 4,
        changes: Sequence[str] = (),
        node: dict[str, Any] | None = None,
        links: Links | None = None,
        behind_s: Sequence[float] | None = None,
    ) -> None:
        self.config = load_config("tiny", [f"users={users}", *QUICK, *changes])
        self.users = range(users)
        self.began = time.time()
        self.path = folder / "network"
        self._folder = RunFolder.create(self.path, to_toml(self.config, comments=False))
        self._cache = cache
        self._links = links or Loopback(users)
        self._node = {"time_scale": TIME_SCALE, "lease_s": LEASE_S, **(node or {})}
        self._behind_s = behind_s or [0.0] * users
        self._processes: dict[int, subprocess.Popen[str]] = {}
        self._ready: dict[int, threading.Event] = {}
        self.statuses: dict[int, dict[str, Any]] = {}
        self.starts_at = 0.0

    def __enter__(self) -> Peers:
        try:
            for user in self.users:
                self._write_file(user)
            self._launch(0)
            self._await_ready(0)  # it compiles for all
            for user in self.users[1:]:
                self._launch(user)
            for user in self.users[1:]:
                self._await_ready(user)
            self.starts_at = time.time() + _HEAD_START_S
            for user in self.users:
                self._tell_start(user)
        except BaseException:
            self._kill_all()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._kill_all()

    # Time

    def now(self) -> float:
        """Real seconds since the network started."""
        return time.time() - self.starts_at

    def sleep_until(self, real_s: float) -> None:
        time.sleep(max(real_s - self.now(), 0.0))

    def clock_of(self, user: int, real_s: float) -> float:
        """What this peer's clock says then."""
        return (real_s - self._behind_s[user]) * self.time_scale

    # Faults

    def kill(self, *users: int) -> None:
        for user in users:
            os.killpg(self._processes[user].pid, signal.SIGKILL)
        for user in users:
            self._processes[user].wait()
            _close(self._processes[user])

    def restart(self, *users: int, at_phase: float | None = None) -> None:
        """`at_phase`: they go on at this part of a period, by the clock of the network."""
        for user in users:
            self._launch(user)
        for user in users:
            self._await_ready(user)
        if at_phase is not None:
            self.sleep_until((math.ceil(self.now() / PERIOD_S) + at_phase) * PERIOD_S)
        for user in users:
            self._tell_start(user)

    def freeze(self, user: int) -> None:
        os.killpg(self._processes[user].pid, signal.SIGSTOP)

    def thaw(self, user: int) -> None:
        os.killpg(self._processes[user].pid, signal.SIGCONT)

    # What they say

    def journal(self, user: int) -> list[Line]:
        return list(read_journal(self.path / PEERS / str(user) / JOURNAL))

    def journals(self) -> dict[int, Sequence[Line]]:
        return {user: self.journal(user) for user in self.users}

    def log(self, user: int) -> str:
        return self._home(user).with_suffix(".log").read_text()

    def wait_for(self, happened: Callable[[], bool], within_s: float, what: str) -> None:
        deadline = time.monotonic() + within_s
        while not happened():
            for user, process in self._processes.items():
                assert process.poll() in (None, -signal.SIGKILL), f"peer {user} ended: {self.log(user)[-2000:]}"
            assert time.monotonic() < deadline, f"not within {within_s} s: {what}"
            time.sleep(0.05)

    def wait_until_they_reach(self, user: int, others: set[int], within_s: float = 15.0) -> None:
        def reached() -> bool:
            return set(self.statuses.get(user, {}).get("reaches", ())) == others

        self.wait_for(reached, within_s, f"peer {user} reaches {others}")

    def stop(self) -> dict[str, Any]:
        """All of them, in their own time. Returns the summary of the whole, every message settled."""
        for process in self._processes.values():
            _close(process)
        for user, process in self._processes.items():
            assert process.wait(timeout=_ENDED_WITHIN_S) == 0, self.log(user)[-2000:]
        return gather(self._folder, self.config, "stopped", self.began)

    def models(self) -> np.ndarray:
        return np.load(self._folder.models_file, allow_pickle=False)

    def first_model(self) -> np.ndarray:
        return build_problem(self.config).init()

    def last_scores(self, user: int) -> dict[str, float]:
        """At the same samples as before, for the last one uses more of them."""
        return next(line[2] for line in reversed(self.journal(user)) if line[0] == "evaluated" and not line[3])

    @property
    def time_scale(self) -> float:
        return float(self._node["time_scale"])

    # Inside

    def _home(self, user: int) -> Path:
        return self.path / PEERS / str(user)

    def _write_file(self, user: int) -> None:
        home = self._home(user)
        home.mkdir(parents=True)
        section = {
            "user": user,
            "network": f"test-{os.getpid()}-{id(self)}",
            "listen": [self._links.listen(user)],
            "connect": self._links.connect(user),
            "folder": str(home.absolute()),
            **self._node,
        }
        text = to_toml(self.config, comments=False) + "\n[node]\n"
        text += "".join(f"{name} = {json.dumps(value)}\n" for name, value in section.items())
        home.with_suffix(".toml").write_text(text)

    def _launch(self, user: int) -> None:
        file = self._home(user).with_suffix(".toml")
        environment = {
            **os.environ,
            "OMP_NUM_THREADS": "1",
            "OPENBLAS_NUM_THREADS": "1",
            "JAX_COMPILATION_CACHE_DIR": str(self._cache),
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
            "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "0",
        }
        with open(file.with_suffix(".log"), "a") as log:
            process = subprocess.Popen(
                [*self._links.command(user), sys.executable, "-m", "dracofl.experiments.cluster_peer", str(file)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=environment,
                start_new_session=True,
            )
        self._processes[user] = process
        self._ready[user] = threading.Event()
        self.statuses.pop(user, None)
        threading.Thread(target=self._listen, args=(user, process, self._ready[user]), daemon=True).start()

    def _listen(self, user: int, process: subprocess.Popen[str], ready: threading.Event) -> None:
        assert process.stdout is not None
        with process.stdout:
            for line in process.stdout:
                with contextlib.suppress(ValueError):  # half a line of one that was killed
                    said = json.loads(line)
                    if "ready" in said:
                        ready.set()
                    elif "time_s" in said:
                        self.statuses[user] = said

    def _await_ready(self, user: int) -> None:
        self.wait_for(self._ready[user].is_set, _READY_WITHIN_S, f"peer {user} is ready")

    def _tell_start(self, user: int) -> None:
        process = self._processes[user]
        assert process.stdin is not None
        process.stdin.write(f"{self.starts_at + self._behind_s[user]!r}\n")
        process.stdin.flush()

    def _kill_all(self) -> None:
        for process in self._processes.values():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        for process in self._processes.values():
            process.wait()
            _close(process)


def _close(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    with contextlib.suppress(BrokenPipeError):
        process.stdin.close()
