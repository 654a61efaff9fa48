"""What is said of the progress of many runs where there is no terminal: a line now and then, with the time left."""

from __future__ import annotations

import pytest

from dracofl import screen
from dracofl.screen import Headlines


class Clock:
    now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(screen, "time", found)
    return found


def test_a_line_every_ten_seconds_with_what_is_left(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    with Headlines() as headlines:
        progress = headlines.announce("comparing")
        for second in range(41):
            clock.now = 100.0 + second
            progress(10.0 * second, 1000.0)
        progress(1000.0, 1000.0)
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.splitlines() == [
        "comparing",
        " 11%  comparing, about 89 s left",
        " 22%  comparing, about 78 s left",
        " 33%  comparing, about 67 s left",
    ]


def test_what_was_done_before_does_not_make_it_look_fast(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    progress = Headlines().announce("comparing")
    progress(800.0, 1000.0)
    clock.now += 20.0
    progress(805.0, 1000.0)  # too little to tell from
    clock.now += 20.0
    progress(850.0, 1000.0)
    assert capsys.readouterr().err.splitlines() == ["comparing", " 85%  comparing, about 120 s left"]
