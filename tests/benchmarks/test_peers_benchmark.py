"""The comparison with other simulators runs, in its quick form. It makes their virtual environment (1.4 GB), once."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))  # the benchmarks are not installed

from benchmarks import cnn_step, peers
from benchmarks.figure import Figure


def _measured(benchmark: object) -> list[Figure]:
    try:
        return benchmark.measure(quick=True)  # type: ignore[attr-defined]
    except peers.Missing as missing:
        pytest.skip(f"the peers' environment cannot be made: {missing}")


@pytest.mark.slow
def test_peers_are_measured_beside_us() -> None:
    figures = _measured(peers)
    assert [figure.target for figure in figures] == [4.0, 8.0, 1.5, 1.5]
    for figure in figures:
        assert figure.median > 0
        assert not figure.detail["failed"]
        assert figure.detail["best peer"] in figure.detail["peers' SGD steps/s"]


@pytest.mark.slow
def test_the_cnn_step_is_measured_beside_pytorch() -> None:
    one_core, *_ = _measured(cnn_step)
    assert one_core.target is None
    assert one_core.median > 0
