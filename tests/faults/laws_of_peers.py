"""What must hold of peers: whose model is in place, what is in it, that nobody waits and nothing leaks."""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING

import numpy as np
from faults.laws import Law, is_of_present_selves, rank_of
from faults.life import update_of
from faults.news import are_in_touch
from faults.schedule import PERIOD_S, TAKEOVER_S

from dracofl.clock import multiple
from dracofl.protocol.headers import Kind, Verdict
from dracofl.protocol.node import MADE_UP, NONE
from dracofl.runtime.parcel import Parcel

if TYPE_CHECKING:
    from faults.life import Life
    from faults.world import World

_ROUNDING_S = 1e-6


def lateness_s(life: Life, period: int) -> float:
    """How long ago this period ended by its clock."""
    return life.now_s() - multiple(period, PERIOD_S) - life.peer.core.state.period_shift_s


class BestHubIsInPlace(Law):
    """Of all hubs' models that reached a peer that of the newest period is in place, and of its hubs the first."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._best: dict[int, tuple[int, int]] = {}  # (period, minus the hub's rank)

    def born(self, life: Life) -> None:
        state = life.peer.core.node.state
        self._best[life.epoch] = (state.unified_period, -state.unified_rank)

    def unified(self, life: Life, period: int) -> None:
        mine = (period, -rank_of(self.world, period, life.user))
        self.require(mine > self._best[life.epoch], life, "unifies", mine, "after", self._best[life.epoch])
        self._best[life.epoch] = mine

    def arrived(self, life: Life, parcel: Parcel, verdict: Verdict) -> None:
        header = parcel.header
        if header.kind != Kind.MODEL:
            return
        best, found = self._best[life.epoch], (header.number, -rank_of(self.world, header.number, header.hub))
        if header.to_epoch != life.epoch:
            fits = verdict == Verdict.EARLIER_SELF
        elif verdict == Verdict.EARLIER_SENDER:
            fits = not is_of_present_selves(self.world, life, parcel)
        else:
            fits = verdict == (Verdict.ACCEPTED if found > best else Verdict.NOT_NEWER)
        self.require(fits, life, "has", best, "and met", found, "with", verdict.name)
        if verdict == Verdict.ACCEPTED:
            self._best[life.epoch] = found

    def given(self, life: Life, period: int, numbers: np.ndarray) -> None:
        """Behind all hubs of its period: nobody can tell whose of them it was."""
        self._best[life.epoch] = max(self._best[life.epoch], (period, -self.world.schedule.users))

    def stepped(self, life: Life) -> None:
        state = life.peer.core.node.state
        found, best = (state.unified_period, -state.unified_rank), self._best[life.epoch]
        self.require(found == best, life, "has", found, "in place, and", best, "reached it")


class NobodyIsHubTooLate(Law):
    """Who was down or asleep when a period ended leaves its hub's place to the others: its own model is an old one."""

    def unified(self, life: Life, period: int) -> None:
        late_s = lateness_s(life, period)
        self.require(late_s <= 4 * TAKEOVER_S + _ROUNDING_S, life, "unifies", period, "that ended", late_s, "s ago")


class HubsAreReplaced(Law):
    """Where no hub is heard, who has waited for each of at most three that go before it and may be there, is it; but
    nobody who does not know yet whether a neighbour has a newer model."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._waits: dict[int, tuple[int, float]] = {}  # of each life: for the hub of which period, until when

    def period_ended(self, life: Life) -> None:
        state, rules = life.peer.core.state, life.peer.core.rules
        neighbours = rules.senders | set(rules.receivers)
        mine = rank_of(self.world, state.period, life.user)
        before = [user for user in range(rules.users) if rank_of(self.world, state.period, user) < mine]
        wait_s = TAKEOVER_S * sum(user in state.members or user not in neighbours for user in before)
        late_s = lateness_s(life, state.period)
        if state.is_up_to_date and wait_s <= 3 * TAKEOVER_S and late_s < wait_s + TAKEOVER_S:
            self._waits[life.epoch] = (state.period, life.now_s() + max(wait_s - late_s, 0.0))

    def stepped(self, life: Life) -> None:
        period, until_s = self._waits.get(life.epoch, (0, math.inf))
        if life.now_s() <= until_s + _ROUNDING_S:
            return
        del self._waits[life.epoch]
        was_asleep = life.clock.shows(life.frozen_until_s) > until_s
        has = life.peer.core.node.state.unified_period
        self.require(has >= period or was_asleep, life, "should have unified period", period, "and still has", has)


class ModelsAreHandedOnOnce(Law):
    """A peer sends each hub's model of a period once to each neighbour, its own too."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._sent: set[tuple[int, int, int, int]] = set()

    def posted(self, life: Life, parcel: Parcel) -> None:
        header = parcel.header
        if header.kind == Kind.MODEL:
            key = (life.epoch, header.receiver, header.hub, header.number)
            self.require(key not in self._sent, life, "hands on again:", header)
            self._sent.add(key)


