"""A peer's clock: seconds of the configuration since second 0, whatever happens to the clock on the wall."""

from __future__ import annotations

import time

import pytest

from dracofl.runtime.clock import PeerClock


class Clocks:
    """The machine's two clocks, in our hands."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.wall, self.steady = 1_000_000.0, 50.0
        monkeypatch.setattr(time, "time", lambda: self.wall)
        monkeypatch.setattr(time, "monotonic", lambda: self.steady)

    def pass_s(self, seconds: float) -> None:
        self.wall += seconds
        self.steady += seconds


@pytest.fixture
def clocks(monkeypatch: pytest.MonkeyPatch) -> Clocks:
    return Clocks(monkeypatch)


def test_second_0_is_when_it_was_said_to_be(clocks: Clocks) -> None:
    clock = PeerClock(starts_at=clocks.wall + 3.0, time_scale=1.0)
    assert clock.now_s() == -3.0
    clocks.pass_s(5.0)
    assert clock.now_s() == 2.0


def test_who_comes_late_or_comes_back_is_as_far_as_the_others(clocks: Clocks) -> None:
    first = PeerClock(starts_at=clocks.wall, time_scale=10.0)
    clocks.pass_s(7.0)
    second = PeerClock(starts_at=clocks.wall - 7.0, time_scale=10.0)
    assert first.now_s() == second.now_s() == 70.0


def test_time_may_run_faster_than_on_a_watch(clocks: Clocks) -> None:
    clock = PeerClock(starts_at=clocks.wall, time_scale=20.0)
    clocks.pass_s(1.5)
    assert clock.now_s() == 30.0
    assert clock.real_s(30.0) == 1.5


@pytest.mark.parametrize("jump_s", [3600.0, -3600.0, -1e9])
def test_a_wall_clock_that_is_set_moves_nothing(clocks: Clocks, jump_s: float) -> None:
    clock = PeerClock(starts_at=clocks.wall, time_scale=2.0)
    clocks.pass_s(10.0)
    clocks.wall += jump_s
    assert clock.now_s() == 20.0
    clocks.pass_s(1.0)
    assert clock.now_s() == 22.0
