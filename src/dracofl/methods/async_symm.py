"""async-symm: decentralized asynchronous SGD (Jeong, Zecchin and Kountouris, 2022).

Time is cut into iterations of fixed length, the transmission deadline. At the start of an iteration a user whose
gradient is ready applies it, computed on the model it had when it began to compute (stale by some iterations), and
begins the next; the others skip the gradient step. Then everybody broadcasts its model, and at the end of the iteration

    x(i) += zeta * sum over j of w(i,j) (x(j) - x(i))

over the links that worked both ways; the weight of a link that failed goes back to the diagonal at both ends, so every
iteration's mixing matrix is symmetric and doubly stochastic. Weights are Metropolis'.

Reconstructed from descriptions, not read from the paper's text. Decided here: a user that is ready waits for the next
iteration, as its model does not change before; a message that would outlast its iteration is late; one that arrived on
a link that failed the other way is lost.
"""

from __future__ import annotations

from dataclasses import dataclass

from dracofl.clock import multiple
from dracofl.methods.interface import Setting
from dracofl.methods.rounds import give_up
from dracofl.methods.sending import send_model
from dracofl.methods.symmetric import metropolis_weights, require_links_both_ways, working_links
from dracofl.methods.sync_symm import LINK_RESTED
from dracofl.protocol.commands import Command, Happening, RecordFinish, SetTimer, Settle
from dracofl.protocol.messages import Message
from dracofl.protocol.node import NONE
from dracofl.protocol.vectors import Vectors, VectorsState
from dracofl.tape import Combine, Free, Train
from dracofl.types import Fate


@dataclass(frozen=True, slots=True)
class AsyncSymm:
    """Decentralized asynchronous SGD: iterations of fixed length, stale gradients, gossip both ways."""

    iteration_s: float
    zeta: float

    def open(self, setting: Setting) -> AsyncSymmNetwork:
        require_links_both_ways(setting.graph, "async-symm")
        return AsyncSymmNetwork(self, setting)


@dataclass(slots=True)
class AsyncSymmState:
    iteration: int
    started: list[int]
    training: list[int]  # vector of the update being computed, or waiting
    ready: list[bool]
    arrived: list[Message]
    vectors: VectorsState


class AsyncSymmNetwork:
    def __init__(self, method: AsyncSymm, setting: Setting) -> None:
        self._method = method
        self._setting = setting
        self._weights = metropolis_weights(setting.graph)
        users = setting.users
        self.vectors = Vectors(models=users)
        self._state = AsyncSymmState(0, [0] * users, [NONE] * users, [False] * users, [], self.vectors.state)

    @property
    def state(self) -> AsyncSymmState:
        return self._state

    def restore(self, state: AsyncSymmState) -> None:
        self._state = state
        self.vectors.state = state.vectors

    def start(self) -> list[Command]:
        out: list[Command] = []
        for user in range(self._setting.users):
            out += self._begin_update(user, 0.0)
        return out + self._begin_iteration(0.0)

    def handle(self, happening: Happening, user: int, message: Message | None, now_s: float) -> list[Command]:
        state = self._state
        if happening == Happening.PERIOD_ENDED:
            return self._end_iteration(now_s)
        if happening == Happening.UPDATE_DUE:
            state.ready[user] = True
            return [RecordFinish(user, state.started[user] - 1)]
        assert message is not None
        if message.number < state.iteration:
            return [Settle(message, Fate.LATE), *give_up(self.vectors, [message])]
        state.arrived.append(message)
        return []

    def held(self) -> list[Message]:
        return list(self._state.arrived)

    def unifies(self, happening: Happening) -> bool:
        return False

    def _begin_update(self, user: int, now_s: float) -> list[Command]:
        state = self._state
        number = state.started[user]
        state.started[user] = number + 1
        state.training[user], state.ready[user] = self.vectors.new(), False
        due_s = now_s + self._setting.computing_s(user, number)
        return [
            Train(now_s, user, number, user, state.training[user]),
            SetTimer(Happening.UPDATE_DUE, user, due_s),
        ]

    def _begin_iteration(self, now_s: float) -> list[Command]:
        out: list[Command] = []
        for user, receivers in enumerate(self._setting.graph.successors):
            weights = tuple(self._method.zeta * self._weights[user][receiver] for receiver in receivers)
            number, payload_bytes = self._state.iteration, self._setting.payload_bytes
            out += send_model(
                self.vectors,
                user,
                number,
                payload_bytes,
                receivers,
                weights,
                now_s,
                deadline_s=self._method.iteration_s,
            )
        end_s = multiple(self._state.iteration + 1, self._method.iteration_s)
        return [*out, SetTimer(Happening.PERIOD_ENDED, -1, end_s)]

    def _end_iteration(self, now_s: float) -> list[Command]:
        state = self._state
        arrived, state.arrived = state.arrived, []
        out = self._mix(arrived, now_s)
        state.iteration += 1
        for user in range(self._setting.users):
            if state.ready[user]:
                update = state.training[user]
                self.vectors.release(update)
                out += [Combine(now_s, user, user, ((user, 1.0), (update, 1.0))), Free(update)]
                out += self._begin_update(user, now_s)
        return out + self._begin_iteration(now_s)

    def _mix(self, arrived: list[Message], now_s: float) -> list[Command]:
        working = working_links(arrived)
        out: list[Command] = []
        for user, senders in enumerate(self._setting.graph.successors):
            heard = [working[sender, user] for sender in senders if (sender, user) in working]
            if heard:
                own = 1.0 - sum(message.weight for message in heard)
                terms = ((user, own), *((message.vector, message.weight) for message in heard))
                out.append(Combine(now_s, user, user, terms))
        for message in arrived:
            works = (message.sender, message.receiver) in working
            out.append(Settle(message, Fate.APPLIED) if works else Settle(message, Fate.LOST, LINK_RESTED))
        return out + give_up(self.vectors, arrived)
