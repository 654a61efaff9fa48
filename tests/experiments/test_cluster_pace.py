"""How fast the clock of a cluster runs when nobody says it."""

from __future__ import annotations

import pytest

from dracofl.build import build_world
from dracofl.config.load import load_config
from dracofl.experiments.cluster import pleasant_time_scale

A_MINUTE_OF_POKER = 5000 / 60


def scale(*changes: str, cores: int = 2) -> float:
    config = load_config("poker", [*changes])
    return pleasant_time_scale(config, build_world(config).graph, cores)


def test_a_small_cluster_takes_a_minute() -> None:
    assert scale("users=3") == A_MINUTE_OF_POKER


def test_more_peers_take_longer_as_they_have_more_to_tell_each_other() -> None:
    messages_per_s = 8 * 7 * 0.1
    assert scale("users=8") == pytest.approx(120 / messages_per_s)
    assert scale("users=8", cores=4) == pytest.approx(240 / messages_per_s)
    assert scale("users=8", "topology.kind=cycle") == pytest.approx(120 / (8 * 2 * 0.1))


def test_what_counts_is_how_often_each_sends() -> None:
    assert scale("users=8", "transmit.when=poisson", "transmit.rate=0.05") == pytest.approx(120 / (8 * 7 * 0.05))
    assert scale("users=2", "compute.rate=[1,3]") == pytest.approx(120 / 4)


def test_the_clock_never_runs_slower_than_a_real_one_nor_a_hundred_times_as_fast() -> None:
    assert scale("users=64") == 1.0
    assert scale("users=2", "duration_s=10") == 1.0
    assert scale("users=2", "duration_s=1e6") == 100.0
