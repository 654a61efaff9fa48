"""The simulator: virtual time, total order, and the tape.

Everything that will happen is on one heap, ordered by (time, priority, serial number): at one instant a unification
with its restart of budgets comes before everything else, and equals keep the order in which they were scheduled.
Evaluations come before both and are not on the heap at all, so that measuring cannot move anything. A run is [0, T):
what would happen at T or later does not, and what is on its way then is pending.

The simulator hands out the tape in stretches. Where a stretch ends depends on the trainings and operations in it,
hence on the configuration alone, and between two stretches `state` is all there is to save.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Any, TypeAlias

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
from dracofl.trace import EventKind, EventRow, MessageRow, Rows, TraceHash
from dracofl.types import Fate, named

_STRETCH_TRAININGS = 64
_STRETCH_OPERATIONS = 4096
_UNIFICATION_PRIORITY, _PRIORITY = 1, 2
_AT_ONCE = Delivery(0.0)
_FOR_THE_TAPE = frozenset({Combine, Free, Train, Copy, Compress, Evaluate})
# Words as plain strings and members of enumerations by a name of their own: to look a member up takes longer than to
# make a row, and a row with a member in it is one that the garbage collector has to watch.
_FINISHED, _SENT, _RECEIVED = EventKind.FINISHED.value, EventKind.SENT.value, EventKind.RECEIVED.value
_UNIFIED, _MODEL_RECEIVED = EventKind.UNIFIED.value, EventKind.MODEL_RECEIVED.value
_UPDATE_ARRIVED, _MODEL_ARRIVED = Happening.UPDATE_ARRIVED, Happening.MODEL_ARRIVED
_PERIOD_ENDED, _ARRIVAL_CODE = Happening.PERIOD_ENDED, int(Happening.UPDATE_ARRIVED)
_HAPPENINGS = tuple(Happening)
_FATES = {fate: fate.value for fate in Fate}
_APPLIED, _NAN = Fate.APPLIED, math.nan

Scheduled: TypeAlias = tuple[float, int, int, int, int, Message | None]
"""Time, priority, serial number; then the code of what happens, to whom, and the message it is about."""


@dataclass(slots=True)
class SimulatorState:
    heap: list[Scheduled] = field(default_factory=list)
    serial: int = 0
    now_s: float = 0.0
    events: int = 0  # before the stretch that is being played
    updates: int = 0
    evaluations_by_time: int = 0  # how many multiples of every_s have been evaluated, 0 included
    evaluations_by_events: int = 0
    done: bool = False


@dataclass(slots=True)
class Stretch:
    """A piece of the tape with the rows of what happened meanwhile."""

    operations: list[Operation] = field(default_factory=list)
    events: Rows[EventRow] = field(default_factory=lambda: Rows(EventRow))
    messages: Rows[MessageRow] = field(default_factory=lambda: Rows(MessageRow))


class Simulator:
    def __init__(
        self,
        network: Network,
        medium: Medium,
        *,
        duration_s: float,
        evaluate_every_s: float | None,
        evaluate_every_events: int | None,
        stretch_trainings: int = _STRETCH_TRAININGS,
        stretch_operations: int = _STRETCH_OPERATIONS,
    ) -> None:
        self.network = network
        self.medium = medium
        self.trace = TraceHash()
        self.state = SimulatorState()
        self.stretch_trainings = stretch_trainings
        self.stretch_operations = stretch_operations
        self._duration_s = duration_s
        self._every_s = evaluate_every_s
        self._every_events = evaluate_every_events
        self._begin_stretch()

    def start(self) -> None:
        """Put the beginning of the run on the heap. A restored simulator must not be started."""
        self._carry_out(self.network.start(), 0.0)
        if self._every_s is None and self._every_events is not None:
            self._evaluate(0.0)  # by time, the multiple 0 does it

    def next_stretch(self) -> Stretch:
        """Play on until the stretch is full or the run is over (then `state.done`)."""
        state, stretch, handle = self.state, self._stretch, self.network.handle
        heap, operations, record = state.heap, stretch.operations, stretch.events.flat.extend
        due_s = self._evaluation_due_s()
        # Who plays the first stretch waits for it, so it is short.
        most_trainings = min(self.stretch_trainings, max(_STRETCH_TRAININGS, state.updates))
        while self._trainings < most_trainings and len(operations) - self._uncounted < self.stretch_operations:
            if not heap or heap[0][0] >= self._duration_s:
                self._finish()
                break
            now_s, _, _, code, user, message = heappop(heap)
            happening = _HAPPENINGS[code]
            state.now_s = now_s
            if due_s <= now_s:
                due_s = self._evaluate_by_time(until_s=now_s)
            if self._every_events is not None and self.network.unifies(happening):
                # An evaluation that falls on a unification is taken just before it.
                self._evaluate_by_events(coming=1)
            if message is not None:
                if happening is _UPDATE_ARRIVED:
                    record((now_s, _RECEIVED, user, message.sender, message.number, 0, 0.0))
                elif happening is _MODEL_ARRIVED:
                    record((now_s, _MODEL_RECEIVED, user, message.sender, message.number, 0, 0.0))
            self._carry_out(handle(happening, user, message, now_s), now_s)
            if self._every_events is not None:
                self._evaluate_by_events(coming=0)
        state.events += len(stretch.events)
        self._begin_stretch()
        self.trace.add(stretch.events, stretch.messages)
        return stretch

    def _begin_stretch(self) -> None:
        self._stretch = Stretch()
        self._trainings = 0
        self._uncounted = 0  # operations that do not bring the end of the stretch nearer

    def _carry_out(self, commands: list[Command], now_s: float) -> None:
        stretch, state = self._stretch, self.state
        write: Callable[[Any], None] = stretch.operations.append
        if self.medium.listens:
            senders = [command.sender for command in commands if type(command) is SendUpdate]
            if len(senders) > 1:
                self.medium.announce(frozenset(senders), now_s)
        for command in commands:
            if type(command) in _FOR_THE_TAPE:  # the most by far
                write(command)
                if type(command) is Train:
                    self._trainings += 1
            elif type(command) is Settle:
                stretch.messages.flat.extend(_row(command.message, command.fate, now_s, command.reason))
            elif type(command) is SetTimer:
                happening, user, at_s = command
                priority = _UNIFICATION_PRIORITY if happening is _PERIOD_ENDED else _PRIORITY
                heappush(state.heap, (at_s, priority, state.serial, int(happening), user, None))
                state.serial += 1
            elif type(command) is SendUpdate:
                self._send_update(command, now_s)
            elif type(command) is RecordFinish:
                state.updates += 1
                stretch.events.flat.extend((now_s, _FINISHED, command.user, -1, command.number, 0, 0.0))
            elif type(command) is SendModel:
                self._send_model(command, now_s)

    def _schedule(self, time_s: float, happening: Happening, user: int, message: Message) -> None:
        state = self.state
        heappush(state.heap, (time_s, _PRIORITY, state.serial, int(happening), user, message))
        state.serial += 1

    def _send_update(self, send: SendUpdate, now_s: float) -> None:
        (sender, number, vector, updates, finished_s, size, receivers, weights, reports, reliable, deadline_s) = send
        if reliable:
            airtime_s, deliveries = 0.0, [_AT_ONCE] * len(receivers)
        else:
            airtime_s, deliveries = self.medium.transmit("update", sender, number, receivers, size, now_s, deadline_s)
        self._stretch.events.flat.extend((now_s, _SENT, sender, -1, number, size, airtime_s))
        if weights is None:  # "delivered": if it reaches nobody there is no row, and nobody to weigh it
            reached = sum(delivery.fate is None for delivery in deliveries)
            weights = (1.0 / reached if reached else 0.0,) * len(receivers)
        settled, state = self._stretch.messages.flat, self.state
        reached = 0
        for receiver, weight, (delay_s, fate, reason) in zip(receivers, weights, deliveries, strict=True):
            known_s = now_s + delay_s
            if fate is None:
                message = named(
                    Message,
                    (sender, receiver, number, updates, weight, vector, size, finished_s, now_s, known_s),
                )
                heappush(state.heap, (known_s, _PRIORITY, state.serial, _ARRIVAL_CODE, receiver, message))
                state.serial += 1
                reached += 1
                continue
            word = _FATES[fate]
            settled.extend((sender, receiver, number, updates, weight, size, now_s, _NAN, now_s, word, reason, _NAN))
            if reports:
                message = Message(sender, receiver, number, updates, weight, vector, size, finished_s, now_s, known_s)
                self._schedule(known_s, Happening.MESSAGE_FAILED, sender, message)
        self._hand_over(vector, reached)

    def _send_model(self, send: SendModel, now_s: float) -> None:
        airtime_s, delays_s = 0.0, [0.0] * len(send.receivers)
        if not send.reliable:
            airtime_s, deliveries = self.medium.transmit(
                "model", send.hub, send.period, send.receivers, send.payload_bytes, now_s
            )
            delays_s = [math.inf if delivery.fate else delivery.delay_s for delivery in deliveries]
        self._stretch.events.flat.extend((now_s, _UNIFIED, send.hub, -1, send.period, send.payload_bytes, airtime_s))
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
                self._carry_out(self.network.handle(_MODEL_ARRIVED, receiver, message, now_s), now_s)
            else:
                self._schedule(message.arrived_s, _MODEL_ARRIVED, receiver, message)

    def _hand_over(self, vector: int, receivers: int) -> None:
        """The sender's reference becomes one for each receiver that the vector will reach."""
        if self.network.vectors.hand_over(vector, receivers):
            self._stretch.operations.append(Free(vector))
            self._uncounted += 1

    def _evaluation_due_s(self) -> float:
        return math.inf if self._every_s is None else multiple(self.state.evaluations_by_time, self._every_s)

    def _evaluate_by_time(self, until_s: float) -> float:
        """Take the evaluations that are due; returns when the next one is."""
        while (due_s := self._evaluation_due_s()) <= until_s:
            self._evaluate(due_s)
            self.state.evaluations_by_time += 1
        return due_s

    def _evaluate_by_events(self, coming: int) -> None:
        """Take an evaluation if one falls due with the events so far and those that are just coming."""
        assert self._every_events is not None
        multiples = (self.state.events + len(self._stretch.events) + coming) // self._every_events
        if multiples > self.state.evaluations_by_events:
            self.state.evaluations_by_events = multiples
            self._evaluate(self.state.now_s)

    def _evaluate(self, at_s: float, final: bool = False) -> None:
        events = self.state.events + len(self._stretch.events)
        self._stretch.operations.append(Evaluate(at_s, events, final))
        self._uncounted += 1

    def pending(self) -> Rows[MessageRow]:
        """Rows of the messages that are in flight or in an open window now."""
        now_s, rows = self.state.now_s, Rows(MessageRow)
        for _, _, _, code, _, message in sorted(self.state.heap):
            if code == Happening.UPDATE_ARRIVED and message is not None:
                rows.flat.extend(_row(message._replace(arrived_s=math.nan), Fate.PENDING, now_s, ""))
        for message in self.network.held():
            rows.flat.extend(_row(message, Fate.PENDING, now_s, ""))
        return rows

    def _finish(self) -> None:
        self._evaluate_by_time(until_s=math.nextafter(self._duration_s, 0.0))
        self.state.now_s = self._duration_s
        self._stretch.messages.flat += self.pending().flat
        self._evaluate(self._duration_s, final=True)
        self.state.done = True


def _row(message: Message, fate: Fate, now_s: float, reason: str) -> tuple[Any, ...]:
    sender, receiver, number, updates, weight, _, size, finished_s, sent_s, arrived_s = message
    age_s = now_s - finished_s if fate is _APPLIED else _NAN
    return (sender, receiver, number, updates, weight, size, sent_s, arrived_s, now_s, _FATES[fate], reason, age_s)
