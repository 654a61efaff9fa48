"""Where the real data is, if it is there; hypothesis without deadlines, as the machine may be busy; and programs that
are compiled once for all tests and the processes they start, which takes half of the time away."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("dracofl", deadline=None, derandomize=True)
settings.load_profile("dracofl")

_COMPILED = "JAX_COMPILATION_CACHE_DIR"
_REAL_POKER = Path(__file__).parents[2] / "shared" / "data" / "poker"


def pytest_configure(config: pytest.Config) -> None:
    """Before workers start: they and their children find it in the environment."""
    if _COMPILED not in os.environ:
        folder = tempfile.mkdtemp(prefix="dracofl-compiled-")
        os.environ |= {_COMPILED: folder, "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}
        config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))


@pytest.fixture(scope="session")
def real_poker() -> Path:
    if not _REAL_POKER.is_dir():
        pytest.skip("the UCI Poker Hand files are not at ../shared/data/poker")
    return _REAL_POKER
