"""`draco run`: what goes to which stream, where the run is kept, and what it says."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from draco_command import QUICK, contents, draco, environment, hashes, process_arguments

import dracofl
from dracofl import screen


def test_json_is_exactly_the_summary_and_a_pipe_gets_no_escape_codes(tmp_path: Path) -> None:
    command = process_arguments("run", "tiny", "--json", "--out", "here")
    done = subprocess.run(command, capture_output=True, check=True, timeout=120, env=environment(), cwd=tmp_path)
    assert done.stdout == (tmp_path / "here" / "summary.json").read_bytes()
    assert b"running in here" in done.stderr
    assert b"\x1b" not in done.stdout + done.stderr
    summary = json.loads(done.stdout)
    expected = """method task seed users duration_s wall_s compile_s events local_updates sgd_steps messages bytes_sent
        airtime_s age_s accuracy f1 mean_model consensus_distance trace_hash model_hash dracofl jax"""
    assert set(expected.split()) <= set(summary)
    assert set(summary["messages"]) == {"sent", "delivered", "applied", "over_budget", "late", "lost", "pending"}
    assert set(summary["age_s"]) == {"mean", "p95"}
    assert set(summary["accuracy"]) == set(summary["f1"]) == {"mean", "std", "min", "max"}
    assert {"accuracy", "f1"} <= set(summary["mean_model"])
    assert 0.3 < summary["accuracy"]["mean"] <= 1.0
    assert 0.0 < summary["compile_s"] < summary["wall_s"]
    assert summary["dracofl"] == dracofl.__version__
    fates = ("applied", "over_budget", "late", "lost", "pending")
    assert summary["messages"]["sent"] == sum(summary["messages"][fate] for fate in fates)
    assert (summary["method"], summary["task"], summary["users"], summary["seed"]) == ("draco", "poker", 8, 1)


def test_the_table_goes_to_standard_output_and_the_rest_to_standard_error() -> None:
    done = draco(*QUICK, "--out", "here")
    assert done.code == 0
    assert done.err == "running in here\n"
    for words in ("draco on quadratic: 3 users, 120 s", "test loss of the users", "messages sent", "over budget"):
        assert words in done.out
    assert "run folder  here\n" in done.out
    assert "picture     here/curves.png\n" in done.out
    assert "\x1b" not in done.out + done.err
    summary = dracofl.load("here").summary
    assert all(one in done.out for one in hashes(summary))
    loss = summary["loss"]
    assert f"worst {loss['max']:.4f}, best {loss['min']:.4f}" in done.out


def test_quiet_leaves_standard_error_empty() -> None:
    done = draco(*QUICK, "duration_s=20", "--quiet", "--out", "here")
    assert (done.code, done.err) == (0, "")
    assert "run folder  here" in done.out


def test_progress_is_a_plain_line_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(screen, "_SECONDS_BETWEEN_LINES", 0.0)
    lines = draco(*QUICK, "--json").err.splitlines()
    assert len(lines) > 2
    assert all("t = " in line and "local updates" in line for line in lines[1:])
    assert "local updates  loss " in lines[-1]  # evaluations come in when they are finished
    assert lines[-1].startswith("100%  t = 120 s")


def test_a_profile_says_where_the_time_went() -> None:
    done = draco(*QUICK, "--profile", "--out", "here")
    assert done.code == 0
    for heading in ("compilation", "control", "training", "aggregation", "evaluation", "writing"):
        assert f"│ {heading} " in done.err
    assert "where" not in done.out
    seconds = dracofl.load("here").summary["seconds"]
    assert all(spent >= 0.0 for spent in seconds.values())


@pytest.mark.parametrize("executor", ["compiled", "reference"])
def test_a_few_users_can_be_measured_or_none(executor: str) -> None:
    short = ["duration_s=40", f"executor={executor}"]
    assert draco(*QUICK, *short, "evaluate.users=2", "--out", "two").code == 0
    two = dracofl.load("two")
    assert set(two.metrics["user"]) == {0, 1}
    assert two.summary["loss"]["mean"] is not None
    none = draco(*QUICK, *short, "evaluate.users=0", "--out", "none")
    assert none.code == 0
    assert "picture" not in none.out
    assert len(dracofl.load("none").metrics["user"]) == 0
    assert hashes(dracofl.load("none").summary) == hashes(two.summary)


def test_a_doubt_is_a_warning_and_the_run_goes_on() -> None:
    done = draco(*QUICK, "method.period_s=120", "--json")
    assert done.code == 0
    (warning,) = [line for line in done.err.splitlines() if line.startswith("warning: ")]
    assert "method.period_s = 120 is not shorter than the run (120 s)" in warning
    assert json.loads(done.out)["unifications"] == 0


def test_without_out_a_new_folder_is_made_in_runs() -> None:
    folders = [
        Path(draco(*QUICK, "duration_s=5", "--seed", "4").out.split("run folder  ")[1].strip()) for _ in range(2)
    ]
    assert folders[0] != folders[1]
    for folder in folders:
        assert folder.parent == Path("runs")
        assert folder.name.startswith("tiny-seed4-")
        assert dracofl.load(folder).summary["seed"] == 4


def test_the_default_preset_with_a_change() -> None:
    done = draco("run", *QUICK[2:], "--json", "--out", "here")
    assert done.code == 0
    assert json.loads(done.out)["users"] == 3


def test_seed_is_the_key_seed(uninterrupted: dict[str, Any]) -> None:
    by_option = json.loads(draco(*QUICK, "--seed", "5", "--json").out)
    by_key = json.loads(draco(*QUICK, "seed=5", "--json").out)
    assert by_option["seed"] == 5
    assert hashes(by_option) == hashes(by_key)
    assert set(hashes(by_option)).isdisjoint(hashes(uninterrupted))
    refused = draco(*QUICK, "--seed", "-1")
    assert refused.code == 2
    assert refused.err.startswith("draco: seed = -1: must be at least 0")


def test_the_saved_configuration_repeats_the_run(uninterrupted: dict[str, Any]) -> None:
    draco(*QUICK, "--out", "here")
    again = json.loads(draco("run", "here/config.toml", "--json").out)
    assert hashes(again) == hashes(uninterrupted)


def test_a_finished_run_is_shown_again_and_not_touched() -> None:
    first = draco(*QUICK, "--out", "here")
    before = contents(Path("here"))
    again = draco("run", "here")
    assert (again.code, again.err) == (0, "")
    assert again.out == first.out
    assert draco("run", "here", "--json").out.encode() == before["summary.json"]
    assert contents(Path("here")) == before


@pytest.mark.parametrize("change", [["seed=3"], ["--seed", "3"], ["--out", "there"]])
def test_a_run_folder_takes_no_changes(change: list[str]) -> None:
    draco(*QUICK, "duration_s=5", "--out", "here")
    before = contents(Path("here"))
    done = draco("run", "here", *change)
    assert (done.code, done.out) == (2, "")
    assert "here is a run to be continued as it is" in done.err
    assert "draco run here/config.toml ..." in done.err
    assert contents(Path("here")) == before
    assert not Path("there").exists()


def test_ctrl_c_before_there_is_a_run_to_save(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("dracofl.experiments.run.run_config", interrupted)
    done = draco(*QUICK)
    assert (done.code, done.out) == (130, "")
    assert done.err == "stopped at once; what was saved before is intact\n"