class ModelIsWhatWasApplied(Law):
    """A model is the last one put in its place, and every update applied since, each once and with its weight."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._models: dict[int, np.ndarray] = {}
        self._periods: dict[int, int] = {}
        self._finished: dict[int, int] = {}
        self._held: dict[int, list[Parcel]] = {}
        self._changed: set[int] = set()

    def born(self, life: Life) -> None:
        state = life.peer.core.node.state
        self._models[life.epoch] = life.peer.model.astype(np.float64)
        self._periods[life.epoch], self._finished[life.epoch] = state.unified_period, state.finished
        self._held[life.epoch] = []

    def unified(self, life: Life, period: int) -> None:
        self._periods[life.epoch] = period

    def arrived(self, life: Life, parcel: Parcel, verdict: Verdict) -> None:
        if verdict != Verdict.ACCEPTED or parcel.header.kind == Kind.ASK:
            return
        self._changed.add(life.epoch)
        if parcel.header.kind == Kind.MODEL:
            self._models[life.epoch] = parcel.payload.astype(np.float64)
            self._periods[life.epoch] = parcel.header.number
            return
        self._held[life.epoch].append(parcel)
        if not self.world.schedule.method.window_s:
            self.window_closed(life)

    def window_closed(self, life: Life) -> None:
        self._changed.add(life.epoch)
        for parcel in self._held[life.epoch]:
            self._models[life.epoch] += parcel.header.weight * parcel.payload
        self._held[life.epoch] = []

    def given(self, life: Life, period: int, numbers: np.ndarray) -> None:
        if period > self._periods[life.epoch]:
            self._changed.add(life.epoch)
            self._periods[life.epoch] = period
            self._models[life.epoch] = numbers.astype(np.float64)

    def stepped(self, life: Life) -> None:
        model, finished = self._models[life.epoch], life.peer.core.node.state.finished
        if finished > self._finished[life.epoch]:
            self._finished[life.epoch] = finished
            model += self.world.schedule.method.own_weight * update_of(life.user, finished - 1)
            self._changed.add(life.epoch)
        if life.epoch in self._changed:
            self._changed.discard(life.epoch)
            self._compare(life)

    def ended(self, world: World) -> None:
        for life in world.lives.values():
            self._compare(life)

    def _compare(self, life: Life) -> None:
        model = self._models[life.epoch]
        wrong = np.abs(life.peer.model - model).max()
        self.require(wrong <= 1e-4 * (1.0 + np.abs(model).max()), life, "has", life.peer.model, "and not", model)


class NothingLeaks(Law):
    """A peer holds its model and what it trains, has not sent, or has in its window: not a vector or reference more."""

    def stepped(self, life: Life) -> None:
        core = life.peer.core
        state = core.node.state
        waiting = [message.vector for message in state.window]
        if state.unsent != NONE:
            waiting.append(state.unsent)
        self.require(life.peer.vectors.keys() == {life.user, *waiting}, life, "holds", sorted(life.peer.vectors))
        references = core.vectors.state.references
        self.require(references == dict.fromkeys((*waiting, state.training), 1), life, "refers to", references)


class NobodyWaits(Law):
    """Local updates end when their drawn time is over, or their training: nothing else, and nobody, delays them.

    Drawn times follow one another: where an update ended late, the next is due none the later, up to a limit.
    """

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._finished: dict[int, int] = {}
        self._due_s: dict[int, float] = {}  # by the peer's clock

    def born(self, life: Life) -> None:
        self._due_s[life.epoch] = life.now_s()
        self._expect(life, life.peer.core.node.state.finished)

    def stepped(self, life: Life) -> None:
        finished, now_s = life.peer.core.node.state.finished, life.now_s()
        could_s = max(self._due_s[life.epoch], life.clock.shows(life.frozen_until_s))
        if finished == self._finished[life.epoch]:
            ready_s = max(could_s, life.trained_s)
            self.require(now_s <= ready_s + _ROUNDING_S, life, "still computes", finished, "that was due at", ready_s)
            return
        is_next = finished == self._finished[life.epoch] + 1
        is_in_time = now_s >= self._due_s[life.epoch] - _ROUNDING_S
        self.require(is_next and is_in_time, life, "finished", finished, "at", now_s)
        self._expect(life, finished)

    def ended(self, world: World) -> None:
        for life in world.lives.values():
            self.stepped(life)

    def _expect(self, life: Life, number: int) -> None:
        self._finished[life.epoch] = number
        setting = self.world.schedule.setting
        longest_s = MADE_UP / setting.compute_rates[life.user]
        before_s = max(self._due_s[life.epoch], life.now_s() - longest_s)
        self._due_s[life.epoch] = before_s + setting.computing_s(life.user, number)


class NetworkComesTogether(Law):
    """Two periods after the last fault all know of all, and the same hub's model is in place everywhere."""

    def ended(self, world: World) -> None:
        schedule = world.schedule
        self.require(len(world.lives) == schedule.users, "not everybody is up")
        for life in world.lives.values():
            others = {
                other.user: other.epoch
                for other in world.lives.values()
                if other is not life and are_in_touch(schedule, life.user, other.user)
            }
            self.require(life.peer.core.state.members == others, life, "knows of", life.peer.core.state.members)
        states = {user: life.peer.core.node.state for user, life in world.lives.items()}
        in_place = Counter((state.unified_period, state.unified_rank) for state in states.values())
        newest = max(period for period, _ in in_place)
        self.require(newest == max(world.periods), "nobody has the newest model")
        is_sure = schedule.method.unification == "reliable" or schedule.channel is None
        self.require(not is_sure or len(in_place) == 1, "in place are", dict(in_place))
        behind = [user for user, life in world.lives.items() if life.peer.core.state.period < newest - 1]
        self.require(not is_sure or not behind, behind, "are periods behind")


PEER_LAWS: tuple[type[Law], ...] = (
    BestHubIsInPlace,
    NobodyIsHubTooLate,
    HubsAreReplaced,
    ModelsAreHandedOnOnce,
    ModelIsWhatWasApplied,
    NothingLeaks,
    NobodyWaits,
    NetworkComesTogether,
)
