"""The command as the tests call it: in this process, which is quick, or as a process of its own, as people do."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from typer.testing import CliRunner

from dracofl.cli import app
from dracofl.errors import Interrupted
from dracofl.experiments.run import run_config
from dracofl.experiments.watch import Silent

CHANGES = [
    "task.kind=quadratic",
    "users=3",
    "duration_s=120",
    "compute.rate=1.0",
    "evaluate.every_s=20",
    "method.period_s=25",
    "method.psi=20",
    "method.window_s=2",
    "channel.kind=exponential",
    "channel.rate=0.2",
    "checkpoint.every_s=20",
]
QUICK = ["run", "tiny", *CHANGES]
"""A run of about three stretches of tape, with messages in flight, windows open and budgets spent all the time."""

SCRIPT = Path(sys.executable).with_name("draco")


class Outcome(NamedTuple):
    code: int
    out: str
    err: str


def draco(*arguments: str | Path) -> Outcome:
    """Run the command here. An error that is not explained in a sentence fails the test."""
    result = CliRunner().invoke(app, [str(argument) for argument in arguments], catch_exceptions=False)
    return Outcome(result.exit_code, result.stdout, result.stderr)


def draco_process(*arguments: str | Path, before: str = "") -> Outcome:
    """Run the command in a process of its own, with pipes for its output, after some Python."""
    done = subprocess.run(
        process_arguments(*arguments, before=before), capture_output=True, timeout=120, check=False, env=environment()
    )
    return Outcome(done.returncode, done.stdout.decode(), done.stderr.decode())


def process_arguments(*arguments: str | Path, before: str = "") -> list[str]:
    command = [sys.executable, "-c", f"{before}\nfrom dracofl.cli import main\nmain()"] if before else [str(SCRIPT)]
    return command + [str(argument) for argument in arguments]


def environment() -> dict[str, str]:
    """A colourful terminal, so that plain output is a decision and not a lack."""
    quiet = ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE")
    return {name: value for name, value in os.environ.items() if name not in quiet} | {"TERM": "xterm-256color"}


class StopsAtOnce(Silent):
    """Presses Ctrl-C as soon as the run has advanced. Once: a second one would not wait for the run to be saved."""

    pressed = False

    def advanced(self, now_s: float, updates: int) -> None:
        if not self.pressed:
            self.pressed = True
            signal.raise_signal(signal.SIGINT)


def stopped_run(folder: Path, *changes: str) -> Path:
    """A run that was begun, stopped after its first stretch, and saved."""
    with pytest.raises(Interrupted):
        run_config("tiny", [*CHANGES, *changes], out=folder, watcher=StopsAtOnce())
    assert (folder / "checkpoint" / "state.npz").exists()
    return folder


def contents(folder: Path) -> dict[str, bytes]:
    """Every file below a folder, to see whether anything changed."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def hashes(summary: dict[str, Any]) -> tuple[str, str]:
    return summary["trace_hash"], summary["model_hash"]
