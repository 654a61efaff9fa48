"""How near a whole simulation comes to the cost of its gradient steps alone.

    python -m benchmarks.limit [--quick]

SGD steps per second of a run (training, messages, budget, unification, records; evaluation off; set-up and compilation
apart) over those of the same local updates called back to back, jitted, pinned to one core. On the complete graph
nearly every update waits for the one before it, so that one core is the limit; on a ring there is work for all. A run
is held against the mean of the bare updates before and after it, as a machine that others use too changes its speed,
and runs take eight seconds or more, as it does so within seconds.

What all cores together can do is measured too, with bare updates in a process pinned to each: cores share caches,
memory and the power they may draw, so it is less than one core's speed times their number.
"""

from __future__ import annotations

import math
import os
import statistics
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import pairwise
from typing import Any

from benchmarks.child import ask
from benchmarks.figure import Figure, main

REPEATS = 7
OFF = ["evaluate.users=0", "checkpoint.every_s=none"]


def ring(users: int) -> list[str]:
    """As dense as the default, 25 users on a disc of 500 m."""
    return ["topology.kind=cycle", f"users={users}", f"field.radius_m={500 * math.sqrt(users / 25):.0f}"]


MLP, CNN = "poker", "glyphs"
CASES: list[tuple[str, str, list[str], int, float]] = [
    # name, preset, overrides, updates called bare, target
    ("MLP, complete graph, 25 users", MLP, [], 6000, 0.95),
    ("MLP, ring, 200 users", MLP, [*ring(200), "duration_s=1000"], 6000, 1.6),
    (
        "CNN, complete graph, 25 users",
        CNN,
        ["topology.kind=complete", "train.local_steps=5", "duration_s=200"],
        300,
        0.95,
    ),
    (
        "CNN, ring, 200 users",
        CNN,
        [*ring(200), "train.local_steps=5", "data.samples_per_user=400", "duration_s=50"],
        300,
        1.5,
    ),
]
QUICK_CASES: list[tuple[str, str, list[str], int, float]] = [
    ("small MLP, complete graph, 8 users", "tiny", ["duration_s=100"], 50, 0.0)
]


def measure(quick: bool) -> list[Figure]:
    figures = []
    for name, preset, overrides, updates, target in QUICK_CASES if quick else CASES:
        asked = {"preset": preset, "overrides": overrides, "updates": updates}
        bare, ours = [bare_speed(-1, **asked)], []
        for _ in range(1 if quick else REPEATS):
            whole = ask("run", preset=preset, overrides=[*overrides, *OFF])
            ours.append(whole["sgd_steps"] / whole["simulated_s"])
            bare.append(bare_speed(-1, **asked))
        ratios = [own / statistics.mean(around) for own, around in zip(ours, pairwise(bare), strict=True)]
        detail = {"steps_per_s": ours, "bare_steps_per_s": bare, "preset": preset, "overrides": overrides}
        name = f"whole simulation / bare updates on one core: {name}"
        figures.append(Figure("limit", name, ratios, "at least", target, detail))
    cases = [(name, preset, overrides, updates) for name, preset, overrides, updates, _ in CASES if "ring" in name]
    for name, preset, overrides, updates in [] if quick else cases:
        asked = {"preset": preset, "overrides": overrides, "updates": updates}
        values = [bare_speed_on_all_cores(**asked) / bare_speed(-1, **asked) for _ in range(REPEATS)]
        figures.append(Figure("limit", f"bare updates on all cores / on one core: {name}", values))
    return figures


def bare_speed(core: int, **asked: Any) -> float:
    """SGD steps a second of local updates called back to back on this core."""
    found = ask("bare", core=core, **asked)
    return float(found["sgd_steps"] / found["s"])


def bare_speed_on_all_cores(**asked: Any) -> float:
    """In a process for each, all at the same time."""
    cores = len(os.sched_getaffinity(0))
    with ThreadPoolExecutor(cores) as pool:
        return sum(pool.map(partial(bare_speed, **asked), range(cores)))


if __name__ == "__main__":
    main(__doc__, measure)
