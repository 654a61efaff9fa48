"""What DRACO learns. The slow ones use the real Poker Hand files and the figures of the README."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import dracofl
from dracofl.datasets.synthetic import Quadratic


@pytest.mark.slow
def test_the_default_preset_learns_real_poker_hands(real_poker: Path, tmp_path: Path) -> None:
    run = dracofl.run("poker", [f"data.dir={real_poker}"], out=tmp_path / "run")
    assert run.summary["accuracy"]["mean"] >= 0.97
    assert run.summary["accuracy"]["std"] <= 0.005


@pytest.mark.slow
def test_the_ring_learns_real_poker_hands_and_collapses_without_own_updates(real_poker: Path, tmp_path: Path) -> None:
    learned = dracofl.run("poker-cycle", [f"data.dir={real_poker}"], out=tmp_path / "learned")
    assert learned.summary["accuracy"]["mean"] >= 0.97
    literal = dracofl.run("poker-cycle", [f"data.dir={real_poker}", "method.own_weight=0"], out=tmp_path / "literal")
    assert literal.summary["accuracy"]["mean"] <= 0.6


def test_users_agree_on_what_none_of_them_could_know_alone(tmp_path: Path) -> None:
    """On a quadratic every user's own optimum is elsewhere; with a hub they stay near the common one."""
    common = ["task.kind=quadratic", "duration_s=3000", "channel.kind=ideal", "method.psi=none"]
    apart = dracofl.run("tiny", [*common, "train.step=0.02", "method.unification=off"], out=tmp_path / "apart")
    hubs = ["train.step=0.005", "method.period_s=10", "method.hub=random"]
    united = dracofl.run("tiny", [*common, *hubs], out=tmp_path / "united")
    data = Quadratic.generate(seed=1, users=8, dimension=10, strong_convexity=0.5, smoothness=2.0, heterogeneity=1.0)
    # Without unification, own weight 1 takes every user to its own optimum.
    np.testing.assert_allclose(apart.models, data.optima, atol=0.02)
    # With it everybody is near the optimum of the mean objective, up to whose turn it was to be the hub.
    assert distance(united.models, data.optimum) < 0.3 * distance(data.optima, data.optimum)


def distance(points: np.ndarray, centre: np.ndarray) -> float:
    return float(np.linalg.norm(points - centre, axis=1).mean())


@pytest.mark.parametrize("partition", ["iid", "dirichlet", "shards", "quantity"])
def test_every_partition_runs(partition: str, tmp_path: Path) -> None:
    run = dracofl.run("tiny", [f"data.partition={partition}", "duration_s=60"], out=tmp_path / "run")
    assert run.summary["status"] == "finished"


def test_logistic_regression_nears_the_best_possible_accuracy(tmp_path: Path) -> None:
    changes = ["task.kind=logistic", "model.kind=softmax", "train.step=0.2", "duration_s=600", "task.noise=0.1"]
    run = dracofl.run("tiny", changes, out=tmp_path / "run")
    assert run.summary["accuracy"]["mean"] > 0.9
    assert run.summary["parameters"] == 2 * 21


def test_the_paper_preset_runs_as_the_paper_says(tmp_path: Path) -> None:
    run = dracofl.run("paper-poker", ["duration_s=100", "users=6"], out=tmp_path / "run")
    transmissions = run.summary["transmissions"] + run.summary["unifications"]
    assert run.summary["bytes_sent"] == 51_640 * transmissions
    evaluated = np.unique(run.metrics["events"])
    assert set(evaluated[1:-1] // 500) == set(range(1, run.summary["events"] // 500 + 1))
