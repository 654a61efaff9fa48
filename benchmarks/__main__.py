"""All benchmarks, one after the other: `make bench`. Writes results.json and the table in README.md."""

from __future__ import annotations

import json
import os
import platform
import re
import string
import sys
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import jax

import dracofl
from benchmarks.figure import Figure

HERE = Path(__file__).parent
BENCHMARKS = ("limit", "evaluation", "peers", "cnn_step", "control", "growth", "network")


def main() -> None:
    chosen = [name for name in sys.argv[1:] if name in BENCHMARKS] or list(BENCHMARKS)
    for name in chosen:
        print(f"--- {name}", flush=True)
        module = import_module(f"benchmarks.{name}")
        figures: list[Figure] = []
        parts = module.parts() if hasattr(module, "parts") else [partial(module.measure, False)]
        for measure in parts:
            found: list[Figure] = measure()
            for figure in found:
                print(figure.line(), flush=True)
            figures += found
            _write(name, figures, is_all=measure is parts[-1])  # after each, as they take long


def _write(name: str, figures: list[Figure], is_all: bool) -> None:
    """Until all parts of a benchmark are measured, the others' figures stay as they were."""
    path = HERE / "results.json"
    results: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    machine = f"{_processor()}, {len(os.sched_getaffinity(0))} cores, jax {jax.__version__}"
    measured = [{**figure.as_json(), "machine": machine} for figure in figures]
    names = {figure.name for figure in figures}
    before = [] if is_all else results.get(name, {}).get("figures", [])
    results[name] = {
        "figures": [*measured, *(figure for figure in before if figure["name"] not in names)],
        "dracofl": dracofl.__version__,
        "python": platform.python_version(),
    }
    path.write_text(json.dumps({name: results[name] for name in BENCHMARKS if name in results}, indent=1) + "\n")
    page = HERE / "README.md"
    before, rest = page.read_text().split("<!-- table -->\n")[:2] if page.exists() else ("", "")
    after = rest.split("<!-- end of table -->\n")[-1]
    page.write_text(f"{before}<!-- table -->\n{_table(results)}<!-- end of table -->\n{after}")


def _table(results: dict[str, Any]) -> str:
    figures = [(name, figure) for name in BENCHMARKS for figure in results.get(name, {}).get("figures", [])]
    machines = list(dict.fromkeys(figure["machine"] for _, figure in figures))
    marks = dict(zip(machines, string.ascii_uppercase, strict=False))
    lines = ["| benchmark | figure | median | spread | wanted | met | on |", "|---|---|---|---|---|---|---|"]
    for name, figure in figures:
        wanted = f"{figure['bound']} {_number(figure['target'])}" if figure["target"] is not None else ""
        met = {True: "yes", False: "**no**", None: ""}[figure["met"]]
        spread = f"{_number(min(figure['values']))} to {_number(max(figure['values']))}"
        cells = [name, figure["name"], _number(figure["median"]), spread, wanted, met, marks[figure["machine"]]]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join([*lines, "", *(f"- {mark}: {machine}" for machine, mark in marks.items())]) + "\n"


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _processor() -> str:
    try:
        found = re.search(r"model name\s*:\s*(.+)", Path("/proc/cpuinfo").read_text())
    except OSError:
        found = None
    return found[1].strip() if found else platform.machine()


if __name__ == "__main__":
    main()
