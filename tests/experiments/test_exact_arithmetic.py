"""DRACO on a quadratic against exact rational arithmetic, event by event.

The oracle shares no code with the simulator but the drawn computing times: it moves fractions along a list of events
that it makes itself, by the rules of the paper, and the models must end where it ends.
"""

from __future__ import annotations

import heapq
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

import dracofl
from dracofl import rng

STEP = Fraction(1, 4)
CURVATURE = Fraction(1)
DELAY_S = 1.5
PERIOD_S = 20.0


def local_update(start: Fraction, optimum: Fraction, local_steps: int) -> Fraction:
    """y <- y - step * curvature * (y - optimum), a few times; what it moved by."""
    point = start
    for _ in range(local_steps):
        point -= STEP * CURVATURE * (point - optimum)
    return point - start


def oracle(
    neighbours: list[list[int]],
    optima: list[Fraction],
    *,
    seed: int,
    rate: float,
    duration_s: float,
    snapshot: str,
    own_weight: Fraction,
    local_steps: int,
) -> tuple[list[Fraction], int]:
    """The final models, and how many updates were finished."""
    users = len(neighbours)
    models = [Fraction(0)] * users
    started_from = list(models)
    counts = [0] * users
    heap: list[tuple[float, int, int, str, int, Fraction]] = []
    serial = 0

    def put(time_s: float, priority: int, what: str, user: int, vector: Fraction = Fraction(0)) -> None:
        nonlocal serial
        heapq.heappush(heap, (time_s, priority, serial, what, user, vector))
        serial += 1

    def computing_s(user: int) -> float:
        return rng.exponential(rng.stream(seed, "compute", user), counts[user]) / rate

    for user in range(users):
        put(computing_s(user), 1, "finish", user)
    put(PERIOD_S, 0, "unify", 0)
    finished, periods = 0, 0
    while heap[0][0] < duration_s:
        now_s, _, _, what, user, vector = heapq.heappop(heap)
        if what == "unify":
            models = [models[periods % users]] * users  # round-robin, user 0 first
            periods += 1
            put((periods + 1) * PERIOD_S, 0, "unify", 0)
        elif what == "arrive":
            models[user] += vector
        else:
            base = models[user] if snapshot == "finish" else started_from[user]
            update = local_update(base, optima[user], local_steps)
            models[user] += own_weight * update
            for receiver in neighbours[user]:
                put(now_s + DELAY_S, 1, "arrive", receiver, update / len(neighbours[user]))
            counts[user] += 1
            finished += 1
            started_from[user] = models[user]
            put(now_s + computing_s(user), 1, "finish", user)
    return models, finished


GRAPHS = {
    "cycle": [[1, 4], [0, 2], [1, 3], [2, 4], [0, 3]],
    "complete": [[other for other in range(5) if other != user] for user in range(5)],
}


@pytest.mark.parametrize("topology", GRAPHS)
@pytest.mark.parametrize("snapshot", ["finish", "start"])
@pytest.mark.parametrize("own_weight", [0, 1])
def test_a_run_ends_where_exact_arithmetic_ends(topology: str, snapshot: str, own_weight: int, tmp_path: Path) -> None:
    config = dracofl.configure(
        {
            "users": 5,
            "duration_s": 50.0,
            "seed": 3,
            "task": {"kind": "quadratic", "dimension": 1, "strong_convexity": 1.0, "smoothness": 1.0},
            "train": {"step": float(STEP), "local_steps": 2},
            "compute": {"snapshot": snapshot},
            "method": {"own_weight": float(own_weight), "period_s": PERIOD_S, "hub": "round-robin"},
            "topology": {"kind": topology},
            "channel": {"kind": "lossy", "loss": 0.0, "delay_s": DELAY_S},
        }
    )
    run = dracofl.run(config, out=tmp_path / "run")
    optima = [Fraction(float(rng.generator(3, "quadratic-optimum", user).standard_normal(1)[0])) for user in range(5)]
    expected, finished = oracle(
        GRAPHS[topology],
        optima,
        seed=3,
        rate=0.1,
        duration_s=50.0,
        snapshot=snapshot,
        own_weight=Fraction(own_weight),
        local_steps=2,
    )
    assert run.summary["local_updates"] == finished > 15
    assert run.summary["unifications"] == 2
    np.testing.assert_allclose(run.models[:, 0], [float(model) for model in expected], atol=1e-6)


def test_three_events_worked_out_by_hand(tmp_path: Path) -> None:
    """Two users on an ideal channel, step 1/2, one local step, optima b0 and b1, everybody starts at 0.

    User 1 is a hundred times as fast, so that it finishes first. Each update moves its maker and the other alike:
        first   d = -1/2 (0 - b1)      = 1/2 b1     both at 1/2 b1
        second  d = -1/2 (1/2 b1 - b1) = 1/4 b1     both at 3/4 b1
        third                            1/8 b1     both at 7/8 b1
    """
    draws = rng.stream(5, "compute", 1)
    third_s = sum(rng.exponential(draws, index) for index in range(3))
    fourth_s = third_s + rng.exponential(draws, 3)
    run = dracofl.run(
        {
            "users": 2,
            "duration_s": (third_s + fourth_s) / 2,
            "seed": 5,
            "task": {"kind": "quadratic", "dimension": 1, "strong_convexity": 1.0, "smoothness": 1.0},
            "train": {"step": 0.5, "local_steps": 1},
            "compute": {"rate": [1e-6, 1.0]},
            "method": {"period_s": "none", "unification": "off"},
            "channel": {"kind": "ideal"},
        },
        out=tmp_path / "run",
    )
    b1 = float(rng.generator(5, "quadratic-optimum", 1).standard_normal(1)[0])
    assert run.summary["local_updates"] == 3
    np.testing.assert_allclose(run.models[:, 0], [7 / 8 * b1, 7 / 8 * b1], atol=1e-6)
