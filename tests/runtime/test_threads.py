"""The threads of a peer that wait for something slow."""

from __future__ import annotations

import math
import threading
import time

import numpy as np
import pytest

from dracofl.protocol.headers import Header, Kind, shape_of
from dracofl.runtime.parcel import Parcel
from dracofl.runtime.threads import IN_FLIGHT, IN_FLIGHT_WHEN_QUICK, QUICK_S, Sender, Worker


def parcel(number: int) -> Parcel:
    header = Header(Kind.UPDATE, 0, 1, 1, 1, number, 1, 0, 0.5, 0.0, 0.0, math.nan, 2, shape_of("test"))
    return Parcel(header, np.ones(2, np.float32), (number,), math.inf)


def test_a_sum_that_could_not_be_noted_is_not_sent() -> None:
    go_on, busy = threading.Event(), threading.Semaphore(0)
    sent: list[tuple[int, ...]] = []

    def exchange(_receiver: int, parcel: Parcel) -> bool:
        sent.append(parcel.numbers)
        busy.release()
        return go_on.wait(timeout=10)

    def full(*_: int) -> None:
        raise OSError("no space left")

    sender = Sender(1, 1, exchange, pytest.fail)
    for number in range(IN_FLIGHT):
        sender.put(parcel(number), full)
        assert busy.acquire(timeout=10)
    sender.put(parcel(10), full)  # waits
    with pytest.raises(OSError, match="no space"):
        sender.put(parcel(11), full)
    go_on.set()
    assert not busy.acquire(timeout=0.5)
    sender.stop()
    sender.join()
    assert sent == [(number,) for number in range(IN_FLIGHT)]


@pytest.mark.parametrize(
    ("takes_s", "is_answered", "at_once"),
    [
        (0.0, True, IN_FLIGHT_WHEN_QUICK),
        (2 * QUICK_S, True, IN_FLIGHT),  # a slow link has a queue of its own, which must not be filled
        (0.0, False, IN_FLIGHT),
    ],
    ids=["quick", "slow", "unanswered"],
)
def test_more_is_sent_at_once_where_answers_are_quick(takes_s: float, is_answered: bool, at_once: int) -> None:
    first, go_on, busy = threading.Event(), threading.Event(), threading.Semaphore(0)

    def exchange(_receiver: int, parcel: Parcel) -> bool:
        if parcel.numbers == (0,):
            time.sleep(takes_s)
            first.set()
        else:
            busy.release()
            go_on.wait(timeout=10)
        return is_answered

    sender = Sender(1, 100, exchange, pytest.fail)
    sender.put(parcel(0), pytest.fail)
    assert first.wait(timeout=10)
    time.sleep(0.2)  # until it is taken note of
    for number in range(1, 10):
        sender.put(parcel(number), pytest.fail)
    for _ in range(at_once):
        assert busy.acquire(timeout=10)
    assert not busy.acquire(timeout=0.3)
    sender.stop()
    go_on.set()
    sender.join()


def test_a_worker_tells_what_a_task_raises_and_takes_the_next() -> None:
    errors: list[BaseException] = []
    done = threading.Event()
    worker = Worker("test", errors.append)

    def fail() -> None:
        raise ValueError("broken")

    worker.begin(fail)
    worker.begin(done.set)
    assert done.wait(timeout=10)
    worker.end()
    assert [str(error) for error in errors] == ["broken"]
