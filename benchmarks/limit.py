"""How near a whole simulation comes to the cost of its gradient steps alone.

    python benchmarks/limit.py [--quick]

Takes the default run with everything on (messages, unification, evaluation, records, checkpoints) and, in the same
process, the very same local updates run back to back in one jitted loop. Prints and writes the ratio of the two times
(`benchmarks/results.json`); 1 would mean that the simulation costs nothing but its arithmetic. Compilation is left
out of both.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np

import dracofl
from dracofl.build import build_problem
from dracofl.compute.classification import ClassificationProblem

RESULTS = Path(__file__).with_name("results.json")


def bare_loop_s(problem: ClassificationProblem, rows: np.ndarray) -> float:
    """Time of these updates, one after the other on one model, in a single compiled call."""

    def loop(model: jax.Array, inputs: jax.Array, labels: jax.Array, all_rows: jax.Array) -> jax.Array:
        def step(flat: jax.Array, update_rows: jax.Array) -> tuple[jax.Array, None]:
            return flat + 0.04 * problem.delta(flat, inputs, labels, update_rows), None

        return jax.lax.scan(step, model, all_rows)[0]

    arguments = (problem.init(), *problem.pool, rows)
    compiled = jax.jit(loop).lower(*arguments).compile()
    began = time.perf_counter()
    compiled(*arguments).block_until_ready()
    return time.perf_counter() - began


def measure(preset: str, overrides: list[str], repeats: int) -> dict[str, Any]:
    config = dracofl.configure(preset, overrides)
    problem = build_problem(config)
    assert isinstance(problem, ClassificationProblem)
    ratios, whole_s, bare_s = [], [], []
    for repeat in range(repeats):
        with tempfile.TemporaryDirectory() as folder:
            run = dracofl.run(config, out=Path(folder) / "run")
            finished = run.events["kind"] == "finished"
            updates = list(zip(run.events["user"][finished], run.events["number"][finished], strict=True))
            rows = np.stack([problem.batches.rows(int(user), int(number)) for user, number in updates])
            whole_s.append(run.summary["wall_s"] - run.summary["compile_s"])
        bare_s.append(bare_loop_s(problem, rows))
        ratios.append(whole_s[-1] / bare_s[-1])
        print(
            f"{preset} {repeat + 1}/{repeats}: whole run {whole_s[-1]:.2f} s, "
            f"its {len(updates):,} updates alone {bare_s[-1]:.2f} s, ratio {ratios[-1]:.2f}"
        )
    return {
        "preset": preset,
        "overrides": overrides,
        "local_updates": len(updates),
        "whole_run_s": statistics.median(whole_s),
        "bare_updates_s": statistics.median(bare_s),
        "ratio": statistics.median(ratios),
        "ratio_min": min(ratios),
        "ratio_max": max(ratios),
        "repeats": repeats,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a small run, to see that it works; writes nothing")
    arguments = parser.parse_args()
    if arguments.quick:
        print(json.dumps(measure("tiny", ["duration_s=100"], repeats=1)))
        return
    result = {
        "wall time of the reference executor over its bare local updates": measure("poker", [], repeats=3),
        "jax": jax.__version__,
        "dracofl": dracofl.__version__,
        "machine": platform.machine(),
        "cores": os.cpu_count(),
    }
    RESULTS.write_text(json.dumps(result, indent=2) + "\n")
    print(f"written to {RESULTS}")


if __name__ == "__main__":
    main()
