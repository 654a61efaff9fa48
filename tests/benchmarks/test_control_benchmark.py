"""The benchmark of the control plane runs and says what it measured. How fast is not a matter for tests."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_benchmark_of_the_control_plane_works() -> None:
    command = [sys.executable, "-m", "benchmarks.control", "--quick", "--json"]
    printed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    cycle, complete = (json.loads(line) for line in printed.splitlines())
    assert cycle["name"] == "events a second, cycle graph of 100 users"
    assert complete["name"] == "events a second, complete graph of 10 users"
    assert (cycle["bound"], cycle["target"], complete["target"]) == ("at least", 150_000, None)
    for figure in (cycle, complete):
        assert figure["benchmark"] == "control"
        assert all(rate > 0 for rate in figure["values"])
        assert figure["detail"]["events"] > 100
        assert all(share > 0 for share in figure["detail"]["share of the bare heap's rate"])
