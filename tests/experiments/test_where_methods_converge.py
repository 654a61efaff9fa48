"""Where each method ends on a quadratic with heterogeneous optima, one local step, a lossless channel."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import dracofl
from dracofl.datasets.synthetic import Quadratic

USERS = 6
DATA = Quadratic.generate(seed=1, users=USERS, dimension=5, strong_convexity=0.5, smoothness=1.0, heterogeneity=1.0)
SPREAD = float(np.linalg.norm(DATA.optima - DATA.optimum, axis=1).mean())


def final_distance(path: Path, method: list[str], step: float, updates: int) -> float:
    """Mean distance of the users from the optimum of the mean objective."""
    changes = [
        "task.kind=quadratic",
        "task.dimension=5",
        "task.smoothness=1.0",
        f"users={USERS}",
        f"duration_s={10 * updates}",
        "evaluate.every_s=none",
        "checkpoint.every_s=none",
        "channel.kind=ideal",
        "topology.kind=cycle",
        "train.local_steps=1",
        "compute.rate=0.1",
        f"train.step={step}",
        *method,
    ]
    run = dracofl.run("tiny", changes, out=path)
    return float(np.linalg.norm(run.models - DATA.optimum, axis=1).mean())


@pytest.mark.parametrize("method", ["sync-symm", "sync-push", "async-symm", "async-push", "fedavg"])
def test_a_baseline_nears_the_common_optimum_as_its_step_shrinks(method: str, tmp_path: Path) -> None:
    far = final_distance(tmp_path / "far", [f"method.kind={method}"], step=0.2, updates=150)
    near = final_distance(tmp_path / "near", [f"method.kind={method}"], step=0.02, updates=1500)
    assert near < 0.5 * far or near < 1e-3  # fedavg takes exact steps on the mean objective
    assert near < 0.15 * SPREAD


def test_alone_everybody_ends_at_its_own_optimum(tmp_path: Path) -> None:
    distance = final_distance(tmp_path / "run", ["method.kind=local"], step=0.2, updates=150)
    assert distance == pytest.approx(SPREAD, rel=1e-3)


def test_draco_without_unification_takes_everybody_to_its_own_optimum(tmp_path: Path) -> None:
    alone = ["method.unification=off", "method.psi=none"]
    distance = final_distance(tmp_path / "run", [*alone, "topology.kind=complete"], step=0.1, updates=400)
    assert distance == pytest.approx(SPREAD, rel=0.01)


def test_draco_without_unification_and_own_updates_drifts_apart(tmp_path: Path) -> None:
    literal = ["method.unification=off", "method.psi=none", "method.own_weight=0"]
    early = final_distance(tmp_path / "early", literal, step=0.1, updates=100)
    late = final_distance(tmp_path / "late", literal, step=0.1, updates=300)
    assert late > 3 * early > 3 * SPREAD


def test_draco_with_a_random_hub_and_a_short_period_is_at_the_common_optimum_on_average(tmp_path: Path) -> None:
    """One run ends where its last hubs happened to be; the mean over seeds is the common optimum."""
    hubs = ["method.period_s=5", "method.hub=random", "method.psi=none"]
    ends = []
    for seed in range(12):
        changes = [
            "task.kind=quadratic", "task.dimension=5", "task.smoothness=1.0", f"users={USERS}", "duration_s=4000",
            "evaluate.every_s=none", "checkpoint.every_s=none", "channel.kind=ideal", "topology.kind=cycle",
            "train.local_steps=1", "train.step=0.05", *hubs,
        ]  # fmt: skip
        run = dracofl.run("tiny", changes, seed=seed, out=tmp_path / str(seed))
        data = Quadratic.generate(
            seed=seed, users=USERS, dimension=5, strong_convexity=0.5, smoothness=1.0, heterogeneity=1.0
        )
        ends.append(run.models.mean(axis=0) - data.optimum)
    distances = np.linalg.norm(ends, axis=1)
    assert np.linalg.norm(np.mean(ends, axis=0)) < 0.5 * distances.mean()
    assert distances.mean() < 0.5 * SPREAD
