"""The control plane's thread: what it does ahead of the data plane, and when it gives way."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any, cast

import pytest

import dracofl
from dracofl.build import build_simulator, build_world
from dracofl.compute.executor import Executor
from dracofl.compute.timings import Timings
from dracofl.experiments.ahead import ControlThread
from dracofl.sim.simulator import Simulator, Stretch
from dracofl.tape import Operation

A_WHILE_S = 30.0


class TakesTheTapeAsItIs:
    def prepare(self, operations: Sequence[Operation]) -> Sequence[Operation]:
        return operations


def tiny(duration_s: float = 200.0) -> Simulator:
    config = dracofl.configure("tiny", [f"duration_s={duration_s}"])
    simulator = build_simulator(config, build_world(config), 10)
    simulator.start()
    return simulator


def nothing(*_: Any) -> None:
    pass


def control(
    simulator: Simulator, record: Callable[[Stretch], None] = nothing, write_records: Callable[[], None] = nothing
) -> ControlThread:
    executor = cast(Executor, TakesTheTapeAsItIs())
    return ControlThread(simulator, executor, record, write_records, Timings(), next_save_s=float("inf"))


def test_records_are_written_once_while_the_last_stretch_is_still_to_be_played() -> None:
    stretches, written, times = [], threading.Event(), []

    def write() -> None:
        times.append(len(stretches))
        written.set()

    with control(tiny(), stretches.append, write) as thread:
        played = 0
        for ready in thread:
            if ready.done:
                assert written.wait(A_WHILE_S)
            played += 1
    assert played > 2
    assert times == [played] == [len(stretches)]


def test_records_of_a_run_that_was_paused_are_not_written() -> None:
    written, simulator = [], tiny(duration_s=5000.0)  # far longer than it may be ahead
    with control(simulator, write_records=lambda: written.append(True)) as thread:
        for _ in thread:
            thread.pause()
    assert not simulator.state.done
    assert not written


def test_who_plays_is_told_that_records_could_not_be_written() -> None:
    def write() -> None:
        raise OSError("no space left")

    with control(tiny(), write_records=write) as thread, pytest.raises(OSError, match="no space left"):
        for _ in thread:
            pass


@pytest.mark.skipif(sys.platform != "linux", reason="threads have priorities of their own on Linux alone")
def test_the_control_plane_gives_way_and_nobody_else_does() -> None:
    def niceness() -> int:
        return os.getpriority(os.PRIO_PROCESS, threading.get_native_id())

    found, before = [], niceness()
    with control(tiny(), lambda _: found.append(niceness())) as thread:
        for _ in thread:
            pass
    assert niceness() == before
    assert min(found) > before or before == 19
