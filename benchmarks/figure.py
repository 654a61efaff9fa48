"""One figure of a benchmark: repeated values, their median and spread, and what they are to reach."""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any, Literal


@dataclass(frozen=True)
class Figure:
    benchmark: str  # limit, evaluation, peers, control, growth
    name: str  # what the value is, in words that stand in a table
    values: list[float]  # one a repeat, in one run of the benchmark
    bound: Literal["at least", "at most"] | None = None
    target: float | None = None
    detail: dict[str, Any] = field(default_factory=dict)  # what the ratio is made of, for those who look closer

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    @property
    def met(self) -> bool | None:
        if self.target is None:
            return None
        return self.median >= self.target if self.bound == "at least" else self.median <= self.target

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "median": self.median, "met": self.met}

    def line(self) -> str:
        wanted = f", wanted {self.bound} {self.target:g}" if self.target is not None else ""
        return f"{self.name}: {self.median:.3g} ({min(self.values):.3g} to {max(self.values):.3g}){wanted}"


def main(description: str | None, measure: Callable[[bool], list[Figure]]) -> None:
    """The command line of one benchmark: prints its figures and writes nothing."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small and short: shows that it works, not how fast")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    arguments = parser.parse_args()
    for figure in measure(arguments.quick):
        print(json.dumps(figure.as_json()) if arguments.json else figure.line(), flush=True)
