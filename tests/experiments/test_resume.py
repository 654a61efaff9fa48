"""A run that was stopped ends as if it had not been, wherever it was cut."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dracofl
from dracofl.errors import Interrupted
from dracofl.experiments.run import continue_run, run_config
from dracofl.experiments.watch import Silent
from dracofl.telemetry.folder import RunFolder
from dracofl.telemetry.run import Run

BASE = ["task.kind=quadratic", "users=6", "duration_s=400", "evaluate.every_s=40", "checkpoint.every_s=none"]

Control = dict[str, Any]


def in_flight(control: Control) -> bool:
    return sum(message is not None for *_, message in control["simulator"]["heap"]) >= 3


def window_open(control: Control) -> bool:
    return any(node["window"] for node in control["network"]["nodes"])


def budget_half_spent(control: Control) -> bool:
    return all(0 < node["accepted"] < 40 for node in control["network"]["nodes"])


def updates_unsent(control: Control) -> bool:
    return any(node["unsent_updates"] > 1 for node in control["network"]["nodes"])


def being_trained(control: Control) -> bool:
    return all(node["training"] >= 0 for node in control["network"]["nodes"])


def on_the_air(control: Control) -> bool:
    now_s = control["simulator"]["now_s"]
    return any(until_s > now_s for until_s in control["medium"]["on_air_until_s"].values())


def model_on_its_way(control: Control) -> bool:
    return any(message is not None and message[3] == 0 for *_, message in control["simulator"]["heap"])


SLOW_AIR = ["channel.kind=exponential", "channel.rate=0.2"]  # five seconds on average
CUTS: dict[str, tuple[list[str], list[Callable[[Control], bool]]]] = {
    "messages in flight": (SLOW_AIR, [in_flight]),
    "a window open": ([*SLOW_AIR, "method.window_s=20"], [in_flight, window_open]),
    "a budget half spent": (["channel.kind=ideal", "method.psi=40", "method.period_s=100"], [budget_half_spent]),
    "updates unsent": (
        [*SLOW_AIR, "transmit.when=poisson", "transmit.rate=0.02"],
        [updates_unsent],
    ),
    "the latest update kept": (
        [*SLOW_AIR, "transmit.when=poisson", "transmit.backlog=latest", "transmit.rate=0.3"],
        [in_flight],
    ),
    "updates being computed": ([*SLOW_AIR, "compute.snapshot=start"], [being_trained, in_flight]),
    "transmissions on the air": (
        ["channel.interference=concurrent", "channel.interference_radius_m=800", "channel.message_bytes=100000000"],
        [on_the_air],
    ),
    "a hub's model on its way": (
        ["channel.kind=exponential", "channel.rate=0.02", "method.unification=radio", "method.period_s=15",
         "method.psi=none"],
        [model_on_its_way],
    ),
}  # fmt: skip


class StopAt(Silent):
    """Presses Ctrl-C once the simulated time has come."""

    def __init__(self, at_s: float, number: int = signal.SIGINT) -> None:
        self._at_s, self._number = at_s, number

    def advanced(self, now_s: float, updates: int) -> None:
        if now_s >= self._at_s:
            self._at_s = float("inf")
            os.kill(os.getpid(), self._number)


def saved_control(path: Path) -> Control:
    with np.load(RunFolder(path).state_file) as arrays:
        control: Control = json.loads(arrays["control"].tobytes())
    return control


def same_run(one: Run, other: Run) -> None:
    for key in one.summary:
        if key not in ("wall_s", "setup_s", "compile_s", "seconds"):
            assert one.summary[key] == other.summary[key], key
    for table in ("metrics", "messages", "events"):
        for name, column in getattr(one, table).items():
            np.testing.assert_array_equal(column, getattr(other, table)[name], err_msg=f"{table}.{name}")
    assert one.models.tobytes() == other.models.tobytes()


class Killed(Exception):
    """As sudden as SIGKILL: nothing is saved on the way out."""


class KillAt(Silent):
    def __init__(self, at_s: float) -> None:
        self._at_s = at_s

    def advanced(self, now_s: float, updates: int) -> None:
        if now_s >= self._at_s:
            raise Killed


@pytest.mark.parametrize("where", CUTS)
def test_a_run_cut_where_it_hurts_ends_as_if_it_had_not_been(where: str, tmp_path: Path) -> None:
    overrides, conditions = CUTS[where]
    overrides = [*BASE, *overrides, "checkpoint.every_s=100"]
    whole = dracofl.run("tiny", overrides, out=tmp_path / "whole")
    cut = tmp_path / "cut"
    with pytest.raises(Killed):
        run_config("tiny", overrides, out=cut, watcher=KillAt(170.0))
    control = saved_control(cut)
    assert all(condition(control) for condition in conditions), where
    same_run(whole, continue_run(cut))


def test_a_run_stopped_again_and_again_ends_as_if_it_had_not_been(tmp_path: Path) -> None:
    # Long enough for the control plane, which runs ahead, not to be at its end when the stop is asked for.
    overrides = [*BASE, *SLOW_AIR, "method.window_s=4", "method.psi=10", "compute.rate=1", "duration_s=2000"]
    whole = dracofl.run("tiny", overrides, out=tmp_path / "whole")
    cut = tmp_path / "cut"
    with pytest.raises(Interrupted) as stopped:
        run_config("tiny", overrides, out=cut, watcher=StopAt(0.0))
    assert str(cut) in str(stopped.value)
    for at_s in (400.0, 800.0):
        with pytest.raises(Interrupted):
            continue_run(cut, StopAt(at_s, signal.SIGTERM))
    same_run(whole, continue_run(cut))


def test_a_killed_run_goes_on_from_its_last_checkpoint(tmp_path: Path) -> None:
    overrides = [*BASE, *SLOW_AIR, "checkpoint.every_s=60"]
    whole = dracofl.run("tiny", overrides, out=tmp_path / "whole")
    with pytest.raises(Killed):
        run_config("tiny", overrides, out=tmp_path / "cut", watcher=KillAt(333.0))
    assert 60.0 <= saved_control(tmp_path / "cut")["simulator"]["now_s"] < 333.0
    same_run(whole, continue_run(tmp_path / "cut"))


def test_learning_on_real_batches_resumes_bit_for_bit(tmp_path: Path) -> None:
    overrides = ["duration_s=600", "checkpoint.every_s=none"]
    whole = dracofl.run("tiny", overrides, out=tmp_path / "whole")
    with pytest.raises(Interrupted):
        run_config("tiny", overrides, out=tmp_path / "cut", watcher=StopAt(60.0))
    same_run(whole, continue_run(tmp_path / "cut"))


def test_the_signal_handlers_are_put_back(tmp_path: Path) -> None:
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    dracofl.run("tiny", [*BASE, "duration_s=50"], out=tmp_path / "run")
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before
