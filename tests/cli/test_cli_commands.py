"""`draco --help`, `draco list`, `draco show`: quick answers without the heavy machinery."""

from __future__ import annotations

import resource
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from draco_command import SCRIPT, draco

import dracofl
from dracofl.config import kinds
from dracofl.config.load import load_config
from dracofl.config.presets import PRESETS

HEAVY = ["jax", "numpy", "scipy", "networkx", "pydantic", "pyarrow", "matplotlib"]


def imported_by(statement: str) -> set[str]:
    """Which of the heavy modules a fresh interpreter has imported after this."""
    program = f"""
import sys
try:
    {statement}
except SystemExit:
    pass
print(*(name for name in {HEAVY} if name in sys.modules), file=sys.stderr)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    return set(done.stderr.split())


@pytest.mark.parametrize("arguments", [["--help"], ["--version"]])
def test_help_imports_nothing_heavy(arguments: list[str]) -> None:
    assert imported_by(f"from dracofl.cli import app; app({arguments})") == set()


@pytest.mark.parametrize("arguments", [["run", "--help"], ["show", "poker"], ["list", "topologies"]])
def test_what_needs_no_simulation_imports_none_of_its_machinery(arguments: list[str]) -> None:
    # typer itself wants pydantic to tell the types of a command's options
    assert imported_by(f"from dracofl.cli import app; app({arguments})") <= {"pydantic"}


def test_help_takes_less_than_half_a_second_of_work() -> None:
    """Of the processor's time: the machine may be busy with something else."""

    def spent_s() -> float:
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        return used.ru_utime + used.ru_stime

    best = 9.0
    for _ in range(5):
        before = spent_s()
        subprocess.run([SCRIPT, "--help"], check=True, capture_output=True, timeout=60)
        best = min(best, spent_s() - before)
    assert best < 0.5


def test_help_names_the_commands_and_the_exit_codes() -> None:
    assert all(f"\n  {command} " in draco("--help").out for command in ("run", "list", "show"))
    shown = draco("run", "--help").out
    for option in ("--seed", "--out", "--json", "--quiet", "--debug"):
        assert option in shown
    assert "draco run [OPTIONS] [PRESET | FILE.toml | RUN_FOLDER] [key=value]..." in shown
    assert " ".join(shown.split()).count("0 finished, 2 bad input or a refused write, 3 diverged, 130 stopped") == 1


def test_no_command_shows_the_help() -> None:
    done = draco()
    assert done.code == 2
    assert "Usage: draco" in done.out + done.err


def test_version() -> None:
    assert draco("--version").out == f"dracofl {dracofl.__version__}\n"


@pytest.mark.parametrize(
    ("what", "section"), [("methods", "method"), ("topologies", "topology"), ("channels", "channel"), ("tasks", "task")]
)
def test_list_has_one_line_on_each(what: str, section: str) -> None:
    done = draco("list", what)
    assert (done.code, done.err) == (0, "")
    lines = dict(line.split(maxsplit=1) for line in done.out.splitlines())
    assert lines == {kind: kinds.summary(member) for kind, member in kinds.sections()[section].items()}


def test_list_presets() -> None:
    lines = dict(line.split(maxsplit=1) for line in draco("list", "presets").out.splitlines())
    assert lines == {name: preset.summary for name, preset in PRESETS.items()}


def test_list_of_what_there_is_not_says_what_there_is() -> None:
    done = draco("list", "cities")
    assert (done.code, done.out) == (2, "")
    assert all(word in done.err for word in ("methods", "topologies", "channels", "tasks", "presets"))
    assert "Traceback" not in done.err


@pytest.mark.parametrize("name", PRESETS)
def test_show_prints_a_file_that_runs_the_same(name: str, tmp_path: Path) -> None:
    done = draco("show", name)
    assert (done.code, done.err) == (0, "")
    (tmp_path / "my.toml").write_text(done.out)
    assert load_config(tmp_path / "my.toml") == load_config(name)
    assert draco("show", tmp_path / "my.toml").out == done.out


def test_show_is_poker_by_default_and_takes_changes() -> None:
    assert draco("show").out == draco("show", "poker").out
    shown = tomllib.loads(draco("show", "tiny", "topology.kind=k-out", "topology.k=2", "seed=9").out)
    assert shown["topology"] == {"kind": "k-out", "k": 2}
    assert (shown["seed"], shown["users"]) == (9, 8)


def test_show_of_nonsense_is_refused_in_a_sentence() -> None:
    done = draco("show", "tiny", "users=1")
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("draco: users = 1: must be at least 2")
    assert "did you mean tiny?" in draco("show", "tinny").err


@pytest.mark.parametrize("arguments", [["fly"], ["run", "tiny", "--sed", "3"], ["run", "tiny", "--seed", "three"]])
def test_a_slip_in_the_command_itself(arguments: list[str]) -> None:
    done = draco(*arguments)
    assert (done.code, done.out) == (2, "")
    assert "Error" in done.err
    assert "Traceback" not in done.err
