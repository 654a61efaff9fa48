"""The commands as people give them: peers by `draco node`, one of them killed and started again."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from real_peers.checks import check_books_of
from real_peers.peers import free_ports

from dracofl.experiments.node import JOURNAL
from dracofl.runtime.journal import Line, read_journal

DRACO = Path(sys.executable).with_name("draco")
USERS = 2
FILE = """
preset = "tiny"
users = {users}
duration_s = 100000
channel = "none"
[task]
kind = "quadratic"
[compute]
rate = 0.5
snapshot = "start"
[method]
period_s = 20
hub = "round-robin"
[checkpoint]
every_s = 10
[node]
user = {user}
network = {network}
listen = [{listen}]
connect = {connect}
folder = {folder}
time_scale = 20
"""


class Nodes:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.processes: dict[int, subprocess.Popen[bytes]] = {}
        addresses = [f"tcp/127.0.0.1:{port}" for port in free_ports(USERS)]
        for user in range(USERS):
            text = FILE.format(
                users=USERS,
                user=user,
                network=json.dumps(f"test-{os.getpid()}"),
                listen=json.dumps(addresses[user]),
                connect=json.dumps([address for address in addresses if address != addresses[user]]),
                folder=json.dumps(str(folder / str(user))),
            )
            (folder / f"{user}.toml").write_text(text)

    def start(self, user: int) -> None:
        with open(self._folder / f"{user}.log", "a") as log:
            self.processes[user] = subprocess.Popen(
                [str(DRACO), "node", str(self._folder / f"{user}.toml")],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def journal(self, user: int) -> list[Line]:
        file = self._folder / str(user) / JOURNAL
        return list(read_journal(file)) if file.exists() else []

    def wait_for(self, user: int, kind: str, count: int, since: int = 0) -> None:
        """So many lines of that kind, after so many of the journal."""
        deadline = time.monotonic() + 60
        while sum(line[0] == kind for line in self.journal(user)[since:]) < count:
            log = (self._folder / f"{user}.log").read_text()
            assert self.processes[user].poll() is None, log
            assert time.monotonic() < deadline, f"peer {user} has no {count} lines {kind!r}\n{log}"
            time.sleep(0.1)


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Nodes]:
    nodes = Nodes(tmp_path)
    try:
        for user in range(USERS):
            nodes.start(user)
        yield nodes
    finally:
        for process in nodes.processes.values():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def test_a_peer_that_is_killed_and_started_again_gets_the_others_model_and_no_message_counts_twice(
    nodes: Nodes,
) -> None:
    for user in range(USERS):
        nodes.wait_for(user, "update", 10)
    nodes.wait_for(0, "saved", 1)
    before = {user: len(nodes.journal(user)) for user in range(USERS)}
    os.killpg(nodes.processes[0].pid, signal.SIGKILL)
    nodes.processes[0].wait()
    nodes.wait_for(1, "left", 1, before[1])
    nodes.wait_for(1, "finished", 40, before[1])  # it goes on alone, for some periods
    nodes.start(0)
    nodes.wait_for(0, "given", 1, before[0])
    nodes.wait_for(0, "model", 1, before[0])
    for user in range(USERS):
        nodes.wait_for(user, "update", 10, before[user])
    for process in nodes.processes.values():
        process.terminate()
    for user, process in nodes.processes.items():
        assert process.wait(timeout=60) == 0, user
    journals = {user: nodes.journal(user) for user in range(USERS)}
    books = check_books_of(journals)
    assert len({key.epoch for key in books.sent if key.sender == 0}) == 2
    assert len(books.settled["applied"]) >= 40  # ten each way, twice
