"""The threads of a peer that wait for something slow."""

from __future__ import annotations

import math
import queue
import signal
import threading
import time

import numpy as np
import pytest

from dracofl.protocol.headers import Header, Kind, shape_of
from dracofl.runtime.parcel import Parcel
from dracofl.runtime.threads import IN_FLIGHT, IN_FLIGHT_WHEN_QUICK, QUICK_S, STUCK_S, Bell, Readers, Sender, Worker


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


def under_way(takes_s: list[float], is_answered: bool = True) -> list[int]:
    """As many messages as there are times, all waiting from the start. Returns how many are under way when each is
    sent, with itself."""
    lock, done = threading.Lock(), threading.Semaphore(0)
    now, found = [0], [0] * len(takes_s)

    def exchange(_receiver: int, parcel: Parcel) -> bool:
        (number,) = parcel.numbers
        with lock:
            now[0] += 1
            found[number] = now[0]
        time.sleep(takes_s[number])
        with lock:
            now[0] -= 1
        done.release()
        return is_answered

    sender = Sender(1, len(takes_s), exchange, pytest.fail)
    for number in range(len(takes_s)):
        sender.put(parcel(number), pytest.fail)
    for _ in takes_s:
        assert done.acquire(timeout=10)
    sender.stop()
    sender.join()
    return found


QUICK, SLOW = QUICK_S / 5, 2 * QUICK_S


def test_more_is_sent_at_once_where_answers_are_quick() -> None:
    assert max(under_way([QUICK] * 20)) == IN_FLIGHT_WHEN_QUICK


def test_a_slow_link_has_a_queue_of_its_own_which_is_not_filled() -> None:
    assert max(under_way([SLOW] * 8)) == IN_FLIGHT


def test_a_link_that_becomes_slow_is_given_less() -> None:
    found = under_way([QUICK] * 20 + [SLOW] * (IN_FLIGHT_WHEN_QUICK + 6))
    assert max(found[:20]) == IN_FLIGHT_WHEN_QUICK
    assert max(found[-4:]) == IN_FLIGHT


def test_no_answer_is_not_a_quick_one() -> None:
    assert max(under_way([0.01] * 12, is_answered=False)) == IN_FLIGHT


def test_where_no_more_threads_can_be_started_fewer_send(monkeypatch: pytest.MonkeyPatch) -> None:
    start, started = threading.Thread.start, []

    def start_two(thread: threading.Thread) -> None:
        if len(started) == IN_FLIGHT:
            raise RuntimeError("can't start new thread")
        started.append(thread)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", start_two)
    assert max(under_way([QUICK] * 20)) == IN_FLIGHT


def test_a_bell_that_was_rung_before_somebody_waits_is_heard_once() -> None:
    bell = Bell()
    bell.ring()
    bell.ring()
    began_s = time.monotonic()
    bell.wait(at_most_s=10)
    assert time.monotonic() - began_s < 5
    began_s = time.monotonic()
    bell.wait(at_most_s=0.05)
    assert time.monotonic() - began_s >= 0.05


def test_a_bell_wakes_who_waits() -> None:
    bell, awake = Bell(), threading.Event()

    def wait() -> None:
        bell.wait(at_most_s=100)
        awake.set()

    threading.Thread(target=wait, daemon=True).start()
    assert not awake.wait(timeout=0.1)
    bell.ring()
    assert awake.wait(timeout=10)


def test_to_wait_for_a_bell_ends_however_short_the_time_and_whatever_signal_comes() -> None:
    bell, is_stuck = Bell(), threading.Event()

    def rescue() -> None:
        is_stuck.set()
        bell.ring()

    rescuer = threading.Timer(20, rescue)
    rescuer.daemon = True
    rescuer.start()
    before = signal.signal(signal.SIGALRM, lambda *_: None)
    signal.setitimer(signal.ITIMER_REAL, 1e-4, 1e-4)
    try:
        for at_most_s in (1e-6, 1e-5, 1e-4, 2e-4) * 500:
            bell.ring()
            bell.wait(at_most_s)  # there is a ring
            bell.wait(at_most_s)  # there is none
            if is_stuck.is_set():
                break
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)
        rescuer.cancel()
    assert not is_stuck.is_set()


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


def test_one_thread_takes_in_messages_and_a_second_one_only_when_it_is_stuck() -> None:
    messages: queue.SimpleQueue[str] = queue.SimpleQueue()
    taken: queue.SimpleQueue[tuple[str, int]] = queue.SimpleQueue()
    go_on = threading.Event()

    def take(message: str) -> None:
        if message == "slow":
            assert go_on.wait(timeout=10)
        taken.put((message, threading.get_ident()))

    readers = Readers(iter(messages.get, "the end"), take)
    for _ in range(50):
        messages.put("quick")
    (first,) = {taken.get(timeout=10)[1] for _ in range(50)}
    began_s = time.monotonic()
    messages.put("slow")
    messages.put("after it")
    message, second = taken.get(timeout=10)
    assert message == "after it"
    assert second != first
    assert time.monotonic() - began_s > STUCK_S
    go_on.set()
    assert taken.get(timeout=10) == ("slow", first)
    for _ in range(2):
        messages.put("the end")
    readers.join()


def test_a_reader_that_only_stands_by_ends_with_the_other() -> None:
    messages: queue.SimpleQueue[str] = queue.SimpleQueue()
    readers = Readers(iter(messages.get, "the end"), pytest.fail)
    messages.put("the end")
    readers.join()
