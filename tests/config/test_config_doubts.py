"""What is allowed and probably not meant is said, and does not stop a run."""

from __future__ import annotations

from pathlib import Path

import pytest

from dracofl.build import build_world, doubts_about
from dracofl.config.consistency import doubts
from dracofl.config.load import load_config


@pytest.mark.parametrize(
    ("overrides", "fragments"),
    [
        (["duration_s=100"], ["method.period_s = 100", "(100 s)", "no unification"]),
        (["method.period_s=6000"], ["method.period_s = 6000", "(5000 s)", "no unification"]),
        (["method.period_s=none"], ["method.period_s is none", "no unification"]),
        (["evaluate.every_s=5000"], ["evaluate.every_s = 5000", "not shorter"]),
        (["channel.deadline_s=5000"], ["channel.deadline_s = 5000", "not shorter"]),
        (["method.window_s=101"], ["method.window_s = 101", "method.period_s = 100"]),
        (["topology.kind=cycle", "method.own_weight=0"], ["method.own_weight = 0", "collapse"]),
    ],
)
def test_a_doubt_is_one_sentence_with_key_and_value(overrides: list[str], fragments: list[str]) -> None:
    found = doubts(load_config("poker", overrides))
    sentence = next(one for one in found if fragments[0] in one)
    assert all(fragment in sentence for fragment in fragments)


@pytest.mark.parametrize(
    "overrides",
    [
        [],
        ["method.own_weight=0"],
        ["method.period_s=none", "method.unification=off"],
        ["evaluate.every_s=none"],
        ["channel.kind=exponential", "channel.deadline_s=9000"],
        ["method.window_s=100"],
    ],
)
def test_no_doubt_where_there_is_nothing_to_doubt(overrides: list[str]) -> None:
    assert doubts(load_config("poker", overrides)) == []


def test_a_graph_that_falls_apart_is_doubted(tmp_path: Path) -> None:
    graph = tmp_path / "two-pairs.txt"
    graph.write_text("0 1\n1 0\n2 3\n3 2\n")
    world = build_world(load_config("poker", ["users=4", "topology.kind=file", f"topology.path={graph}"]))
    (sentence,) = doubts_about(world)
    assert "not strongly connected" in sentence
    assert doubts_about(build_world(load_config("poker", ["users=4"]))) == []
