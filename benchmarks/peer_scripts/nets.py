"""The two networks of the benchmark in PyTorch, and data of the same shape: shared by the scripts beside this file.

These scripts run in the peers' virtual environment, started by `benchmarks/peers.py`; they know nothing of dracofl.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch.nn import Parameter, init
from torch.nn.functional import conv2d, linear, max_pool2d, relu

USERS, SAMPLES, BATCH = 25, 1000, 64


def mlp(x: torch.Tensor, w1, b1, w2, b2, w3, b3) -> torch.Tensor:
    return linear(relu(linear(relu(linear(x, w1, b1)), w2, b2)), w3, b3)


def cnn(x: torch.Tensor, k1, c1, k2, c2, w1, b1, w2, b2) -> torch.Tensor:
    # ReLU after the pooling: the same numbers for a quarter of the work, as on our side.
    x = relu(max_pool2d(conv2d(x, k1, c1), 2))
    x = relu(max_pool2d(conv2d(x, k2, c2), 2))
    return linear(relu(linear(x.flatten(1), w1, b1)), w2, b2)


class Work(NamedTuple):
    apply: Callable[..., torch.Tensor]
    shapes: list[tuple[int, ...]]  # weights, bias, weights, bias, ...
    inputs: tuple[int, ...]  # shape of one sample
    classes: int
    local_steps: int  # SGD steps in one local update
    step: float
    parameters: int
    layouts: tuple[str, ...]  # of arrays in memory, that are worth trying


WORK = {
    "mlp": Work(mlp, [(75, 85), (75,), (75, 75), (75,), (10, 75), (10,)], (85,), 10, 10, 0.1, 12_910, ("plain",)),
    "cnn": Work(
        cnn,
        [(14, 1, 3, 3), (14,), (29, 14, 3, 3), (29,), (188, 725), (188,), (47, 188), (47,)],
        (1, 28, 28),
        47,
        5,
        0.1,
        149_194,
        ("plain", "channels last"),
    ),
}


def parameters(work: Work, layout: str) -> list[Parameter]:
    made = []
    for shape in work.shapes:
        value = torch.zeros(shape)
        if len(shape) > 1:
            init.kaiming_normal_(value)
        if layout == "channels last" and len(shape) == 4:
            value = value.contiguous(memory_format=torch.channels_last)
        made.append(Parameter(value))
    assert sum(value.numel() for value in made) == work.parameters
    return made


def samples(work: Work, count: int, layout: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Random ones, as only their shape matters to the time: ten ones among zeros (poker hands), or grey images."""
    generator = torch.Generator().manual_seed(1)
    if len(work.inputs) == 1:
        x = torch.zeros(count, *work.inputs)
        x.scatter_(1, torch.randint(0, work.inputs[0], (count, 10), generator=generator), 1.0)
    else:
        x = torch.rand(count, *work.inputs, generator=generator)
        if layout == "channels last":
            x = x.contiguous(memory_format=torch.channels_last)
    return x, torch.randint(0, work.classes, (count,), generator=generator)


def speed(
    run: Callable[[int], None],
    steps: Callable[[], int],
    steps_a_round: int,
    seconds: float,
    agreed: Callable[[float], float] = lambda value: value,
) -> float:
    """SGD steps a second of a simulation, in pieces of half a second until the time is over, after a warm-up.

    `run` simulates so many rounds, `steps` says how many SGD steps there were so far, and several processes that
    simulate together agree on how long a piece is and when to end.
    """
    run(1)
    piece, elapsed, rounds = 1, 0.0, 0
    before = steps()
    while rounds == 0 or agreed(elapsed) < seconds:
        began = time.perf_counter()
        run(piece)
        elapsed += time.perf_counter() - began
        rounds += piece
        piece = max(1, round(rounds * 0.5 / agreed(elapsed)))
    taken = steps() - before
    assert taken == rounds * steps_a_round, f"{taken} SGD steps instead of {rounds * steps_a_round}"
    return taken / elapsed


def counted(count: int, noun: str) -> str:
    return f"{count} {noun}" + ("" if count == 1 else "es" if noun.endswith("s") else "s")
