"""The engine `ray` on a real Ray cluster that these tests start on this machine: the same runs, whatever happens."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from cli.draco_command import draco, draco_process, environment, process_arguments
from small_sweeps import QUADRATIC, hashes, identities

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not Path(sys.executable).with_name("ray").exists(), reason="pip install 'dracofl[ray]' first"),
]

ASKED = ("sweep", "tiny", *(one for one in QUADRATIC if one.split("=")[0] not in ("duration_s", "checkpoint.every_s")))
ASKED += ("duration_s=4000", "checkpoint.every_s=100", "seed=1..4")
"""Four runs of some seconds each: long enough to be met in the middle."""


def wait_until(condition: Callable[[], object], what: str) -> None:
    give_up = time.monotonic() + 120
    while not condition():
        if time.monotonic() > give_up:
            pytest.fail(f"never: {what}")
        time.sleep(0.05)


def processes_of(session: int) -> dict[int, str]:
    """Command lines of all that the cluster started, by process id."""
    found = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, _, its_session = stat.read_text().rpartition(")")[2].split()[:4]
            if int(its_session) == session and state != "Z":
                found[int(stat.parent.name)] = (stat.parent / "cmdline").read_text().replace("\0", " ")
        except OSError:
            continue
    return found


class Cluster:
    def __init__(self, session: int, address: str) -> None:
        self.session, self.address = session, address

    def runs(self) -> list[int]:
        """The processes that are at work on a run."""
        return [pid for pid, command in processes_of(self.session).items() if command.startswith("ray::dracofl run")]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Two cores of this machine, on a free port, with as little around them as can be."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    place = Path(tempfile.mkdtemp(prefix="ray-", dir="/tmp"))  # sockets are in it, whose paths must be short
    command = [Path(sys.executable).with_name("ray"), "start", "--head", "--block", f"--port={port}", "--num-cpus=2"]
    command += [f"--temp-dir={place}", "--object-store-memory=80000000", "--include-dashboard=false"]
    with open(place / "said", "w") as said:
        process = subprocess.Popen(
            [*command, "--disable-usage-stats"],
            stdout=said,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env={name: value for name, value in environment().items() if name != "RAY_ADDRESS"},
        )
        try:
            wait_until(lambda: "Ray runtime started" in (place / "said").read_text(), "Ray has started")
            yield Cluster(process.pid, f"127.0.0.1:{port}")
        finally:
            process.terminate()
            process.wait(timeout=60)
            for pid in processes_of(process.pid):
                os.kill(pid, signal.SIGKILL)
            shutil.rmtree(place, ignore_errors=True)


@pytest.fixture(scope="module")
def locally(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[str, str]]:
    """The hashes that the local engine comes to."""
    folder = tmp_path_factory.mktemp("locally") / "found"
    assert draco(*ASKED, "--out", folder).code == 0
    return hashes(folder)


def test_with_a_worker_killed_the_results_are_those_of_the_local_engine(
    cluster: Cluster, locally: dict[str, tuple[str, str]]
) -> None:
    asked = (*ASKED, "--out", "mine", "--engine", "ray", "--address", cluster.address)
    process = subprocess.Popen(
        process_arguments(*asked), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment()
    )
    try:
        wait_until(lambda: list(Path("mine").rglob("state.npz")) and cluster.runs(), "a run has saved itself")
        killed = cluster.runs()[0]
        os.kill(killed, signal.SIGKILL)
        out, err = process.communicate(timeout=300)
    finally:
        process.kill()
    assert process.returncode == 0, err
    assert "4    | finished" in out
    assert hashes(Path("mine")) == locally
    before = identities(Path("mine"))
    assert draco_process(*asked).code == 0
    assert identities(Path("mine")) == before
    assert cluster.runs() == []


def test_ctrl_c_saves_the_runs_and_another_engine_goes_on(
    cluster: Cluster, locally: dict[str, tuple[str, str]]
) -> None:
    asked = (*ASKED, "--out", "mine")
    process = subprocess.Popen(
        process_arguments(*asked, "--engine", "ray", "--address", cluster.address),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
    )
    try:
        wait_until(lambda: list(Path("mine").rglob("state.npz")), "a run has saved itself")
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=120)
    finally:
        process.kill()
    assert (process.returncode, out) == (130, "")
    assert err.splitlines()[-1] == "stopped; repeat the same command to go on"
    wait_until(lambda: not cluster.runs(), "its runs have ended")
    before = identities(Path("mine"))
    assert len(before) < 4
    assert list(Path("mine").rglob("state.npz"))
    assert draco(*asked).code == 0
    assert before.items() <= identities(Path("mine")).items()
    assert hashes(Path("mine")) == locally


def test_an_error_in_a_worker_is_the_users(cluster: Cluster) -> None:
    asked = (*ASKED, "--out", "mine", "--engine", "ray", "--address", cluster.address)
    spoiled = Path("mine/runs/seed=2")
    spoiled.mkdir(parents=True)
    (spoiled / "mine.txt").write_text("my own")
    (Path("mine") / "sweep.json").write_text(sweep_json())
    done = draco_process(*asked)
    assert (done.code, done.out) == (2, "")
    assert done.err.splitlines()[-1].endswith("mine/runs/seed=2 exists and is not empty; name another")
    assert "Traceback" not in done.err
    assert (spoiled / "mine.txt").read_text() == "my own"


def sweep_json() -> str:
    import json

    from dracofl.experiments.sweep import read_grid

    return json.dumps(read_grid("tiny", ASKED[2:]).asked)


def test_compare_runs_there_too(cluster: Cluster) -> None:
    asked = ("compare", "tiny", *QUADRATIC, "--methods", "draco,local", "--seeds", "1", "--no-tune")
    assert draco(*asked, "--out", "here").code == 0
    assert draco_process(*asked, "--out", "there", "--engine", "ray", "--address", cluster.address).code == 0
    assert Path("there/table.md").read_text() == Path("here/table.md").read_text()
    assert Path("there/results.json").read_text() == Path("here/results.json").read_text()
