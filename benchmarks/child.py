"""Measurements in processes of their own: pinned to a core where asked, with nothing left over from the last one.

    python -m benchmarks.child '{"what": "run", "preset": "tiny", "overrides": []}'

prints one line of JSON. `ask` does that for a benchmark.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]


def ask(what: str, *, core: int | None = None, **arguments: Any) -> dict[str, Any]:
    """The answer of a fresh process, pinned to this one of the cores there are if it is named (-1: the last)."""
    question = json.dumps({"what": what, "core": core, **arguments})
    command = [sys.executable, "-m", "benchmarks.child", question]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def run(preset: str, overrides: list[str]) -> dict[str, Any]:
    """A whole run, from its first event to its files."""
    import dracofl

    with tempfile.TemporaryDirectory() as folder:
        summary = dracofl.run(preset, overrides, out=Path(folder) / "run").summary
    simulated_s = summary["wall_s"] - summary["compile_s"] - summary["setup_s"]
    return {
        "simulated_s": simulated_s,
        "sgd_steps": summary["sgd_steps"],
        "events": summary["events"],
        "parameters": summary["parameters"],
        "seconds": summary["seconds"],
        "peak_bytes": 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,
    }


def bare(preset: str, overrides: list[str], updates: int) -> dict[str, Any]:
    """Jitted local updates back to back, with mini-batches drawn before, and nothing else."""
    import jax

    import dracofl
    from dracofl.build import build_problem
    from dracofl.compute.problem import COMPILER_OPTIONS

    config = dracofl.configure(preset, overrides)
    problem = build_problem(config)
    update = jax.jit(problem.delta, compiler_options=COMPILER_OPTIONS)
    model = jax.numpy.asarray(problem.init())
    batches = [problem.batch(number % config.users, number // config.users) for number in range(updates)]
    update(model, problem.pool, batches[0]).block_until_ready()
    began = time.perf_counter()
    for number in range(updates):
        result = update(model, problem.pool, batches[number])
    result.block_until_ready()
    return {"s": time.perf_counter() - began, "sgd_steps": updates * problem.local_steps}


def evaluate(preset: str, overrides: list[str], passes: int) -> dict[str, Any]:
    """An executor's evaluation of everybody on the whole test set, and as many bare forward passes, in turns, after a
    first one of each: a run has many, and all but the first find their memory and threads in place."""
    import jax
    import numpy as np

    import dracofl
    from dracofl.build import build_problem
    from dracofl.compute.classification import ClassificationProblem
    from dracofl.compute.compiled import CompiledExecutor
    from dracofl.compute.problem import COMPILER_OPTIONS
    from dracofl.tape import Evaluate

    config = dracofl.configure(preset, overrides)
    problem = build_problem(config)
    assert isinstance(problem, ClassificationProblem)
    executor = CompiledExecutor(problem, config.users)
    problem.compile_evaluation()
    forward = jax.jit(problem.logits, compiler_options=COMPILER_OPTIONS)
    inputs, _ = problem.test(final=True)
    models = [jax.numpy.asarray(model) for model in [*executor.models(), problem.init()]]
    bare_s, ours_s = [], []
    for _ in range(passes + 1):
        began = time.perf_counter()
        for model in models:
            logits = forward(model, inputs)
        logits.block_until_ready()
        bare_s.append(time.perf_counter() - began)
        began = time.perf_counter()
        executor.play(executor.prepare([Evaluate(0.0, 0, final=True)]))
        (evaluation,) = executor.evaluations(wait=True)
        ours_s.append(time.perf_counter() - began)
        assert len(evaluation.users) + 1 == len(models)
        assert np.isfinite(evaluation.mean_model.loss)
    executor.close()
    return {"bare_s": bare_s[1:], "ours_s": ours_s[1:]}


ANSWERS: dict[str, Callable[..., dict[str, Any]]] = {"run": run, "bare": bare, "evaluate": evaluate}


def main() -> None:
    question = json.loads(sys.argv[1])
    core = question.pop("core")
    if core is not None:
        # Before JAX is imported: its threads stay on the cores there are when they are made.
        os.sched_setaffinity(0, {sorted(os.sched_getaffinity(0))[core]})
    print(json.dumps(ANSWERS[question.pop("what")](**question)))


if __name__ == "__main__":
    main()
