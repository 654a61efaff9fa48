"""The threads of a peer that wait for something slow: a training, an evaluation, a neighbour's answer, a message."""

from __future__ import annotations

import math
import queue
import threading
import time
from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

from dracofl.runtime.parcel import Outbox, Parcel

IN_FLIGHT = 2  # messages to one neighbour that wait for its answer; more would fill the queue of a slow link
IN_FLIGHT_WHEN_QUICK = 8
QUICK_S = 0.05  # an answer within this time says that the link has room
STUCK_S = 0.25  # who takes in one message for so long waits for room for its answer, on a slow link

_T = TypeVar("_T")


class Bell:
    """One thread waits for it, others ring it, one at a time. A ring that nobody waited for ends the next wait.

    A lock wakes a thread in a fraction of the time of a `threading.Condition`. So does a `queue.SimpleQueue`, but up to
    Python 3.12 its `get` never ends if its time is over when it looks again, as after a signal: it waits for less than
    nothing, which the system takes for as long as it likes.
    """

    def __init__(self) -> None:
        self._rung = threading.Lock()  # free if so
        self._rung.acquire()

    def ring(self) -> None:
        if self._rung.locked():
            self._rung.release()

    def wait(self, at_most_s: float) -> None:
        self._rung.acquire(timeout=at_most_s)


class Worker:
    """One thread, one task at a time. What a task raises is told to `fail`."""

    def __init__(self, name: str, fail: Callable[[BaseException], None]) -> None:
        self._tasks: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._fail = fail
        self.busy = False
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    def begin(self, task: Callable[[], None]) -> None:
        self.busy = True
        self._tasks.put(task)

    def end(self) -> None:
        self._tasks.put(None)
        self._thread.join()

    def _work(self) -> None:
        while (task := self._tasks.get()) is not None:
            try:
                task()
            except BaseException as error:
                self._fail(error)
            self.busy = False


class Readers(Generic[_T]):
    """Take in what arrives. One thread does, as two would wait for the interpreter and for the peer's turn in every
    message; but when it is stuck with one a second one joins it, for good."""

    def __init__(self, arriving: Iterable[_T], take: Callable[[_T], None]) -> None:
        """`arriving` ends when the network is closed. `take` raises nothing."""
        self._arriving = arriving
        self._take = take
        self._taking_since_s = math.inf
        self._is_over = threading.Event()
        self._threads = [threading.Thread(target=work, daemon=True) for work in (self._read, self._stand_by)]
        for thread in self._threads:
            thread.start()

    def join(self) -> None:
        for thread in self._threads:
            thread.join()

    def _read(self) -> None:
        for message in self._arriving:
            self._taking_since_s = time.monotonic()
            self._take(message)
            self._taking_since_s = math.inf
        self._is_over.set()

    def _stand_by(self) -> None:
        while not self._is_over.wait(STUCK_S):
            if time.monotonic() - self._taking_since_s > STUCK_S:
                self._read()


class Sender:
    """The outbox of one neighbour and the threads that empty it: while one waits for an answer, another sends.

    What threads wait for comes in queues, which wake one in a fraction of the time of a `threading.Condition`.
    """

    def __init__(
        self,
        receiver: int,
        capacity: int,
        exchange: Callable[[int, Parcel], bool],
        fail: Callable[[BaseException], None],
    ) -> None:
        """`exchange` sends to the receiver, waits, and says whether there was an answer."""
        self._receiver = receiver
        self._exchange = exchange
        self._fail = fail
        self._lock = threading.Lock()  # on all that is below, but not on the queues
        self._outbox = Outbox(capacity)
        self._may_be_in_flight = 0
        self._ending = False
        self._permits: queue.SimpleQueue[None] = queue.SimpleQueue()  # a thread without one does nothing
        self._waiting: queue.SimpleQueue[None] = queue.SimpleQueue()  # as many as there are in the outbox
        self._threads: list[threading.Thread] = []
        self._permit(IN_FLIGHT)

    def put(self, parcel: Parcel, note_merged: Callable[[int, int], None]) -> None:
        with self._lock:  # until it is noted what is in a message, that must not be sent
            before = len(self._outbox)
            merged = self._outbox.put(parcel)
            if merged is not None:
                try:
                    note_merged(*merged)
                except BaseException:
                    self._ending = True
                    raise
            if len(self._outbox) > before:
                self._waiting.put(None)

    def stop(self) -> None:
        with self._lock:
            self._ending = True
            for _ in self._threads:  # wherever they wait
                self._permits.put(None)
                self._waiting.put(None)

    def join(self) -> None:
        for thread in self._threads:
            thread.join()

    def _work(self) -> None:
        while (parcel := self._next()) is not None:
            began_s = time.monotonic()
            try:
                is_answered = self._exchange(self._receiver, parcel)
            except BaseException as error:
                self._fail(error)
                return
            is_quick = is_answered and time.monotonic() - began_s < QUICK_S
            with self._lock:
                self._may_be_in_flight -= 1  # its own permit is over
                self._permit(IN_FLIGHT_WHEN_QUICK if is_quick else IN_FLIGHT)

    def _next(self) -> Parcel | None:
        self._permits.get()
        self._waiting.get()
        with self._lock:
            return None if self._ending else self._outbox.take()

    def _permit(self, most: int) -> None:
        for _ in range(self._may_be_in_flight, most):
            self._permits.put(None)
        self._may_be_in_flight = max(most, self._may_be_in_flight)
        while len(self._threads) < most and not self._ending:  # most neighbours never need so many
            thread = threading.Thread(target=self._work, name=f"to peer {self._receiver}", daemon=True)
            try:
                thread.start()
            except RuntimeError:  # the system allows no more
                if not self._threads:
                    raise
                return
            self._threads.append(thread)
