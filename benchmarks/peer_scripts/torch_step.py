"""Milliseconds that PyTorch takes for one local update of the CNN: five SGD steps with batches of 64.

    python torch_step.py '{"seconds": 2, "threads": [1, 2], "compile": true}'

Runs in the peers' environment; prints one line of JSON: {"1 thread, plain": ms, ...}, the median of many updates.
"""

from __future__ import annotations

import itertools
import json
import statistics
import sys
import time
from collections.abc import Callable

import nets
import torch
from torch.nn.functional import cross_entropy


def update(work: nets.Work, layout: str, form: str) -> Callable[[], None]:
    values = nets.parameters(work, layout)
    x, y = nets.samples(work, work.local_steps * nets.BATCH, layout)
    batches = list(zip(x.split(nets.BATCH), y.split(nets.BATCH), strict=True))

    def loss(inputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return cross_entropy(work.apply(inputs, *values), labels)

    if form == "compiled":
        loss = torch.compile(loss)
    optimizer = torch.optim.SGD(values, lr=work.step, fused=form == "fused")

    def run() -> None:
        for inputs, labels in batches:
            optimizer.zero_grad()
            loss(inputs, labels).backward()
            optimizer.step()

    return run


def main(order: dict) -> dict[str, float]:
    work, found = nets.WORK["cnn"], {}
    forms = ["eager", "fused", *["compiled"] * order["compile"]]  # fused: of PyTorch's optimizer
    for threads, layout, form in itertools.product(order["threads"], work.layouts, forms):
        torch.set_num_threads(threads)
        name = ", ".join([nets.counted(threads, "thread"), layout, form])
        try:
            run = update(work, layout, form)
            run()
        except Exception as error:  # the compiler may be missing, in several ways
            print(f"{name}: {error!r}"[:300], file=sys.stderr)
            continue
        run()
        times, end = [], time.perf_counter() + order["seconds"]
        while not times or time.perf_counter() < end:
            began = time.perf_counter()
            run()
            times.append(time.perf_counter() - began)
        found[name] = 1000 * statistics.median(times)
    return found


if __name__ == "__main__":
    print(json.dumps(main(json.loads(sys.argv[1]))))
