"""The comparison with other simulators runs, in its quick form. It makes their virtual environment (1.4 GB), once."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))  # the benchmarks are not installed

from benchmarks import cnn_step, peers
from benchmarks.figure import Figure


def _measured(benchmark: object) -> list[Figure]:
    try:
        return benchmark.measure(quick=True)  # type: ignore[attr-defined]
    except peers.Missing as missing:
        pytest.skip(f"the peers' environment cannot be made: {missing}")


@pytest.mark.slow
def test_peers_are_measured_beside_us() -> None:
    figures = _measured(peers)
    wanted = [figure for figure in figures if figure.target]
    assert [figure.target for figure in wanted] == [4.0, 8.0, 1.5, 1.5]
    assert not any(figure.detail["failed"] for figure in wanted)
    for figure in figures:
        assert figure.median > 0
        assert figure.detail["best peer"] in figure.detail["peers' SGD steps/s"]
        assert "in one process" not in figure.name or "processes" not in figure.detail["best peer"]


@pytest.mark.slow
def test_the_cnn_step_is_measured_beside_pytorch() -> None:
    one_core, *_ = _measured(cnn_step)
    assert one_core.target is None
    assert one_core.median > 0


FAILS_ONCE = """
import json, pathlib, sys
mark = pathlib.Path(json.loads(sys.argv[1])["mark"])
if not mark.exists():
    mark.touch()
    raise RuntimeError("nobody came")
print('{"steps": 3}')
"""


def test_a_peer_that_fails_is_asked_once_more(tmp_path: Path) -> None:
    command, order = [sys.executable, "-c", FAILS_ONCE], {"mark": str(tmp_path / "mark")}
    assert peers._ask_twice(command, order) == {"steps": 3}
    with pytest.raises(peers.Failed, match="RuntimeError: nobody came"):
        peers._ask_twice([sys.executable, "-c", "raise RuntimeError('nobody came')"], order)


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (
            "Traceback\n  x\nRuntimeError: connection closed\nRoot cause:\n=========\n",
            "RuntimeError: connection closed",
        ),
        ("killed\n---\n", "killed"),
        ("\n", "no reason given"),
    ],
)
def test_a_reason_is_a_line_that_says_something(words: str, reason: str) -> None:
    assert peers._reason(words) == reason


def test_where_only_peers_of_several_processes_work_the_others_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    ours = {topology: {"steps_per_s": 12.0, "with_set_up": 9.0} for topology in ("complete", "ring")}
    monkeypatch.setattr(peers, "ask", lambda *_: ours)
    monkeypatch.setattr(peers, "_ask_twice", lambda *_: {"2 processes, 1 thread": 3.0})
    monkeypatch.setattr(peers, "bare_speed", lambda *_, **__: 15.0)
    monkeypatch.setattr(peers, "bare_speed_on_all_cores", lambda **_: 30.0)
    figures = peers._measure_model("mlp", True, {"pfl on all cores": ([], {})}, {"failed": {}})
    assert [figure.values for figure in figures] == [[4.0], [5.0], [4.0], [10.0]]
    assert not any("in one process" in figure.name for figure in figures)
