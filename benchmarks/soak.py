"""Whether real peers can run for days: their memory over a long time at ten times real time.

    python -m benchmarks.soak [--minutes 30] [--nodes 3] [--time-scale 10]

Peers of the preset poker (the MLP), processes on this machine, over loopback with the radio in software. The resident
memory of each is read twice a second. It fails, with exit code 1, if any peer ever holds more than 400 MB, or if one
grows by more than 20 MB an hour while it runs: the slope of a straight line through all readings after the first third.
A run that is too short to tell a slope from noise (below ten minutes) is judged by the 400 MB alone. What a peer holds
at its end, while it evaluates for the last time, writes its results and draws them, is told beside it.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from dracofl.config.schema import Config
from dracofl.experiments.cluster import run_cluster

MOST_MB = 400.0
MOST_GROWTH_MB_PER_HOUR = 20.0
_MINUTES_TO_TELL = 10.0
_EVERY_S = 0.5
_SAY_EVERY_S = 60.0
_MODULES = {"dracofl.experiments.cluster_peer", "dracofl.experiments.picture"}  # of a peer's process, first and last
_LAST_WORDS_S = 2.0  # a peer's word of itself may be so old: what it holds after that may be of its results


@dataclass(frozen=True, slots=True)
class Memory:
    """Of one peer."""

    peak_mb: float  # while it runs
    end_mb: float  # at most, while it makes its results
    growth_mb_per_hour: float | None  # None: too few readings for a line

    def problems(self, user: int, minutes: float) -> list[str]:
        found = []
        if max(self.peak_mb, self.end_mb) > MOST_MB:
            found.append(f"peer {user} held {max(self.peak_mb, self.end_mb):.0f} MB, more than {MOST_MB:g}")
        growth = self.growth_mb_per_hour
        if minutes >= _MINUTES_TO_TELL and growth is not None and growth > MOST_GROWTH_MB_PER_HOUR:
            found.append(f"peer {user} grew by {growth:.1f} MB an hour, more than {MOST_GROWTH_MB_PER_HOUR:g}")
        return found


@dataclass
class Readings:
    """Watches a cluster: what its peers hold, and how far they are."""

    tell: Callable[[str], None]
    updates: dict[int, int] = field(default_factory=dict)
    found: dict[int, list[tuple[float, float, bool]]] = field(default_factory=dict)  # seconds, MB, still running
    _began: float = field(default_factory=time.monotonic)
    _read: float = -_EVERY_S
    _told: float = 0.0
    _ends_s: float = 0.0

    def said(self, sentence: str) -> None:
        self.tell(sentence)

    def began(self, folder: str, config: Config, time_scale: float) -> None:
        self._ends_s = config.duration_s - _LAST_WORDS_S * time_scale

    def passed(self, statuses: dict[int, dict[str, Any]]) -> None:
        now_s = time.monotonic() - self._began
        if now_s - self._read < _EVERY_S:
            return
        self._read = now_s
        for user, process in peers_of_this_process().items():
            held_mb = memory_mb(process)
            status = statuses.get(user)
            if held_mb is not None and status is not None:
                is_running = 0.0 < status["time_s"] < self._ends_s
                self.found.setdefault(user, []).append((now_s, held_mb, is_running))
                self.updates[user] = status["updates"]
        if now_s - self._told >= _SAY_EVERY_S:
            self._told = now_s
            held = ", ".join(f"{readings[-1][1]:.0f}" for _, readings in sorted(self.found.items()))
            self.tell(f"{now_s / 60:.0f} min: {held} MB")

    def ended(self) -> None: ...

    def memory(self) -> dict[int, Memory]:
        return {user: _memory(readings) for user, readings in sorted(self.found.items())}


def _memory(readings: list[tuple[float, float, bool]]) -> Memory:
    running = [(now_s, held_mb) for now_s, held_mb, is_running in readings if is_running]
    warm = np.array(running[len(running) // 3 :])
    slope = float(np.polyfit(warm[:, 0], warm[:, 1], 1)[0]) if len(warm) >= 3 else None
    held = {kind: [mb for _, mb, is_running in readings if is_running is kind] for kind in (True, False)}
    return Memory(max(held[True], default=0.0), max(held[False], default=0.0), slope and 3600.0 * slope)


def peers_of_this_process() -> dict[int, int]:
    """Users and the ids of their processes."""
    found = {}
    for file in Path("/proc/self/task").glob("*/children"):
        for child in file.read_text().split():
            try:
                words = Path(f"/proc/{child}/cmdline").read_text().split("\0")
            except OSError:  # it has ended
                continue
            if _MODULES & set(words):
                found[int(Path(words[-2]).stem)] = int(child)
    return found


def memory_mb(process: int) -> float | None:
    """What is resident; None if the process has ended."""
    try:
        pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    except (OSError, IndexError):
        return None
    return pages * 4096 / 1e6 or None


def soak(minutes: float, nodes: int, time_scale: float, tell: Callable[[str], None]) -> Readings:
    readings = Readings(tell)
    overrides = [f"duration_s={60.0 * minutes * time_scale}", f"time_scale={time_scale}"]
    with tempfile.TemporaryDirectory() as folder:
        run_cluster("poker", nodes, overrides, Path(folder) / "run", readings)
    return readings


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument("--time-scale", type=float, default=10.0)
    arguments = parser.parse_args()
    readings = soak(arguments.minutes, arguments.nodes, arguments.time_scale, lambda text: print(text, flush=True))
    problems = []
    for user, memory in readings.memory().items():
        growth = memory.growth_mb_per_hour
        held = f"at most {memory.peak_mb:.0f} MB, and {memory.end_mb:.0f} MB while it wrote its results"
        grew = "" if growth is None else f"; {growth:+.1f} MB an hour"
        print(f"peer {user}: {readings.updates[user]:,} local updates, {held}{grew}")
        problems += memory.problems(user, arguments.minutes)
    if len(readings.found) < arguments.nodes:
        problems.append(f"only {len(readings.found)} of {arguments.nodes} peers were seen")
    for problem in problems:
        print(problem, file=sys.stderr)
    sys.exit(bool(problems))


if __name__ == "__main__":
    main()
