"""PeerCore: what a user must decide beside its NodeCore where the network is real.

A real network duplicates, reorders and loses messages, peers come and go, and there is neither a common clock nor
anybody who sees everybody. So around the same NodeCore that the simulator drives there are four things more:

- Who is there. Each start of a peer has its own `epoch`. A message names the epochs of both its ends: what was meant
  for an earlier self, or comes from one, is refused, so numbers that begin again are not mistaken for repetitions.
- What was here before. Of every sender the last numbers are remembered, in a window of bits; a message has one fate.
- When a period ends. By the peer's own clock, or earlier, when a later period's hub is heard: then its periods go on
  from there, so peers whose clocks differ still keep the same periods.
- Who unifies. Policies rank all users, in another order each period. The first unifies at once; who comes after
  waits for one more `takeover_s` for each user before it that is not known to be gone, and unifies if nobody
  was heard. Models go to neighbours, who hand each on once. If there were several hubs, the one that ranks first wins.

Like NodeCore it has no clock, no socket, no thread, and no numbers of the model.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from dracofl.clock import multiple
from dracofl.protocol.commands import AskForModel, Command, Happening, SendModel, SetTimer
from dracofl.protocol.headers import Header, Kind, Verdict
from dracofl.protocol.hubs import HubPolicy, hub_rank
from dracofl.protocol.messages import Message
from dracofl.protocol.node import NodeCore
from dracofl.protocol.vectors import Vectors

_REMEMBERED = 1024  # numbers of each sender
_MOST_TAKEOVERS = 3  # users behind the hub who would take its place
_LONGEST_JUMP = 10_000  # periods; who hears of a later one hears nonsense


@dataclass(frozen=True, slots=True)
class PeerRules:
    """What is the same for every peer, and who this one's neighbours are."""

    users: int
    seed: int
    receivers: tuple[int, ...]
    senders: frozenset[int]
    period_s: float | None
    hub: HubPolicy
    unifies: bool
    reliable: bool
    takeover_s: float


@dataclass(slots=True)
class Heard:
    """Of one sender: its newest epoch, the highest number in it, and which of the last ones were here."""

    epoch: int
    highest: int = -1
    seen: int = 0  # bit k: the number highest - k

    def verdict(self, epoch: int, number: int) -> Verdict:
        if epoch < self.epoch:
            return Verdict.EARLIER_SENDER
        behind = self.highest - number
        if epoch > self.epoch or behind < 0:
            return Verdict.ACCEPTED
        if behind >= _REMEMBERED:
            return Verdict.TOO_OLD
        return Verdict.DUPLICATE if self.seen >> behind & 1 else Verdict.ACCEPTED

    def note(self, epoch: int, number: int) -> None:
        if epoch > self.epoch:
            self.epoch, self.highest, self.seen = epoch, -1, 0
        ahead = number - self.highest
        if ahead > 0:
            self.seen = (self.seen << min(ahead, _REMEMBERED) | 1) & ((1 << _REMEMBERED) - 1)
            self.highest = number
        else:
            self.seen |= 1 << -ahead


@dataclass(slots=True)
class PeerState:
    """All that changes beside the node's own."""

    epoch: int
    period: int = 0  # periods that have ended
    period_shift_s: float = 0.0  # of their ends against the multiples of the period on this peer's clock
    is_up_to_date: bool = False  # since this start a neighbour has answered, or a hub was heard
    heard: dict[int, Heard] = field(default_factory=dict)
    members: dict[int, int] = field(default_factory=dict)  # who is there, and the epoch


