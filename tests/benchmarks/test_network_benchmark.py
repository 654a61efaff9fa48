"""The benchmark of the network and the soak run and say what they measured. How fast is not a matter for tests."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("zenoh")

sys.path.insert(0, str(Path(__file__).parents[2]))  # the benchmarks are not installed

from benchmarks import soak

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_the_benchmark_of_the_network_works() -> None:
    command = [sys.executable, "-m", "benchmarks.network", "--quick", "--json"]
    printed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    ratio, at_once, median, worst = (json.loads(line) for line in printed.splitlines())
    assert (ratio["bound"], ratio["target"], median["target"], worst["target"]) == ("at least", 0.7, None, None)
    assert ratio["median"] > 0
    assert at_once["median"] > 0
    assert ratio["detail"]["bare queries a second"][0] > 0
    assert 0 < median["median"] <= worst["median"]
    assert median["detail"]["updates"] > 5


@pytest.mark.slow
def test_peers_soaked_for_half_a_minute_hold_less_than_400_mb() -> None:
    readings = soak.soak(minutes=0.5, nodes=3, time_scale=50.0, tell=lambda _: None)
    memory = readings.memory()
    assert sorted(memory) == [0, 1, 2]
    assert min(readings.updates.values()) > 50
    for user, held in memory.items():
        assert held.peak_mb > 50.0
        assert held.problems(user, minutes=0.5) == []


def test_what_is_too_much_memory() -> None:
    """A straight line through all but the first third; what comes after the end is not part of it."""
    grown = soak._memory([(60.0 * minute, 200.0 + minute, True) for minute in range(30)] + [(1900.0, 390.0, False)])
    assert grown.growth_mb_per_hour == pytest.approx(60.0)
    assert (grown.peak_mb, grown.end_mb) == (229.0, 390.0)
    assert grown.problems(1, minutes=30.0) == ["peer 1 grew by 60.0 MB an hour, more than 20"]
    assert grown.problems(1, minutes=1.0) == []
    at_the_end = soak._memory([(60.0, 300.0, True), (61.0, 401.0, False)])
    assert at_the_end.problems(2, minutes=1.0) == ["peer 2 held 401 MB, more than 400"]
    steady = soak._memory([(60.0 * minute, 500.0 if minute < 10 else 401.0, True) for minute in range(30)])
    assert steady.growth_mb_per_hour == pytest.approx(0.0, abs=1e-6)
    assert steady.problems(0, minutes=30.0) == ["peer 0 held 500 MB, more than 400"]
