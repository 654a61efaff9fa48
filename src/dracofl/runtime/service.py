"""The driver of a real peer: the clock, the threads and the network around a `Peer`.

The peer is one thread's at a time: whoever holds the turn. A thread first waits for what is slow, without the turn,
and then tells the peer what came of it: one trains, one evaluates, one saves, a few for each neighbour send and wait
for the answer, the network's own bring messages and news of members, and the caller's rings the timers. So nothing slow
stands in the way of a message, a slow neighbour is waited for by its own threads alone, and a message is applied and
answered by the thread that brought it: handing it over to another would take longer than applying it.
"""

from __future__ import annotations

import heapq
import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, TypeVar

import numpy as np

from dracofl.clock import multiple
from dracofl.protocol.commands import Happening
from dracofl.runtime.clock import PeerClock
from dracofl.runtime.journal import Journal
from dracofl.runtime.learners import Learner
from dracofl.runtime.parcel import Parcel
from dracofl.runtime.peer import Peer
from dracofl.runtime.threads import Bell, Sender, Worker
from dracofl.runtime.transport import Transport, Unanswered

_NAP_S = 0.25  # real seconds after which the loop looks around though nothing is due
_RINGS = 4  # of one timer in a row, before others have their turn
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Pace:
    duration_s: float
    evaluate_every_s: float | None
    save_every_s: float | None
    free: bool  # updates are finished when computed, not when their drawn time is over
    answer_timeout_s: float  # real seconds
    waiting: int  # updates that may wait for one neighbour


