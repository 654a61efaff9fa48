"""`draco sweep` as people call it, with its worker processes."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from cli.draco_command import draco, draco_process, environment, process_arguments
from here_and_now import HereAndNow
from small_sweeps import hashes, identities, rows

from dracofl.experiments import engine

SHORT = (
    "sweep",
    "tiny",
    "executor=reference",
    "duration_s=20",
    "evaluate.every_s=10",
    "model.kind=softmax",
    "method.psi=1,none",
)


def test_two_processes_run_tiny_and_one_process_repeats_nothing(here: HereAndNow) -> None:
    done = draco_process(*SHORT, "--out", "mine")
    assert done.code == 0
    assert "\x1b" not in done.out + done.err
    assert done.err.startswith("sweeping 2 runs\n")
    assert all("s left" in line for line in done.err.splitlines()[1:])
    for row in rows(Path("mine")):
        assert 0.0 < row["accuracy_min"] <= row["accuracy_mean"] <= row["accuracy_max"] <= 1.0
        assert row["messages_sent"] > 0
    found, before = hashes(Path("mine")), identities(Path("mine"))
    assert draco(*SHORT, "--out", "mine").code == 0
    assert here.begun == []
    assert identities(Path("mine")) == before
    assert draco(*SHORT, "--out", "again").code == 0  # all in this process
    assert hashes(Path("again")) == found


def test_ctrl_c_saves_and_the_same_command_goes_on(here: HereAndNow) -> None:
    asked = (
        "sweep",
        "tiny",
        "executor=reference",
        "task.kind=quadratic",
        "users=3",
        "duration_s=10000",
        "compute.rate=1.0",
    )
    asked += ("evaluate.every_s=none", "checkpoint.every_s=100", "seed=1..2", "--out", "mine", "--workers", "1")
    process = subprocess.Popen(
        process_arguments(*asked), stderr=subprocess.PIPE, text=True, start_new_session=True, env=environment()
    )
    try:
        give_up = time.monotonic() + 60
        while not list(Path("mine").rglob("state.npz")) and time.monotonic() < give_up:
            time.sleep(0.05)
        os.killpg(process.pid, signal.SIGINT)
        _, err = process.communicate(timeout=60)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == 130
    assert err.splitlines()[-1] == "stopped; repeat the same command to go on"
    before = identities(Path("mine"))
    assert len(before) < 2
    assert list(Path("mine").rglob("state.npz"))
    assert draco(*asked).code == 0
    assert before.items() <= identities(Path("mine")).items()
    assert len(here.begun) == 2 - len(before)


def test_a_worker_has_one_core(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in engine.ONE_CORE:
        monkeypatch.delenv(variable, raising=False)
    context = engine.multiprocessing.get_context("spawn")
    reports, stop = context.Queue(), context.Event()
    their_end, lifeline = context.Pipe(duplex=False)
    with (
        lifeline,
        engine.ProcessPoolExecutor(1, context, initializer=engine._serve, initargs=(reports, stop, their_end)) as pool,
    ):
        assert pool.submit(os.getenv, "DRACOFL_LANES").result() == "1"
        assert pool.submit(os.getenv, "NPROC").result() == "1"
