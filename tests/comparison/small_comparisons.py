"""Comparisons of runs that take a moment, in this process where they are quick, and runs made by hand."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from cli.draco_command import Outcome

QUADRATIC = (
    "task.kind=quadratic",
    "users=3",
    "duration_s=60",
    "compute.rate=1.0",
    "evaluate.every_s=20",
    "channel.kind=exponential",
    "channel.rate=0.2",
    "checkpoint.every_s=20",
)
"""Of `tiny`: no classes, and no model to speak of."""

HANDS = (
    "users=4",
    "duration_s=60",
    "compute.rate=0.5",
    "data.samples_per_user=40",
    "model.kind=softmax",
    "train.batch=20",
    "train.local_steps=2",
    "evaluate.every_s=10",
    "evaluate.samples=200",
    "checkpoint.every_s=none",
)
"""Of `poker`: the smallest that has classes."""


class StubRun:
    """As much of a run as the judges look at. `accuracy` is the users' at each evaluation, one every ten seconds."""

    def __init__(self, accuracy: Sequence[float | Sequence[float]], *, diverged: bool = False) -> None:
        values = np.array([[one] if isinstance(one, float) else one for one in accuracy])
        self._values = values
        last = {"mean": float(values[-1].mean()), "std": float(values[-1].std())}
        self.summary: dict[str, Any] = {
            "status": "diverged" if diverged else "finished",
            "users": values.shape[1],
            "accuracy": last,
            "f1": {"mean": last["mean"] / 2, "std": last["std"] / 2},
        }
        # A hundred bytes a second, the first of them after half a second.
        times_s = np.arange(0.5, 10.0 * len(values))
        self.events = {"time_s": times_s, "bytes": np.full(len(times_s), 100)}

    def curve(self, metric: str) -> tuple[np.ndarray, np.ndarray]:
        assert metric == "accuracy"
        return 10.0 * np.arange(len(self._values)), self._values


def summaries(folder: Path) -> dict[str, dict[str, Any]]:
    """By the path of its folder in the comparison, the summary of every finished run."""
    return {str(path.parent.relative_to(folder)): json.loads(path.read_text()) for path in folder.rglob("summary.json")}


def hashes_of(folder: Path) -> dict[str, tuple[str, str]]:
    return {name: (one["trace_hash"], one["model_hash"]) for name, one in summaries(folder).items()}


def assert_refused(done: Outcome, *fragments: str) -> None:
    """In sentences that have all of these in them; and nothing was written where the test is."""
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("draco: ")
    assert "Traceback" not in done.err
    for fragment in fragments:
        assert fragment in done.err
    assert list(Path.cwd().iterdir()) == []
