"""A model that stops being finite: exit code 3, when, whose, by what, what to change; and what is kept."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import pytest
from draco_command import QUICK, contents, draco, draco_process, stopped_run

import dracofl
from dracofl.telemetry.run import Run

# Steps of 1.1 on a curvature of 2 overshoot a little each time: it takes hundreds of updates to overflow.
SLOWLY = [*QUICK, "train.step=1.1", "duration_s=300", "--out", "run"]
AT_ONCE = [*QUICK, "train.step=1e30", "--out", "run"]
FATES = ("applied", "over_budget", "late", "lost", "pending")


def assert_cut(run: Run) -> None:
    """The tables hold what had happened by then, and the summary is theirs."""
    summary, end_s = run.summary, run.summary["diverged"]["time_s"]
    assert summary["status"] == "diverged"
    assert summary["trace_hash"] is None
    assert summary["model_hash"] is None
    assert run.events["time_s"].max() <= end_s
    assert (run.metrics["time_s"] <= end_s).all()
    assert (run.messages["sent_s"] <= end_s).all()
    assert (run.messages["settled_s"] <= end_s).all()
    counts = summary["messages"]
    assert counts["sent"] == sum(counts[fate] for fate in FATES) == len(run.messages["fate"])
    assert counts["sent"] == (summary["users"] - 1) * summary["transmissions"]
    links = zip(run.messages["sender"], run.messages["receiver"], run.messages["number"], strict=True)
    assert len(set(links)) == counts["sent"]
    assert summary["events"] == len(run.events["time_s"])


def test_the_message_has_time_user_operation_and_what_to_change() -> None:
    done = draco_process(*AT_ONCE)
    assert (done.code, done.out) == (3, "")
    summary = json.loads(Path("run/summary.json").read_text())
    when = summary["diverged"]
    assert done.err.splitlines() == [
        "running in run",
        f"draco: the run diverged: non-finite value at t = {when['time_s']:.3f} s, user {when['user']}, "
        f"first made by {when['operation']}",
        "  try a smaller train.step, fewer train.local_steps or a smaller method.own_weight",
        "  everything up to there is in run",
    ]
    assert re.fullmatch(r"local update \d+", when["operation"])


def test_everything_up_to_there_is_kept() -> None:
    done = draco(*SLOWLY)
    assert done.code == 3
    run = dracofl.load("run")
    assert 60.0 < run.summary["diverged"]["time_s"] < 300.0
    assert len(run.curve("loss")[0]) > 2
    assert_cut(run)
    kept = "config.toml summary.json metrics.parquet messages.parquet events.parquet curves.png"
    assert sorted(contents(Path("run"))) == sorted(kept.split())
    last_loss = run.summary["loss"]["mean"]
    assert last_loss is None or math.isfinite(last_loss)


@pytest.mark.parametrize(
    "changes",
    [
        ["channel.rate=0.01"],  # nearly everything is in flight, with most of the tape not yet written
        ["channel.rate=0.01", "duration_s=15"],  # the same, but the tape was written to its end
        ["method.window_s=20", "duration_s=15"],  # nearly everything is in an open window
        ["channel.deadline_s=1"],
        ["evaluate.every_s=none", "evaluate.every_events=1"],
        ["evaluate.every_s=none"],
    ],
)
def test_no_message_is_counted_twice_or_forgotten(changes: list[str]) -> None:
    assert draco(*AT_ONCE, "train.step=100", *changes).code == 3
    run = dracofl.load("run")
    assert run.summary["transmissions"] > 5
    assert_cut(run)


def test_the_folder_says_so_again_and_is_not_touched() -> None:
    first = draco(*AT_ONCE)
    before = contents(Path("run"))
    again = draco("run", "run")
    assert again.code == 3
    assert again.err.splitlines()[:2] == first.err.splitlines()[1:3]
    assert "draco on quadratic" in again.out
    assert "None" not in again.out
    as_json = draco("run", "run", "--json")
    assert (as_json.code, as_json.out.encode()) == (3, before["summary.json"])
    assert contents(Path("run")) == before


def test_debug_shows_where_and_keeps_the_exit_code() -> None:
    done = draco(*AT_ONCE, "--debug")
    assert done.code == 3
    assert "Traceback (most recent call last):" in done.err
    assert "Traceback" not in draco(*AT_ONCE[:-1], "other").err


def test_a_run_that_was_stopped_on_its_way_there(tmp_path: Path) -> None:
    changes = ["train.step=1.1", "duration_s=300"]
    stopped_run(tmp_path / "stopped", *changes)
    assert draco("run", "stopped").code == 3
    draco(*SLOWLY)
    stopped, straight = dracofl.load("stopped"), dracofl.load("run")
    assert_cut(stopped)
    assert without_timing(stopped.summary) == without_timing(straight.summary)


def without_timing(summary: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in summary.items() if key not in ("wall_s", "setup_s", "compile_s", "seconds")}
