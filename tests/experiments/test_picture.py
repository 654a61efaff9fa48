"""The picture of a peer's run, drawn by a process that does nothing else."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import dracofl
from dracofl.experiments.picture import draw_picture
from dracofl.telemetry.folder import RunFolder

MODULE = "dracofl.experiments.picture"


def painter(folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", MODULE, str(folder)], capture_output=True, text=True, check=False)


def test_it_is_drawn_from_what_is_in_the_folder(tmp_path: Path) -> None:
    run = dracofl.run("tiny", ["users=3", "duration_s=20"], out=tmp_path / "run")
    picture = run.folder / "curves.png"
    before = picture.read_bytes()
    picture.unlink()
    done = painter(run.folder)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"picture     {picture}\n"
    assert picture.read_bytes() == before


def test_without_measurements_there_is_none(tmp_path: Path) -> None:
    run = dracofl.run("tiny", ["users=3", "duration_s=20", "evaluate.users=0"], out=tmp_path / "run")
    assert not draw_picture(RunFolder(run.folder))
    assert not (run.folder / "curves.png").exists()
    assert painter(run.folder).stdout == ""


def test_what_is_no_run_folder_is_told_in_a_sentence(tmp_path: Path) -> None:
    done = painter(tmp_path)
    assert done.returncode != 0
    assert done.stderr.startswith("draco: ")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("heavy", ["jax", "zenoh", "scipy"])
def test_it_needs_nothing_of_what_a_peer_needed(heavy: str) -> None:
    code = f"import {MODULE}, matplotlib.figure, sys; sys.exit('{heavy}' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
