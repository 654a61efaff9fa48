"""Runs go to a folder of the test's own, and a command that runs in this process does not put another in its place."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from draco_command import QUICK, draco

from dracofl.experiments import picture
from dracofl.telemetry.folder import RunFolder


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(picture, "end_with_picture", lambda path: picture.draw_picture(RunFolder(path)))


@pytest.fixture(scope="session")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The summary of the quick run, done in one go."""
    done = draco(*QUICK, "--json", "--quiet", "--out", tmp_path_factory.mktemp("uninterrupted") / "run")
    summary: dict[str, Any] = json.loads(done.out)
    return summary
