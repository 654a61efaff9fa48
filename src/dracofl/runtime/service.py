"""The driver of a real peer: the clock, the threads and the network around a `Peer`.

One thread, the caller's, owns the peer and everything that changes in it. The others only wait for something slow and
put what they got into the inbox: one trains, one evaluates, two for each neighbour send and wait for the answer, and
the network's own bring messages and news of members. So nothing slow ever stands in the way of a message, a slow
neighbour is waited for by its own threads alone, and the peer needs no lock.
"""

from __future__ import annotations

import heapq
import math
import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import numpy as np

from dracofl.clock import multiple
from dracofl.protocol.commands import Happening
from dracofl.runtime.clock import PeerClock
from dracofl.runtime.journal import Journal
from dracofl.runtime.learners import Learner
from dracofl.runtime.parcel import Outbox, Parcel
from dracofl.runtime.peer import Peer, Unanswered
from dracofl.runtime.transport import Reply, Transport

_MOST_WAITING_MESSAGES = 256  # of the inbox; what comes beyond it is dropped, and its sender sees no answer
_IN_FLIGHT = 2  # messages to one neighbour that wait for its answer
_NAP_S = 0.25  # real seconds after which the loop looks around though nothing came


@dataclass(frozen=True, slots=True)
class Pace:
    duration_s: float
    evaluate_every_s: float | None
    save_every_s: float | None
    free: bool  # updates are finished when computed, not when their drawn time is over
    answer_timeout_s: float  # real seconds
    waiting: int  # updates that may wait for one neighbour


class Observer(Protocol):
    """Who watches a peer. Called on the peer's thread: it must be quick."""

    def passed(self, service: Service, now_s: float) -> None:
        """About four times a real second."""
        ...

    def wants_to_stop(self) -> bool: ...


