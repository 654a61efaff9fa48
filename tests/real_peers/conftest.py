"""Peers for a test, with one cache of compiled programs for all tests."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from real_peers.peers import Peers

PeersOf = Callable[..., Peers]


@pytest.fixture
def peers_of(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> PeersOf:
    return partial(Peers, tmp_path, tmp_path_factory.getbasetemp() / "compiled")
