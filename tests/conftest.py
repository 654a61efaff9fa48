"""Where the real data is, if it is there; and hypothesis without deadlines, as the machine may be busy."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("dracofl", deadline=None, derandomize=True)
settings.load_profile("dracofl")

_REAL_POKER = Path(__file__).parents[2] / "shared" / "data" / "poker"


@pytest.fixture(scope="session")
def real_poker() -> Path:
    if not _REAL_POKER.is_dir():
        pytest.skip("the UCI Poker Hand files are not at ../shared/data/poker")
    return _REAL_POKER