class Service:
    """Implements the peer's `Ports`."""

    def __init__(
        self,
        clock: PeerClock,
        transport: Transport,
        learner: Learner,
        journal: Journal,
        pace: Pace,
        save: Callable[[float], None],
    ) -> None:
        self.clock = clock
        self.scores: dict[str, float] = {}  # of the last evaluation
        self._transport = transport
        self._learner = learner
        self._journal = journal
        self._pace = pace
        self._save = save
        self._peer: Peer | None = None
        self._inbox: queue.SimpleQueue[Callable[[float], None]] = queue.SimpleQueue()
        self._waiting_messages = 0
        self._dropped = 0
        self._lock = threading.Lock()  # of the two counters above, which the network's threads move
        self._timers: dict[Happening, float] = {}
        self._on_the_radio: list[tuple[float, int, Parcel]] = []
        self._serial = 0
        self._senders: dict[int, _Sender] = {}
        self._trainer = _Worker("training", self._inbox)
        self._evaluator = _Worker("evaluation", self._inbox)
        self._evaluations = 0
        self._next_save_s = math.inf
        self._ending = False

    # Ports

    def set_timer(self, happening: Happening, at_s: float) -> None:
        if not (self._pace.free and happening == Happening.UPDATE_DUE):
            self._timers[happening] = at_s

    def train(self, number: int, model: np.ndarray) -> None:
        def work() -> Callable[[float], None]:
            update = self._learner.local_update(model, number)
            return lambda now_s: None if self._ending else self.peer.trained(update, now_s, self._pace.free)

        self._trainer.begin(work)

    def post(self, parcel: Parcel, at_s: float) -> None:
        self._serial += 1
        heapq.heappush(self._on_the_radio, (at_s, self._serial, parcel))

    # Life

    @property
    def dropped(self) -> int:
        """Messages that were let go unread."""
        return self._dropped + self._transport.dropped

    @property
    def peer(self) -> Peer:
        assert self._peer is not None
        return self._peer

    def run(self, peer: Peer, observer: Observer) -> str:
        """Until its duration is over ("finished") or somebody wants it to stop ("stopped"). Everything is joined."""
        self._peer = peer
        self._transport.open(self._on_message, self._on_member)
        try:
            return self._loop(observer)
        finally:
            self._end()

    def _end(self) -> None:
        """What is being sent is waited for, and what was answered is noted; what still arrives is not answered."""
        self._ending = True
        for sender in self._senders.values():  # all are told before the first is waited for
            sender.stop()
        for sender in self._senders.values():
            sender.join()
        self._trainer.end()
        self._evaluator.end()
        self._transport.close()
        while not self._inbox.empty():
            self._inbox.get()(self.clock.now_s())

    def _loop(self, observer: Observer) -> str:
        started, looked = False, -math.inf
        every_s = self._pace.evaluate_every_s
        while True:
            now_s = self.clock.now_s()
            if not started and now_s >= 0.0:
                self._begin(now_s)
                started = True
            if time.monotonic() - looked > _NAP_S:
                looked = time.monotonic()
                observer.passed(self, now_s)
            if observer.wants_to_stop():
                return "stopped"
            if now_s >= self._pace.duration_s:
                return "finished"
            self._ring(now_s)
            self._send_due(now_s)
            if started and every_s is not None and now_s >= multiple(self._evaluations, every_s):
                self._begin_evaluation(now_s, every_s)
            if now_s >= self._next_save_s:
                self._save(now_s)
                self._next_save_s = now_s + (self._pace.save_every_s or math.inf)
            self._take_one(now_s, started)

    def _begin(self, now_s: float) -> None:
        self.peer.start(now_s)
        self._next_save_s = now_s + (self._pace.save_every_s or math.inf)
        if self._pace.evaluate_every_s is not None:  # a peer that was started again does not catch up on these
            self._evaluations = math.ceil(now_s / self._pace.evaluate_every_s) if now_s > 1.0 else 0

    def _take_one(self, now_s: float, started: bool) -> None:
        due_s = [*self._timers.values(), self._next_save_s, self._pace.duration_s]
        if self._pace.evaluate_every_s is not None:
            due_s.append(multiple(self._evaluations, self._pace.evaluate_every_s))
        if self._on_the_radio:
            due_s.append(self._on_the_radio[0][0])
        if not started:
            due_s.append(0.0)
        wait_s = min(max(self.clock.real_s(min(due_s) - now_s), 0.0), _NAP_S)
        try:
            act = self._inbox.get(timeout=wait_s) if wait_s > 0.0 else self._inbox.get_nowait()
        except queue.Empty:
            return
        act(self.clock.now_s())

    def _ring(self, now_s: float) -> None:
        for happening in [happening for happening, at_s in self._timers.items() if at_s <= now_s]:
            if self._timers.get(happening, math.inf) <= now_s:  # one of the others may have moved it
                del self._timers[happening]
                self.peer.timer(happening, now_s)

    def _send_due(self, now_s: float) -> None:
        while self._on_the_radio and self._on_the_radio[0][0] <= now_s:
            _, _, parcel = heapq.heappop(self._on_the_radio)
            receiver = parcel.header.receiver
            if receiver not in self._senders:
                self._senders[receiver] = _Sender(self, receiver, self._pace.waiting)
            self._senders[receiver].put(parcel, partial(self._journal.write, "merged", now_s, receiver))

    def exchange(self, receiver: int, parcel: Parcel) -> None:
        """On a sender's thread: send, wait, and tell the peer."""
        asked_s = self.clock.now_s()
        if asked_s > parcel.expires_s:
            found: bytes | Unanswered = Unanswered.LATE
        else:
            found = self._transport.send(receiver, parcel.to_bytes(), self._pace.answer_timeout_s)
        answered_s = self.clock.now_s()
        self._inbox.put(lambda _: self.peer.answered(parcel, found, asked_s, answered_s))

    def fail(self, error: BaseException) -> None:
        """On any thread: the peer's own is to raise it."""
        self._inbox.put(lambda _: _raise(error))

    # From the network's threads

    def _on_message(self, sender: int, data: bytes, reply: Reply) -> None:
        with self._lock:
            if self._waiting_messages >= _MOST_WAITING_MESSAGES:
                self._dropped += 1
                return
            self._waiting_messages += 1

        def answer(now_s: float) -> None:
            with self._lock:
                self._waiting_messages -= 1
            if not self._ending:
                reply(self.peer.message(data, now_s, sender))

        self._inbox.put(answer)

    def _on_member(self, user: int, epoch: int, is_there: bool) -> None:
        def note(now_s: float) -> None:
            if self._ending:
                return
            told = self.peer.member_came if is_there else self.peer.member_left
            told(user, epoch, now_s)

        self._inbox.put(note)

    # Evaluation

    def _begin_evaluation(self, now_s: float, every_s: float) -> None:
        latest = max(self._evaluations, math.floor(now_s / every_s))  # after a stall, not those that were missed
        at_s = multiple(latest, every_s)
        self._evaluations = latest + 1
        if self._evaluator.busy:  # a slow evaluation is missed, and holds up nothing
            return
        model = self.peer.model.copy()

        def work() -> Callable[[float], None]:
            scores = dict(self._learner.evaluate(model, False))
            return lambda _: self._note_scores(at_s, scores, final=False)

        self._evaluator.begin(work)

    def evaluate_finally(self, now_s: float) -> None:
        self._note_scores(now_s, dict(self._learner.evaluate(self.peer.model, True)), final=True)

    def _note_scores(self, at_s: float, scores: dict[str, Any], final: bool) -> None:
        self.scores = scores
        self._journal.write("evaluated", at_s, {name: float(value) for name, value in scores.items()}, final)


