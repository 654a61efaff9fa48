"""A run is a function of its configuration and seed: nothing else leaves a mark on its bits."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import dracofl

SHORT = ["duration_s=120", "checkpoint.every_s=none"]


def hashes(path: Path, *overrides: str, seed: int = 1) -> tuple[str, str]:
    summary = dracofl.run("tiny", [*SHORT, *overrides], seed=seed, out=path).summary
    return summary["trace_hash"], summary["model_hash"]


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    return hashes(tmp_path_factory.mktemp("plain") / "run")


def test_the_same_seed_gives_the_same_hashes(plain: tuple[str, str], tmp_path: Path) -> None:
    assert hashes(tmp_path / "again") == plain


def test_another_seed_gives_others(plain: tuple[str, str], tmp_path: Path) -> None:
    trace, model = hashes(tmp_path / "other", seed=2)
    assert trace != plain[0]
    assert model != plain[1]


@pytest.mark.parametrize(
    "changes",
    [
        ["evaluate.every_s=7"],
        ["evaluate.every_s=none"],
        ["evaluate.every_events=31", "evaluate.samples=100"],
        ["checkpoint.every_s=10"],
    ],
)
def test_evaluations_and_checkpoints_change_no_hash(changes: list[str], plain: tuple[str, str], tmp_path: Path) -> None:
    assert hashes(tmp_path / "run", *changes) == plain


@pytest.mark.parametrize("change", ["train.step=0.4", "train.order=replacement", "method.own_weight=0.5"])
def test_the_numbers_in_the_models_do_not_change_what_happens_when(
    change: str, plain: tuple[str, str], tmp_path: Path
) -> None:
    trace, model = hashes(tmp_path / "run", change)
    assert trace == plain[0]
    assert model != plain[1]


def run_on_cores(cores: set[int], out: Path) -> dict[str, Any]:
    script = (
        "import os, sys, json; os.sched_setaffinity(0, json.loads(sys.argv[1])); import dracofl; "
        "print(json.dumps(dracofl.run('tiny', ['duration_s=120'], out=sys.argv[2]).summary))"
    )
    arguments = [sys.executable, "-c", script, json.dumps(sorted(cores)), str(out)]
    summary: dict[str, Any] = json.loads(subprocess.run(arguments, capture_output=True, check=True).stdout)
    return summary


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system cannot restrict a process to some cores")
def test_the_number_of_cores_changes_no_hash(plain: tuple[str, str], tmp_path: Path) -> None:
    available = os.sched_getaffinity(0)
    if len(available) < 2:
        pytest.skip("there is one core only")
    for number, cores in enumerate([{min(available)}, available]):
        summary = run_on_cores(cores, tmp_path / str(number))
        assert (summary["trace_hash"], summary["model_hash"]) == plain
