"""Ctrl-C and SIGTERM on a real process: saved, exit code 130, and the same end when continued."""

from __future__ import annotations

import json
import os
import re
import select
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from draco_command import QUICK, draco, environment, hashes, process_arguments

# Stands still after the first stretch until a signal has come, so that nothing depends on who is faster.
STANDING_STILL = """
import signal, sys, time
from dracofl.screen import Screen

def handlers():
    return [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]

def advanced(self, now_s, updates):
    before = handlers()
    print("standing still", file=sys.stderr, flush=True)
    while handlers() == before:
        time.sleep(0.01)
    Screen.advanced = lambda *_: None

Screen.advanced = advanced
"""
# The terminal of this process is the one on its standard input, and a Ctrl-C typed there is for it.
AT_THE_TERMINAL = "import fcntl, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0)"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stopped_run_ends_as_if_it_had_not_been(number: signal.Signals, uninterrupted: dict[str, Any]) -> None:
    process = subprocess.Popen(
        process_arguments(*QUICK, "--json", "--out", "run", before=STANDING_STILL),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stderr is not None
        assert process.stderr.readline() == "running in run\n"
        assert process.stderr.readline() == "standing still\n"
        process.send_signal(number)
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert (process.returncode, out) == (130, "")
    assert re.fullmatch(r"stopped and saved at t = [\d.]+ s; go on with: draco run run\n", err)
    assert not Path("run/summary.json").exists()
    done = draco(*err.split("go on with: draco ")[1].split(), "--json")
    assert done.code == 0
    assert hashes(json.loads(done.out)) == hashes(uninterrupted)


def test_a_terminal_shows_a_progress_bar_and_takes_a_ctrl_c() -> None:
    terminal, its_end = os.openpty()
    endless = [*QUICK, "duration_s=1e9", "checkpoint.every_s=none", "evaluate.every_s=none", "--out", "run"]
    process = subprocess.Popen(
        process_arguments(*endless, before=AT_THE_TERMINAL),
        stdin=its_end,
        stdout=subprocess.PIPE,
        stderr=its_end,
        start_new_session=True,
        env=environment(),
    )
    os.close(its_end)
    try:
        shown = read_terminal(terminal, until="simulating")
        assert "running in run" in shown
        assert "\x1b[" in shown
        os.write(terminal, b"\x03")
        shown += read_terminal(terminal, until="draco run run")
        out, _ = process.communicate(timeout=60)
    finally:
        process.kill()
        os.close(terminal)
    assert process.returncode == 130
    assert out == b""
    assert "stopped and saved at t = " in shown
    assert Path("run/checkpoint/state.npz").exists()


def read_terminal(terminal: int, until: str) -> str:
    """What appears on it, up to these words."""
    shown, give_up = "", time.monotonic() + 60
    while until not in shown:
        if not select.select([terminal], [], [], max(0.0, give_up - time.monotonic()))[0]:
            pytest.fail(f"no {until!r} on the terminal: {shown!r}")
        shown += os.read(terminal, 65536).decode(errors="replace")
    return shown