def periods_over(elapsed_s: float, period_s: float) -> int:
    return int(elapsed_s // period_s)


class PeerCore:
    def __init__(self, node: NodeCore, rules: PeerRules, vectors: Vectors, state: PeerState) -> None:
        self.node = node
        self.user = node.user
        self.rules = rules
        self.vectors = vectors
        self.state = state
        self._timers: dict[Happening, Callable[[float], list[Command]]] = {
            Happening.UPDATE_DUE: node.update_due,
            Happening.TRANSMISSION_DUE: node.transmission_due,
            Happening.WINDOW_CLOSED: node.window_closed,
            Happening.PERIOD_ENDED: self.period_ended,
            Happening.HUB_OVERDUE: self.hub_overdue,
        }

    def start(self, now_s: float) -> list[Command]:
        """Periods that ended while the peer was away are over: nobody waits for it to unify them."""
        out = self.node.start(now_s)
        if self.rules.period_s is None:
            return out
        ended = periods_over(now_s - self.state.period_shift_s, self.rules.period_s)
        if ended > self.state.period:
            self._end_period(ended, now_s, out)
        else:
            self._await_period(out)
        return out

    def timer(self, happening: Happening, now_s: float) -> list[Command]:
        """One that a `SetTimer` asked for."""
        return self._timers[happening](now_s)

    # Who is there

    def member_came(self, user: int, epoch: int, now_s: float) -> list[Command]:
        state = self.state
        if user == self.user or not 0 <= user < self.rules.users or epoch < state.members.get(user, 0):
            return []
        state.members[user] = epoch
        heard = state.heard.get(user)
        if heard is not None and epoch > heard.epoch:
            state.heard[user] = Heard(epoch)
        if user not in self.neighbours():
            return []
        # Whoever was down, asleep or cut off catches up so; and the answer tells what the neighbour's clock says.
        return [AskForModel(user, self.node.state.unified_period)]

    def member_left(self, user: int, epoch: int) -> None:
        if self.state.members.get(user) == epoch:
            del self.state.members[user]

    def reachable(self) -> tuple[int, ...]:
        """The neighbours that are there."""
        return tuple(sorted(self.neighbours() & self.state.members.keys()))

    def neighbours(self) -> frozenset[int]:
        return self.rules.senders | frozenset(self.rules.receivers)

    # What arrives

    def judge(self, header: Header) -> Verdict:
        """Whether a message is to be looked at. Changes nothing."""
        state, sender = self.state, header.sender
        if header.receiver != self.user:
            return Verdict.MISDIRECTED
        expected = self.rules.senders if header.kind == Kind.UPDATE else self.neighbours()
        if sender not in expected or not 0 <= header.hub < self.rules.users:
            return Verdict.STRANGER
        if header.to_epoch != state.epoch:
            return Verdict.EARLIER_SELF
        heard = state.heard.get(sender, Heard(0))
        if header.epoch < max(heard.epoch, state.members.get(sender, 0)):
            return Verdict.EARLIER_SENDER
        if header.kind == Kind.UPDATE:
            return heard.verdict(header.epoch, header.number)
        if header.kind == Kind.MODEL and header.number > state.period + _LONGEST_JUMP:
            return Verdict.SENSELESS
        if header.kind == Kind.MODEL and not self._is_newer(header):
            return Verdict.NOT_NEWER
        return Verdict.ACCEPTED

    def update_arrived(self, header: Header, message: Message, now_s: float) -> list[Command]:
        """One that `judge` accepts; the core has a reference to its vector. Over the budget or not, it was here."""
        heard = self.state.heard.setdefault(header.sender, Heard(header.epoch))
        heard.note(header.epoch, header.number)
        return self.node.received(message, now_s)

    def model_arrived(self, header: Header, message: Message, now_s: float) -> list[Command]:
        """A hub's model that `judge` accepts. It goes on to the neighbours, and ends the period here if need be."""
        out: list[Command] = []
        self.state.is_up_to_date = True
        self._catch_up(header.number, now_s, out)
        others = tuple(user for user in self.rules.receivers if user not in (header.sender, header.hub))
        if others:
            self.vectors.retain(message.vector, 1)
        out += self.node.model_received(message, now_s, self._rank(header.number, header.hub))
        if others:
            size, reliable = self.node.rules.payload_bytes, self.rules.reliable
            out.append(SendModel(header.hub, header.number, message.vector, size, others, reliable))
        return out

    def model_given(self, message: Message, now_s: float) -> list[Command]:
        """A neighbour's model that was asked for. It is taken only if a later unification is in it."""
        out: list[Command] = []
        self.state.is_up_to_date = True
        self._catch_up(message.number, now_s, out)
        # Behind every hub of that period: whatever is heard of them is at least as new.
        return out + self.node.model_received(message, now_s, rank=self.rules.users)

    def no_newer_model(self) -> None:
        """A neighbour that was asked has none."""
        self.state.is_up_to_date = True

    # Periods and hubs

    def period_ended(self, now_s: float) -> list[Command]:
        out: list[Command] = []
        period = self.state.period + 1
        self._end_period(period, now_s, out)
        is_wanted = self.rules.unifies and self._is_newer_rank(period, self._rank(period, self.user))
        before = self._before_me(period)
        if is_wanted and before == 0 and self._may_unify(before, now_s):
            self._unify(period, now_s, out)
        elif is_wanted and 0 < before <= _MOST_TAKEOVERS:
            turn_s = self._end_of(period) + before * self.rules.takeover_s
            out.append(SetTimer(Happening.HUB_OVERDUE, self.user, turn_s))
        if not self.state.is_up_to_date:  # the question or its answer was lost
            out += [AskForModel(user, self.node.state.unified_period) for user in self.reachable()]
        return out

    def hub_overdue(self, now_s: float) -> list[Command]:
        """If nobody was heard in this period, this peer is the hub."""
        out: list[Command] = []
        if self.node.state.unified_period < self.state.period and self._may_unify(_MOST_TAKEOVERS, now_s):
            self._unify(self.state.period, now_s, out)
        return out

    def _may_unify(self, before: int, now_s: float) -> bool:
        """Not before it has asked somebody for a newer model, and not when the next one has taken its place: who was
        down or asleep has an old model, which would replace everybody's."""
        too_late_s = self._end_of(self.state.period) + (before + 1) * self.rules.takeover_s
        return self.state.is_up_to_date and now_s <= too_late_s

    def _unify(self, period: int, now_s: float, out: list[Command]) -> None:
        rank = self._rank(period, self.user)
        out += self.node.unify(period, rank, self.rules.receivers, self.rules.reliable, now_s)

    def _before_me(self, period: int) -> int:
        """How many that rank before this peer may be there. Of users that are not neighbours nothing is known."""
        first = self._rank(period, self.user)
        members, neighbours = self.state.members, self.neighbours()
        before = [(self.user - step) % self.rules.users for step in range(1, first + 1)]
        return sum(user in members or user not in neighbours for user in before)

    def _end_period(self, period: int, now_s: float, out: list[Command]) -> None:
        self.state.period = period
        out += self.node.period_ended(period, None, (), True, now_s)
        self._await_period(out)

    def _catch_up(self, period: int, now_s: float, out: list[Command]) -> None:
        """A later period has ended elsewhere: it has here, and the next one ends a whole period from now."""
        if period <= self.state.period or self.rules.period_s is None:
            return
        self.state.period_shift_s = now_s - multiple(period, self.rules.period_s)
        self._end_period(period, now_s, out)

    def _await_period(self, out: list[Command]) -> None:
        if self.rules.period_s is not None:
            out.append(SetTimer(Happening.PERIOD_ENDED, self.user, self._end_of(self.state.period + 1)))

    def _end_of(self, period: int) -> float:
        """By this peer's clock."""
        assert self.rules.period_s is not None
        return multiple(period, self.rules.period_s) + self.state.period_shift_s

    def _rank(self, period: int, hub: int) -> int:
        return hub_rank(self.rules.hub, self.rules.seed, period, self.rules.users, hub)

    def _is_newer(self, header: Header) -> bool:
        return self.rules.unifies and self._is_newer_rank(header.number, self._rank(header.number, header.hub))

    def _is_newer_rank(self, period: int, rank: int) -> bool:
        return period > 0 and self.node.is_newer(period, rank)