class Observer(Protocol):
    """Who watches a peer. Called with the peer's turn: it must be quick."""

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
        prepare_save: Callable[[float], Callable[[], None]],
    ) -> None:
        self.clock = clock
        self.scores: dict[str, float] = {}  # of the last evaluation
        self._transport = transport
        self._learner = learner
        self._journal = journal
        self._pace = pace
        self._prepare_save = prepare_save  # takes the peer's state, and returns how to write it
        self._peer: Peer | None = None
        self._turn = threading.Lock()  # who holds it may touch the peer, and what is below
        self._bell = Bell()  # wakes the loop; who rings it has the turn
        self._sleeps_until_s = -math.inf  # the loop, if it sleeps
        self._timers: dict[Happening, float] = {}
        self._on_the_radio: list[tuple[float, int, Parcel]] = []
        self._serial = 0
        self._senders: dict[int, Sender] = {}
        self._trainer = Worker("training", self._fail)
        self._evaluator = Worker("evaluation", self._fail)
        self._saver = Worker("saving", self._fail)
        self._evaluations = 0
        self._next_save_s = math.inf
        self._started = self._ending = False
        self._failure: BaseException | None = None

    # Ports: the peer asks with the turn

    def set_timer(self, happening: Happening, at_s: float) -> None:
        if not (self._pace.free and happening == Happening.UPDATE_DUE):
            self._timers[happening] = at_s
            self._wake_for(at_s)

    def train(self, number: int, model: np.ndarray) -> None:
        def work() -> None:
            update = self._learner.local_update(model, number)
            self._tell_unless_ending(lambda now_s: self.peer.trained(update, now_s, self._pace.free))

        self._trainer.begin(work)

    def post(self, parcel: Parcel, at_s: float) -> None:
        now_s = self.clock.now_s()
        if at_s <= now_s:
            self._put_into_outbox(parcel, now_s)
            return
        self._serial += 1
        heapq.heappush(self._on_the_radio, (at_s, self._serial, parcel))
        self._wake_for(at_s)

    # Life

    @property
    def dropped(self) -> int:
        """Messages that were let go unread."""
        return self._transport.dropped

    @property
    def peer(self) -> Peer:
        assert self._peer is not None
        return self._peer

    def run(self, peer: Peer, observer: Observer) -> str:
        """Until its duration is over ("finished") or somebody wants it to stop ("stopped"). Everything is joined."""
        self._peer = peer
        try:
            with self._turn:  # a peer that was away first learns which periods are over, and then what others say
                self._begin_if_due(self.clock.now_s())
            self._transport.open(self._on_message, self._on_member)
            with self._turn:
                try:
                    status = self._loop(observer)
                finally:
                    self._ending = True  # before anybody else has the turn: the peer may be half changed
        finally:
            self._end()
        self._raise_failure()  # of the last moments
        return status

    def _end(self) -> None:
        """What is being sent is waited for, and what was answered is noted; what still arrives is not answered."""
        with self._turn:
            self._ending = True
        for sender in self._senders.values():  # all are told before the first is waited for
            sender.stop()
        for sender in self._senders.values():
            sender.join()
        for worker in (self._trainer, self._evaluator, self._saver):
            worker.end()
        self._transport.close()

    def _loop(self, observer: Observer) -> str:
        looked = -math.inf
        every_s = self._pace.evaluate_every_s
        while True:
            awake = time.monotonic()
            self._raise_failure()
            now_s = self.clock.now_s()
            self._begin_if_due(now_s)
            if time.monotonic() - looked > _NAP_S:
                looked = time.monotonic()
                observer.passed(self, now_s)
            if observer.wants_to_stop():
                return "stopped"
            if now_s >= self._pace.duration_s:
                return "finished"
            self._ring(now_s)
            self._send_due(now_s)
            if self._started and every_s is not None and now_s >= multiple(self._evaluations, every_s):
                self._begin_evaluation(now_s, every_s)
            if now_s >= self._next_save_s:
                if not self._saver.busy:  # on a very slow disk fewer are saved
                    self._saver.begin(self._prepare_save(now_s))
                self._next_save_s = now_s + (self._pace.save_every_s or math.inf)
            self._sleep(at_least_s=time.monotonic() - awake)

    def _begin_if_due(self, now_s: float) -> None:
        if self._started or now_s < 0.0:
            return
        self._started = True
        self.peer.start(now_s)
        self._next_save_s = now_s + (self._pace.save_every_s or math.inf)
        if self._pace.evaluate_every_s is not None:  # a peer that was started again does not catch up on these
            self._evaluations = math.ceil(now_s / self._pace.evaluate_every_s) if now_s > 1.0 else 0

    def _sleep(self, at_least_s: float) -> None:
        """Give the turn away until something is due, and for as long as this thread had it: where timers ring faster
        than they can be answered, others have their turn too."""
        due_s = [*self._timers.values(), self._next_save_s, self._pace.duration_s]
        if self._pace.evaluate_every_s is not None:
            due_s.append(multiple(self._evaluations, self._pace.evaluate_every_s))
        if self._on_the_radio:
            due_s.append(self._on_the_radio[0][0])
        if not self._started:
            due_s.append(0.0)
        self._sleeps_until_s = min(due_s)
        wait_s = self.clock.real_s(self._sleeps_until_s - self.clock.now_s())
        if self._failure is None:
            self._turn.release()
            try:
                self._bell.wait(min(max(wait_s, at_least_s), _NAP_S))
            finally:
                self._turn.acquire()
        self._sleeps_until_s = -math.inf

    def _wake_for(self, at_s: float) -> None:
        if at_s < self._sleeps_until_s:
            self._sleeps_until_s = -math.inf
            self._bell.ring()

    def _fail(self, error: BaseException) -> None:
        """On any thread: the loop is to raise it."""
        with self._turn:
            self._note_failure(error)

    def _note_failure(self, error: BaseException) -> None:
        self._failure = self._failure or error
        self._bell.ring()

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _tell_unless_ending(self, act: Callable[[float], _T]) -> _T | None:
        """On any thread but the loop's: something happened to the peer."""
        with self._turn:
            if self._ending or self._failure is not None:
                return None
            try:
                return act(self.clock.now_s())
            except BaseException as error:
                self._note_failure(error)
                return None

    # What is due

    def _ring(self, now_s: float) -> None:
        for _ in range(_RINGS):  # some of those that follow may be late already
            due = [happening for happening, at_s in self._timers.items() if at_s <= now_s]
            for happening in due:
                if self._timers.get(happening, math.inf) <= now_s:  # one of the others may have moved it
                    del self._timers[happening]
                    self.peer.timer(happening, now_s)
            if not due:
                return

    def _send_due(self, now_s: float) -> None:
        while self._on_the_radio and self._on_the_radio[0][0] <= now_s:
            self._put_into_outbox(heapq.heappop(self._on_the_radio)[2], now_s)

    def _put_into_outbox(self, parcel: Parcel, now_s: float) -> None:
        receiver = parcel.header.receiver
        if receiver not in self._senders:
            self._senders[receiver] = Sender(receiver, self._pace.waiting, self._exchange, self._fail)
        self._senders[receiver].put(parcel, partial(self._journal.write, "merged", now_s, receiver))

    # On other threads

    def _exchange(self, receiver: int, parcel: Parcel) -> bool:
        """On a sender's: send, wait, and tell the peer, even at the end. Says whether there was an answer."""
        asked_s = self.clock.now_s()
        if asked_s > parcel.expires_s:
            found: bytes | Unanswered = Unanswered.LATE
        else:
            found = self._transport.send(receiver, *parcel.on_the_wire(), self._pace.answer_timeout_s)
        answered_s = self.clock.now_s()
        with self._turn:
            self.peer.answered(parcel, found, asked_s, answered_s)
        return not isinstance(found, Unanswered)

    def _on_message(self, sender: int, header: bytes, numbers: bytes) -> bytes | None:
        return self._tell_unless_ending(lambda now_s: self.peer.message(header, numbers, now_s, sender))

    def _on_member(self, user: int, epoch: int, is_there: bool) -> None:
        told = self.peer.member_came if is_there else self.peer.member_left
        self._tell_unless_ending(lambda now_s: told(user, epoch, now_s))

    # Evaluation

    def _begin_evaluation(self, now_s: float, every_s: float) -> None:
        latest = max(self._evaluations, math.floor(now_s / every_s))  # after a stall, not those that were missed
        at_s = multiple(latest, every_s)
        self._evaluations = latest + 1
        if self._evaluator.busy:  # a slow evaluation is missed, and holds up nothing
            return
        model = self.peer.model.copy()

        def work() -> None:
            scores = dict(self._learner.evaluate(model, False))
            with self._turn:
                self._note_scores(at_s, scores, final=False)

        self._evaluator.begin(work)

    def evaluate_finally(self, now_s: float) -> None:
        self._note_scores(now_s, dict(self._learner.evaluate(self.peer.model, True)), final=True)

    def _note_scores(self, at_s: float, scores: dict[str, Any], final: bool) -> None:
        self.scores = scores
        self._journal.write("evaluated", at_s, {name: float(value) for name, value in scores.items()}, final)
