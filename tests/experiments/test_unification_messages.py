"""A hub's messages have a counter of their own, outside the fates of updates."""

from __future__ import annotations

from pathlib import Path

import pytest

import dracofl

CHANGES = ["task.kind=quadratic", "duration_s=350", "evaluate.every_s=none"]  # three periods end, eight users


@pytest.mark.parametrize(
    ("changes", "received"),
    [
        (["method.unification=reliable"], range(21, 22)),
        (["method.unification=radio", "channel.kind=ideal"], range(21, 22)),
        (["method.unification=radio", "channel.kind=lossy", "channel.loss=0.5"], range(5, 17)),
        (["method.unification=radio", "channel.deadline_s=0.0000001"], range(1)),
    ],
)
def test_models_sent_and_received_are_counted(changes: list[str], received: range, tmp_path: Path) -> None:
    summary = dracofl.run("tiny", [*CHANGES, *changes], out=tmp_path / "run").summary
    assert summary["unifications"] == 3
    assert summary["unification_messages"]["sent"] == 21
    assert summary["unification_messages"]["received"] in received


def test_without_unification_there_are_none(tmp_path: Path) -> None:
    summary = dracofl.run("tiny", [*CHANGES, "method.unification=off"], out=tmp_path / "run").summary
    assert summary["unification_messages"] == {"sent": 0, "received": 0}
