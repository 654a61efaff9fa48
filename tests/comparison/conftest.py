"""Comparisons go to a folder of the test's own."""

from __future__ import annotations

from pathlib import Path

import pytest
from here_and_now import here

__all__ = ["here"]


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
