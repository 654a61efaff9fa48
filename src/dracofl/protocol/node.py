"""NodeCore: everything one DRACO user decides, with no clock, no socket and no numbers of the model in it.

Theory of operation. A user computes without pause: each local update takes a drawn time, and when it is over the core
applies its own share, hands the update on, and begins the next. What is handed on goes out at once ("on-update") or
waits for the user's own Poisson transmissions ("poisson"), where it is summed with what waits already ("sum") or
takes its place ("latest"). What arrives meets the budget first, then the window, then the model:

    received ──> budget spent? ──yes──> over budget
                      │no
                 window open or none?
          window_s = 0│        │window_s > 0
                 applied       held until the window closes, then all applied together in order of arrival

At the end of a period the budget restarts; the hub sends its model, the others put it in the place of theirs. Held
and unsent updates live on.

References: the core owns one reference to each vector it holds (in training, unsent, in the window) and gives it up
with the command that passes the vector on.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from dracofl import rng
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
from dracofl.protocol.vectors import Vectors
from dracofl.tape import Combine, Copy, Free, Train
from dracofl.types import Fate, named

NONE = -1
"""The name of no vector."""

MADE_UP = 16
"""Mean intervals that a real clock may be late, and still no update and no transmission is left out."""

# Looked up once: to ask an enumeration for a member takes longer than to make a command.
_UPDATE_DUE, _APPLIED = Happening.UPDATE_DUE, Fate.APPLIED


@dataclass(frozen=True, slots=True)
class NodeRules:
    """The rules of the method that are the same for every user."""

    snapshot: Literal["finish", "start"]
    when: Literal["on-update", "poisson"]
    backlog: Literal["sum", "latest"]
    psi: int | None
    own_weight: float
    window_s: float
    payload_bytes: int


@dataclass(slots=True)
class NodeState:
    """All that changes in a core; a checkpoint of these is a checkpoint of the user."""

    started: int = 0  # local updates begun
    finished: int = 0
    next_update_s: float = 0.0  # when the last of them is due
    ticks: int = 0  # transmission times drawn ("poisson")
    next_tick_s: float = 0.0  # the last of them
    transmissions: int = 0
    training: int = NONE  # vector of the update being computed (snapshot "start")
    unsent: int = NONE  # vector that waits for the next transmission
    unsent_updates: int = 0
    unsent_finished_sum_s: float = 0.0
    accepted: int = 0  # messages accepted in this period
    window: tuple[Message, ...] = ()  # a tuple, as an empty one costs nothing: there are as many as users
    unified_period: int = 0  # the newest period whose hub's model is in place
    unified_rank: int = 0  # and that hub's rank: where the network was torn there may be several hubs, 0 goes first


class NodeCore:
    """One user. Methods are what happens to it; each returns the commands that follow."""

    __slots__ = (
        "_compute_draws",
        "_compute_rate",
        "_own_term",
        "_receivers",
        "_transmit_draws",
        "_transmit_rate",
        "_vectors",
        "_weights",
        "rules",
        "state",
        "user",
    )

    def __init__(
        self,
        user: int,
        rules: NodeRules,
        compute_rate: float,
        transmit_rate: float,
        receivers: tuple[int, ...],
        weights: tuple[float, ...] | None,
        seed: int,
        vectors: Vectors,
    ) -> None:
        self.user = user
        self.rules = rules
        self.state = NodeState()
        self._own_term = (user, 1.0)  # its own model, the first term whenever something is added to it
        self._compute_rate = compute_rate
        self._transmit_rate = transmit_rate
        self._receivers = receivers
        self._weights = weights
        self._vectors = vectors
        self._compute_draws = rng.stream(seed, "compute", user)
        self._transmit_draws = rng.stream(seed, "transmit", user) if rules.when == "poisson" else 0

    def start(self, now_s: float) -> list[Command]:
        out: list[Command] = []
        self.state.next_update_s = self.state.next_tick_s = now_s
        self._begin_update(now_s, out)
        if self.rules.when == "poisson":
            self._await_transmission(now_s, out)
        return out

    def update_due(self, now_s: float) -> list[Command]:
        """The computing time of the current update is over."""
        state, rules, user = self.state, self.rules, self.user
        number = state.finished
        state.finished = number + 1
        out: list[Command] = []
        if rules.snapshot == "finish":
            update = self._vectors.new()
            out.append(named(Train, (now_s, user, number, user, update)))
        else:
            update = state.training
        if rules.own_weight:
            out.append(named(Combine, (now_s, user, user, (self._own_term, (update, rules.own_weight)))))
        out.append(named(RecordFinish, (user, number)))
        if rules.when == "on-update":
            self._send(update, 1, now_s, out)
        else:
            self._keep_unsent(update, now_s, out)
        self._begin_update(now_s, out)
        return out

    def transmission_due(self, now_s: float) -> list[Command]:
        """A point of the user's Poisson process of transmissions."""
        state = self.state
        out: list[Command] = []
        if state.unsent != NONE:
            finished_s = state.unsent_finished_sum_s / state.unsent_updates
            if self.rules.backlog == "latest":  # kept: the same update may go out again
                self._vectors.retain(state.unsent, 1)
                self._send(state.unsent, state.unsent_updates, finished_s, out)
            else:
                self._send(state.unsent, state.unsent_updates, finished_s, out)
                state.unsent, state.unsent_updates, state.unsent_finished_sum_s = NONE, 0, 0.0
        self._await_transmission(now_s, out)
        return out

    def received(self, message: Message, now_s: float) -> list[Command]:
        """An update arrived from an in-neighbour."""
        state, rules = self.state, self.rules
        out: list[Command] = []
        if rules.psi is not None and state.accepted >= rules.psi:
            out.append(Settle(message, Fate.OVER_BUDGET))
            self._release(message.vector, out)
            return out
        state.accepted += 1
        if rules.window_s == 0.0:
            vector, user = message.vector, self.user
            out.append(named(Combine, (now_s, user, user, (self._own_term, (vector, message.weight)))))
            out.append(named(Settle, (message, _APPLIED, "")))
            if self._vectors.release(vector):
                out.append(named(Free, (vector,)))
            return out
        if not state.window:
            out.append(SetTimer(Happening.WINDOW_CLOSED, self.user, now_s + rules.window_s))
        state.window = (*state.window, message)
        return out

    def window_closed(self, now_s: float) -> list[Command]:
        user = self.user
        held, self.state.window = self.state.window, ()
        terms = (self._own_term, *((message.vector, message.weight) for message in held))
        out: list[Command] = [Combine(now_s, user, user, terms)]
        for message in held:
            out.append(Settle(message, Fate.APPLIED))
            self._release(message.vector, out)
        return out

    def period_ended(
        self, period: int, hub: int | None, everybody_else: tuple[int, ...], reliable: bool, now_s: float
    ) -> list[Command]:
        """Budgets restart; if this user is the hub, it sends its model. `hub` None: nobody unifies."""
        self.state.accepted = 0
        return self.unify(period, 0, everybody_else, reliable, now_s) if hub == self.user else []

    def unify(self, period: int, rank: int, receivers: tuple[int, ...], reliable: bool, now_s: float) -> list[Command]:
        """As the hub of this period, or, with a higher rank, in the place of hubs that were not heard."""
        self.state.unified_period, self.state.unified_rank = period, rank
        vector = self._vectors.new()
        return [
            Copy(now_s, self.user, self.user, vector),
            SendModel(self.user, period, vector, self.rules.payload_bytes, receivers, reliable),
        ]

    def is_newer(self, period: int, rank: int) -> bool:
        """Than the model in place: of a later period, or of the same one and a hub that goes before."""
        return (period, -rank) > (self.state.unified_period, -self.state.unified_rank)

    def model_received(self, message: Message, now_s: float, rank: int = 0) -> list[Command]:
        """A hub's model arrived. One that is older than the model in place is ignored: it would undo a later hub's."""
        out: list[Command] = []
        if self.is_newer(message.number, rank):
            self.state.unified_period, self.state.unified_rank = message.number, rank
            out.append(Copy(now_s, self.user, message.vector, self.user))
        self._release(message.vector, out)
        return out

    def _begin_update(self, now_s: float, out: list[Command]) -> None:
        state, user = self.state, self.user
        number = state.started
        state.started = number + 1
        if self.rules.snapshot == "start":
            state.training = self._vectors.new()
            out.append(Train(now_s, user, number, user, state.training))
        # A real clock rings late. That is made up for, or there would be fewer updates than the rate says and every
        # one would fall further behind its simulation's; but who slept for long does not catch up on all of it.
        rate = self._compute_rate
        last_s = max(state.next_update_s, now_s - MADE_UP / rate)
        state.next_update_s = due_s = last_s + rng.exponential(self._compute_draws, number) / rate
        out.append(named(SetTimer, (_UPDATE_DUE, user, due_s)))

    def _await_transmission(self, now_s: float, out: list[Command]) -> None:
        state, rate = self.state, self._transmit_rate
        wait_s = rng.exponential(self._transmit_draws, state.ticks) / rate
        state.ticks += 1
        # As with updates; and who slept for long does not send many at once.
        state.next_tick_s = max(state.next_tick_s, now_s - MADE_UP / rate) + wait_s
        out.append(SetTimer(Happening.TRANSMISSION_DUE, self.user, state.next_tick_s))

    def _keep_unsent(self, update: int, now_s: float, out: list[Command]) -> None:
        state = self.state
        if state.unsent != NONE and self.rules.backlog == "sum":
            out.append(Combine(now_s, self.user, state.unsent, ((state.unsent, 1.0), (update, 1.0))))
            self._release(update, out)
            state.unsent_updates += 1
            state.unsent_finished_sum_s += now_s
            return
        if state.unsent != NONE:
            self._release(state.unsent, out)
        state.unsent, state.unsent_updates, state.unsent_finished_sum_s = update, 1, now_s

    def _send(self, vector: int, updates: int, finished_s: float, out: list[Command]) -> None:
        state, size = self.state, self.rules.payload_bytes
        number = state.transmissions
        state.transmissions = number + 1
        out.append(SendUpdate(self.user, number, vector, updates, finished_s, size, self._receivers, self._weights))

    def _release(self, vector: int, out: list[Command]) -> None:
        if self._vectors.release(vector):
            out.append(Free(vector))
