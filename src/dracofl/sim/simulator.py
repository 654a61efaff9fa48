"""The simulator: virtual time, total order, and the tape.

Everything that will happen is on one heap, ordered by (time, priority, serial number): at one instant a unification
with its restart of budgets comes before everything else, and equals keep the order in which they were scheduled.
Evaluations come before both and are not on the heap at all, so that measuring cannot move anything. A run is [0, T):
what would happen at T or later does not, and what is on its way then is pending.

The simulator hands out the tape in stretches. Where a stretch ends depends on the trainings and operations in it,
hence on the configuration alone, and between two stretches `state` is all there is to save.
"""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass, field
from typing import NamedTuple

from dracofl.channels.interface import Delivery, Medium
from dracofl.clock import multiple
from dracofl.methods.interface import Network
from dracofl.protocol.commands import (
    Command,
    Happening,
    RecordFinish,
    SendModel,
    SendUpdate,
    SetTimer,
    Settle,
)
from dracofl.protocol.messages import Message
from dracofl.tape import Combine, Compress, Copy, Evaluate, Free, Operation, Train
from dracofl.trace import EventKind, EventRow, MessageRow, TraceHash
from dracofl.types import Fate

_STRETCH_TRAININGS = 64
_STRETCH_OPERATIONS = 4096
_UNIFICATION_PRIORITY, _PRIORITY = 1, 2
_AT_ONCE = Delivery(0.0)
_FOR_THE_TAPE = (Combine, Free, Train, Copy, Compress, Evaluate)
_ARRIVALS = {
    Happening.UPDATE_ARRIVED: EventKind.RECEIVED,
    Happening.MODEL_ARRIVED: EventKind.MODEL_RECEIVED,
}


class Scheduled(NamedTuple):
    time_s: float
    priority: int
    serial: int
    happening: Happening
    user: int
    message: Message | None


@dataclass(slots=True)
class SimulatorState:
    heap: list[Scheduled] = field(default_factory=list)
    serial: int = 0
    now_s: float = 0.0
    events: int = 0
    updates: int = 0
    evaluations_by_time: int = 0  # how many multiples of every_s have been evaluated, 0 included
    evaluations_by_events: int = 0
    done: bool = False


@dataclass(slots=True)
class Stretch:
    """A piece of the tape with the rows of what happened meanwhile."""

    operations: list[Operation] = field(default_factory=list)
    events: list[EventRow] = field(default_factory=list)
    messages: list[MessageRow] = field(default_factory=list)


