"""What measuring costs.

    python -m benchmarks.evaluation [--quick]

First the evaluation of everybody's model on the whole test set, against as many bare jitted forward passes, batched
over the same samples, in the same process. Then the share of a preset's wall time that its evaluations add: the same
run with them and without. The preset `emnist` needs its files, in the folder `emnist` of DRACOFL_BENCHMARK_DATA;
without them `glyphs` takes its place. It is run for half its time, which, as the last evaluation is the largest, makes
its share look larger than it is.
"""

from __future__ import annotations

import os
from pathlib import Path

from benchmarks.child import ask
from benchmarks.figure import Figure, main

REPEATS = 3
SHORT_REPEATS = 15  # where one takes a twentieth of a second


def images() -> tuple[str, list[str]]:
    folder = Path(os.environ.get("DRACOFL_BENCHMARK_DATA", "none"), "emnist")
    return ("emnist", [f"data.dir={folder}"]) if folder.is_dir() else ("glyphs", [])


def shown(overrides: list[str]) -> list[str]:
    """Without where somebody keeps the data, which is nobody else's concern."""
    return [override for override in overrides if not override.startswith("data.dir=")]


def measure(quick: bool) -> list[Figure]:
    if quick:
        return [_against_bare("tiny", [], 1), _share("tiny", ["duration_s=100"], 1)]
    preset, overrides = images()
    return [
        _against_bare("poker", [], SHORT_REPEATS),
        _against_bare(preset, overrides, REPEATS),
        _share("poker", [], REPEATS),
        _share(preset, [*overrides, "duration_s=1000"], REPEATS),
    ]


def _against_bare(preset: str, overrides: list[str], repeats: int) -> Figure:
    times = ask("evaluate", preset=preset, overrides=overrides, passes=repeats)
    ratios = [bare / ours for bare, ours in zip(times["bare_s"], times["ours_s"], strict=True)]
    name = f"evaluating everybody, speed / bare forward passes: {preset}"
    return Figure("evaluation", name, ratios, "at least", 0.8, times)


def _share(preset: str, overrides: list[str], repeats: int) -> Figure:
    shares, times = [], []
    for _ in range(repeats):
        without = ask("run", preset=preset, overrides=[*overrides, "evaluate.users=0"])["simulated_s"]
        having = ask("run", preset=preset, overrides=overrides)["simulated_s"]
        shares.append(1.0 - without / having)
        times.append((without, having))
    name = f"share of wall time that evaluation adds: {preset}"
    detail = {"s_without_and_with": times, "overrides": shown(overrides)}
    return Figure("evaluation", name, shares, "at most", 0.15, detail)


if __name__ == "__main__":
    main(__doc__, measure)
