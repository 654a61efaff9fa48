"""Our CNN's local update against PyTorch's best: five SGD steps with batches of 64, on one core and on all.

    python -m benchmarks.cnn_step [--quick] [--json]

An account of where the CNN stands in `benchmarks.peers`, with no target: the same network in PyTorch, with one thread
and with one a core, images channels first or last, the optimizer fused or not, compiled or not, against
`ClassificationProblem.local_update` on one core. Ratios are PyTorch's time, with its best setting, over ours.
"""

from __future__ import annotations

import os
import statistics
import sys

from benchmarks.figure import Figure, main
from benchmarks.peers import SCRIPTS, Failed, Missing, ask, environment, say


def measure(quick: bool) -> list[Figure]:
    made = environment("torch")
    if made.missing:
        raise Missing(f"PyTorch cannot be installed: {made.missing['torch']}")
    cores = len(os.sched_getaffinity(0))
    repeats, seconds = (1, 0.3) if quick else (5, 1.5)
    environ = {"TORCHINDUCTOR_CACHE_DIR": str(made.folder / "compiled")}
    order = {"seconds": seconds, "threads": [1] if quick else sorted({1, cores}), "compile": not quick}
    ours: list[float] = []
    theirs: dict[str, list[float]] = {}
    for repeat in range(repeats):
        where = f"repeat {repeat + 1} of {repeats}"
        ours.append(ask([sys.executable, str(SCRIPTS / "dracofl_step.py")], {"seconds": seconds})["ms"])
        say(f"{where}: dracofl, 1 core: {ours[-1]:.1f} ms")
        found = ask([str(made.python), str(SCRIPTS / "torch_step.py")], order, environ)
        for setting, ms in found.items():
            say(f"{where}: PyTorch, {setting}: {ms:.1f} ms")
            theirs.setdefault(setting, []).append(ms)
    return [
        _figure(f"ours on one core over PyTorch's with {count} thread{'s' * (count > 1)}", ours, theirs, count)
        for count in order["threads"]
    ]


def _figure(name: str, ours: list[float], theirs: dict[str, list[float]], threads: int) -> Figure:
    rivals = {
        setting: times
        for setting, times in theirs.items()
        if setting.startswith(f"{threads} thread") and len(times) == len(ours)
    }
    best = min(rivals, key=lambda setting: statistics.median(rivals[setting]))
    return Figure(
        benchmark="cnn_step",
        name=f"speed of the CNN's local update, {name}",
        values=[other / own for own, other in zip(ours, rivals[best], strict=True)],
        detail={"best of PyTorch": best, "our ms": ours, "PyTorch's ms": rivals},
    )


if __name__ == "__main__":
    try:
        main(__doc__, measure)
    except (Missing, Failed) as error:
        sys.exit(f"{error}.")
