"""DRACO: decentralized asynchronous SGD over row-stochastic wireless networks (Jeong and Kountouris).

User i finishes a local update Delta(i) at its own random times and pushes it to its out-neighbours; each receiver j
adds q(i -> j) Delta(i) to its model when it arrives, within its budget of Psi messages a period; at every multiple of
the period P a temporary hub's model takes the place of everybody's.

Decided here where the paper is silent: the hub's policy, what a user does with its own update (`own_weight`), that a
window outlives a unification, and that with unification over the radio a hub's model that arrives after a later hub's
is ignored. The user's side of all this is `protocol.node.NodeCore`; this file is what spans users.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from dracofl.clock import multiple
from dracofl.methods.interface import Setting
from dracofl.methods.weights import weight_rows
from dracofl.protocol.commands import Command, Happening, SetTimer
from dracofl.protocol.hubs import HubPolicy, pick_hub
from dracofl.protocol.messages import Message
from dracofl.protocol.node import NodeCore, NodeRules, NodeState
from dracofl.protocol.peer import PeerCore, PeerRules, PeerState
from dracofl.protocol.vectors import Vectors, VectorsState

_TAKEOVER_PERIODS = 0.05  # how long real peers wait for a hub before the next one takes its place
_UPDATE_ARRIVED, _UPDATE_DUE = Happening.UPDATE_ARRIVED, Happening.UPDATE_DUE


@dataclass(frozen=True, slots=True)
class Draco:
    """Users push updates whenever they finish; a hub unifies the models once a period."""

    psi: int | None
    own_weight: float
    window_s: float
    weights: str
    period_s: float | None
    hub: HubPolicy
    unification: Literal["reliable", "radio", "off"]

    def open(self, setting: Setting) -> DracoNetwork:
        return DracoNetwork(self, setting)

    def rules(self, setting: Setting) -> NodeRules:
        return NodeRules(
            snapshot=setting.snapshot,
            when=setting.when,
            backlog=setting.backlog,
            psi=self.psi,
            own_weight=self.own_weight,
            window_s=self.window_s,
            payload_bytes=setting.payload_bytes,
        )

    def open_peer(self, setting: Setting, user: int, state: PeerState) -> PeerCore:
        """One user alone, as a real peer. It knows the graph, and nobody else's state."""
        graph = setting.graph
        vectors = Vectors(models=graph.users)
        receivers, row = graph.successors[user], weight_rows(self.weights, graph)[user]
        rates = setting.compute_rates[user], setting.transmit_rates[user]
        node = NodeCore(user, self.rules(setting), *rates, receivers, row, setting.seed, vectors)
        rules = PeerRules(
            users=graph.users,
            seed=setting.seed,
            receivers=receivers,
            senders=frozenset(graph.predecessors()[user]),
            period_s=self.period_s,
            hub=self.hub,
            unifies=self.unification != "off" and self.period_s is not None,
            reliable=self.unification == "reliable",
            takeover_s=0.0 if self.period_s is None else _TAKEOVER_PERIODS * self.period_s,
        )
        return PeerCore(node, rules, vectors, state)


@dataclass(slots=True)
class DracoState:
    periods: int
    vectors: VectorsState
    nodes: list[NodeState]


class DracoNetwork:
    """All users' cores, and the clock of the periods."""

    def __init__(self, method: Draco, setting: Setting) -> None:
        self._method = method
        self._seed = setting.seed
        self._periods = 0
        self.vectors = Vectors(models=setting.graph.users)
        rules = method.rules(setting)
        rows = weight_rows(method.weights, setting.graph)
        self.nodes = [
            NodeCore(user, rules, compute_rate, transmit_rate, receivers, row, setting.seed, self.vectors)
            for user, (compute_rate, transmit_rate, receivers, row) in enumerate(
                zip(setting.compute_rates, setting.transmit_rates, setting.graph.successors, rows, strict=True)
            )
        ]

    @property
    def state(self) -> DracoState:
        return DracoState(self._periods, self.vectors.state, [node.state for node in self.nodes])

    def restore(self, state: DracoState) -> None:
        self._periods = state.periods
        self.vectors.state = state.vectors
        for node, node_state in zip(self.nodes, state.nodes, strict=True):
            node.state = node_state

    def start(self) -> list[Command]:
        out = [command for node in self.nodes for command in node.start(0.0)]
        if self._method.period_s is not None:
            out.append(SetTimer(Happening.PERIOD_ENDED, -1, self._method.period_s))
        return out

    def handle(self, happening: Happening, user: int, message: Message | None, now_s: float) -> list[Command]:
        # The most frequent first, and enumerations compared by identity: this is passed at every event.
        if happening is _UPDATE_ARRIVED and message is not None:
            return self.nodes[user].received(message, now_s)
        if happening is _UPDATE_DUE:
            return self.nodes[user].update_due(now_s)
        if happening is Happening.TRANSMISSION_DUE:
            return self.nodes[user].transmission_due(now_s)
        if happening is Happening.WINDOW_CLOSED:
            return self.nodes[user].window_closed(now_s)
        if message is not None:
            return self.nodes[user].model_received(message, now_s)
        return self._end_period(now_s)

    def held(self) -> list[Message]:
        return [message for node in self.nodes for message in node.state.window]

    def unifies(self, happening: Happening) -> bool:
        return happening == Happening.PERIOD_ENDED and self._method.unification != "off"

    def _end_period(self, now_s: float) -> list[Command]:
        assert self._method.period_s is not None
        self._periods += 1
        period, users = self._periods, len(self.nodes)
        hub = None
        if self._method.unification != "off":
            accepted = [node.state.accepted for node in self.nodes]
            hub = pick_hub(self._method.hub, self._seed, period, accepted)
        everybody_else = () if hub is None else (*range(hub), *range(hub + 1, users))
        reliable = self._method.unification == "reliable"
        out: list[Command] = []
        for node in self.nodes:
            out += node.period_ended(period, hub, everybody_else, reliable, now_s)
        # A multiple, not a sum: periods must not drift.
        out.append(SetTimer(Happening.PERIOD_ENDED, -1, multiple(period + 1, self._method.period_s)))
        return out
