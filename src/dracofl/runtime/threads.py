"""The threads of a peer that wait for something slow: a training, an evaluation, a neighbour's answer."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable

from dracofl.runtime.parcel import Outbox, Parcel

IN_FLIGHT = 2  # messages to one neighbour that wait for its answer; more would fill the queue of a slow link
IN_FLIGHT_WHEN_QUICK = 4
QUICK_S = 0.05  # an answer within this time says that the link has room


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


class Sender:
    """The outbox of one neighbour and the threads that empty it: while one waits for an answer, another sends."""

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
        self._outbox = Outbox(capacity)
        self._changed = threading.Condition()
        self._in_flight, self._may_be_in_flight = 0, IN_FLIGHT
        self._ending = False
        self._threads = [
            threading.Thread(target=self._work, name=f"to peer {receiver}", daemon=True)
            for _ in range(IN_FLIGHT_WHEN_QUICK)
        ]
        for thread in self._threads:
            thread.start()

    def put(self, parcel: Parcel, note_merged: Callable[[int, int], None]) -> None:
        with self._changed:  # until it is noted what is in a message, that must not be sent
            merged = self._outbox.put(parcel)
            if merged is not None:
                try:
                    note_merged(*merged)
                except BaseException:
                    self._ending = True
                    raise
            self._changed.notify()

    def stop(self) -> None:
        with self._changed:
            self._ending = True
            self._changed.notify_all()

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
            with self._changed:
                self._in_flight -= 1
                most = IN_FLIGHT_WHEN_QUICK if is_quick else IN_FLIGHT
                if most > self._may_be_in_flight:  # there is room for more than this thread takes
                    self._changed.notify_all()
                self._may_be_in_flight = most

    def _next(self) -> Parcel | None:
        with self._changed:
            while not self._ending and not (len(self._outbox) and self._in_flight < self._may_be_in_flight):
                self._changed.wait()
            if self._ending:
                return None
            self._in_flight += 1
            return self._outbox.take()
