"""Milliseconds of one local update of our CNN on one core, for `benchmarks/cnn_step.py`, with the project's own Python.

    python dracofl_step.py '{"seconds": 2}'

Prints one line of JSON: {"ms": ...}, the median of many updates.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time

os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})  # before JAX makes its threads

import dracofl  # noqa: E402
from dracofl.build import build_problem  # noqa: E402
from dracofl.compute.classification import ClassificationProblem  # noqa: E402


def main(order: dict) -> dict[str, float]:
    # What is in the images is of no matter to the time, and fewer of them are drawn sooner.
    problem = build_problem(dracofl.configure("glyphs", ["data.samples_per_user=320", "train.local_steps=5"]))
    assert isinstance(problem, ClassificationProblem)
    assert problem.parameter_count == 149_194
    model, times = problem.init(), []
    for number in range(2):
        problem.local_update(model, 0, number).block_until_ready()
    end = time.perf_counter() + order["seconds"]
    while not times or time.perf_counter() < end:
        began = time.perf_counter()
        problem.local_update(model, 0, len(times)).block_until_ready()
        times.append(time.perf_counter() - began)
    return {"ms": 1000 * statistics.median(times)}


if __name__ == "__main__":
    print(json.dumps(main(json.loads(sys.argv[1]))))
