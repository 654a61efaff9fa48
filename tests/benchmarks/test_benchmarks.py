"""The benchmarks run and say what they measured. How fast is not a matter for tests."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(("benchmark", "count"), [("limit", 1), ("evaluation", 2), ("growth", 2)])
def test_a_benchmark_works(benchmark: str, count: int) -> None:
    command = [sys.executable, "-m", f"benchmarks.{benchmark}", "--quick", "--json"]
    printed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    figures = [json.loads(line) for line in printed.splitlines()]
    assert len(figures) == count
    for figure in figures:
        assert figure["benchmark"] == benchmark
        assert figure["median"] in figure["values"]
        assert figure["met"] is not None


def test_the_table_shows_every_figure_of_the_results() -> None:
    results = json.loads((ROOT / "benchmarks" / "results.json").read_text())
    page = (ROOT / "benchmarks" / "README.md").read_text()
    named = [figure["name"] for part in results.values() for figure in part["figures"]]
    assert named
    assert [name for name in named if f"| {name} |" not in page] == []
    missed = sum(not figure["met"] for part in results.values() for figure in part["figures"] if figure["target"])
    assert len(re.findall(r"\| \*\*no\*\* \|", page)) == missed
