"""Runs go to a folder of the test's own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from draco_command import QUICK, draco


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="session")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The summary of the quick run, done in one go."""
    done = draco(*QUICK, "--json", "--quiet", "--out", tmp_path_factory.mktemp("uninterrupted") / "run")
    summary: dict[str, Any] = json.loads(done.out)
    return summary