class Simulator:
    def __init__(
        self,
        network: Network,
        medium: Medium,
        *,
        duration_s: float,
        evaluate_every_s: float | None,
        evaluate_every_events: int | None,
    ) -> None:
        self.network = network
        self.medium = medium
        self.trace = TraceHash()
        self.state = SimulatorState()
        self._duration_s = duration_s
        self._every_s = evaluate_every_s
        self._every_events = evaluate_every_events
        self._stretch = Stretch()
        self._trainings = self._operations = 0

    def start(self) -> None:
        """Put the beginning of the run on the heap. A restored simulator must not be started."""
        self._carry_out(self.network.start(), 0.0)
        if self._every_s is None and self._every_events is not None:
            self._evaluate(0.0)  # by time, the multiple 0 does it

    def next_stretch(self) -> Stretch:
        """Play on until the stretch is full or the run is over (then `state.done`)."""
        heap = self.state.heap
        while self._trainings < _STRETCH_TRAININGS and self._operations < _STRETCH_OPERATIONS:
            if not heap or heap[0][0] >= self._duration_s:
                self._finish()
                break
            self._step(heapq.heappop(heap))
        stretch, self._stretch = self._stretch, Stretch()
        self._trainings = self._operations = 0
        self.trace.add(stretch.events, stretch.messages)
        return stretch

    def _step(self, scheduled: Scheduled) -> None:
        now_s, _, _, happening, user, message = scheduled
        self.state.now_s = now_s
        if self._every_s is not None:
            self._evaluate_by_time(until_s=now_s)
        if self._every_events is not None and self.network.unifies(happening):
            # An evaluation that falls on a unification is taken just before it.
            self._evaluate_by_events(self.state.events + 1)
        if message is not None and happening in _ARRIVALS:
            self._record(EventRow(now_s, _ARRIVALS[happening], user, message.sender, message.number, 0, 0.0))
        self._carry_out(self.network.handle(happening, user, message, now_s), now_s)
        if self._every_events is not None:
            self._evaluate_by_events(self.state.events)

    def _carry_out(self, commands: list[Command], now_s: float) -> None:
        operations = self._stretch.operations
        senders = [command.sender for command in commands if isinstance(command, SendUpdate)]
        if len(senders) > 1:
            self.medium.announce(frozenset(senders), now_s)
        for command in commands:
            if isinstance(command, _FOR_THE_TAPE):  # the most by far
                operations.append(command)
                self._operations += 1
                if isinstance(command, Train):
                    self._trainings += 1
            elif isinstance(command, SetTimer):
                self._schedule(command.at_s, command.happening, command.user, None)
            elif isinstance(command, Settle):
                self._settle(command.message, command.fate, now_s, command.reason)
            elif isinstance(command, SendUpdate):
                self._send_update(command, now_s)
            elif isinstance(command, RecordFinish):
                self.state.updates += 1
                self._record(EventRow(now_s, EventKind.FINISHED, command.user, -1, command.number, 0, 0.0))
            else:
                self._send_model(command, now_s)

    def _schedule(self, time_s: float, happening: Happening, user: int, message: Message | None) -> None:
        state = self.state
        priority = _UNIFICATION_PRIORITY if happening == Happening.PERIOD_ENDED else _PRIORITY
        heapq.heappush(state.heap, Scheduled(time_s, priority, state.serial, happening, user, message))
        state.serial += 1

    def _send_update(self, send: SendUpdate, now_s: float) -> None:
        airtime_s, deliveries = 0.0, [_AT_ONCE] * len(send.receivers)
        if not send.reliable:
            airtime_s, deliveries = self.medium.transmit(
                "update", send.sender, send.number, send.receivers, send.payload_bytes, now_s, send.deadline_s
            )
        self._record(EventRow(now_s, EventKind.SENT, send.sender, -1, send.number, send.payload_bytes, airtime_s))
        reached = sum(delivery.fate is None for delivery in deliveries)
        weights = send.weights
        if weights is None:  # "delivered": if it reaches nobody there is no row, and nobody to weigh it
            weights = (1.0 / reached if reached else 0.0,) * len(send.receivers)
        for receiver, weight, delivery in zip(send.receivers, weights, deliveries, strict=True):
            message = Message(
                send.sender,
                receiver,
                send.number,
                send.updates,
                weight,
                send.vector,
                send.payload_bytes,
                send.finished_s,
                now_s,
                now_s + delivery.delay_s,
            )
            if delivery.fate is None:
                self._schedule(message.arrived_s, Happening.UPDATE_ARRIVED, receiver, message)
            else:
                self._settle(message._replace(arrived_s=math.nan), delivery.fate, now_s, delivery.reason)
                if send.reports:
                    self._schedule(message.arrived_s, Happening.MESSAGE_FAILED, send.sender, message)
        self._hand_over(send.vector, reached)

    def _send_model(self, send: SendModel, now_s: float) -> None:
        airtime_s, delays_s = 0.0, [0.0] * len(send.receivers)
        if not send.reliable:
            airtime_s, deliveries = self.medium.transmit(
                "model", send.hub, send.period, send.receivers, send.payload_bytes, now_s
            )
            delays_s = [math.inf if delivery.fate else delivery.delay_s for delivery in deliveries]
        self._record(EventRow(now_s, EventKind.UNIFIED, send.hub, -1, send.period, send.payload_bytes, airtime_s))
        self._hand_over(send.vector, sum(delay_s < math.inf for delay_s in delays_s))
        for receiver, delay_s in zip(send.receivers, delays_s, strict=True):
            if delay_s == math.inf:
                continue
            message = Message(
                send.hub,
                receiver,
                send.period,
                0,
                1.0,
                send.vector,
                send.payload_bytes,
                now_s,
                now_s,
                now_s + delay_s,
            )
            if send.reliable:  # everybody has it before anything else happens
                self._carry_out(self.network.handle(Happening.MODEL_ARRIVED, receiver, message, now_s), now_s)
            else:
                self._schedule(message.arrived_s, Happening.MODEL_ARRIVED, receiver, message)

    def _hand_over(self, vector: int, receivers: int) -> None:
        """The sender's reference becomes one for each receiver that the vector will reach."""
        vectors = self.network.vectors
        vectors.retain(vector, receivers)
        if vectors.release(vector):
            self._stretch.operations.append(Free(vector))

    def _record(self, row: EventRow) -> None:
        self.state.events += 1
        self._stretch.events.append(row)

    def _settle(self, message: Message, fate: Fate, now_s: float, reason: str = "") -> None:
        self._stretch.messages.append(_message_row(message, fate, now_s, reason))

    def _evaluate_by_time(self, until_s: float) -> None:
        state = self.state
        while self._every_s is not None and (due_s := multiple(state.evaluations_by_time, self._every_s)) <= until_s:
            self._evaluate(due_s)
            state.evaluations_by_time += 1

    def _evaluate_by_events(self, events: int) -> None:
        if self._every_events is not None and events // self._every_events > self.state.evaluations_by_events:
            self.state.evaluations_by_events = events // self._every_events
            self._evaluate(self.state.now_s)

    def _evaluate(self, at_s: float) -> None:
        self._stretch.operations.append(Evaluate(at_s, self.state.events, final=False))

    def pending(self) -> list[MessageRow]:
        """Rows of the messages that are in flight or in an open window now."""
        rows = []
        for scheduled in sorted(self.state.heap):
            if scheduled.happening == Happening.UPDATE_ARRIVED and scheduled.message is not None:
                unarrived = scheduled.message._replace(arrived_s=math.nan)
                rows.append(_message_row(unarrived, Fate.PENDING, self.state.now_s, ""))
        return rows + [_message_row(message, Fate.PENDING, self.state.now_s, "") for message in self.network.held()]

    def _finish(self) -> None:
        state, end_s = self.state, self._duration_s
        self._evaluate_by_time(until_s=math.nextafter(end_s, 0.0))
        state.now_s = end_s
        self._stretch.messages += self.pending()
        self._stretch.operations.append(Evaluate(end_s, state.events, final=True))
        state.done = True


def _message_row(message: Message, fate: Fate, now_s: float, reason: str) -> MessageRow:
    return MessageRow(
        message.sender,
        message.receiver,
        message.number,
        message.updates,
        message.weight,
        message.payload_bytes,
        message.sent_s,
        message.arrived_s,
        now_s,
        fate,
        reason,
        now_s - message.finished_s if fate is Fate.APPLIED else math.nan,
    )