def _raise(error: BaseException) -> None:
    raise error


class _Worker:
    """One thread, one task at a time."""

    def __init__(self, name: str, inbox: queue.SimpleQueue[Callable[[float], None]]) -> None:
        self._tasks: queue.SimpleQueue[Callable[[], Callable[[float], None]] | None] = queue.SimpleQueue()
        self._inbox = inbox
        self.busy = False
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    def begin(self, task: Callable[[], Callable[[float], None]]) -> None:
        self.busy = True
        self._tasks.put(task)

    def end(self) -> None:
        self._tasks.put(None)
        self._thread.join()

    def _work(self) -> None:
        while (task := self._tasks.get()) is not None:
            try:
                self._inbox.put(task())
            except BaseException as error:
                found = error
                self._inbox.put(lambda _, found=found: _raise(found))  # type: ignore[misc]
            self.busy = False


class _Sender:
    """The outbox of one neighbour and the threads that empty it: while one waits for an answer, another sends."""

    def __init__(self, service: Service, receiver: int, capacity: int) -> None:
        self._service = service
        self._receiver = receiver
        self._outbox = Outbox(capacity)
        self._changed = threading.Condition()
        self._ending = False
        self._threads = [
            threading.Thread(target=self._work, name=f"to peer {receiver}", daemon=True) for _ in range(_IN_FLIGHT)
        ]
        for thread in self._threads:
            thread.start()

    def put(self, parcel: Parcel, note_merged: Callable[[int, int], None]) -> None:
        with self._changed:  # until it is noted what is in a message, that must not be sent
            merged = self._outbox.put(parcel)
            if merged is not None:
                note_merged(*merged)
            self._changed.notify()

    def stop(self) -> None:
        with self._changed:
            self._ending = True
            self._changed.notify_all()

    def join(self) -> None:
        for thread in self._threads:
            thread.join()

    def _work(self) -> None:
        while True:
            with self._changed:
                while not len(self._outbox) and not self._ending:
                    self._changed.wait()
                if self._ending:
                    return
                parcel = self._outbox.take()
            try:
                self._service.exchange(self._receiver, parcel)
            except BaseException as error:
                self._service.fail(error)
                return
