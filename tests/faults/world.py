"""A network that loses, delays, reorders and repeats messages, tears and heals, and whose peers die and come back.

One heap of what happens next, in true time, which no peer can see: each has a clock of its own. All chance is drawn
from the schedule's seed in the order of the heap, so a schedule runs the same way every time.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
from faults.laws import Oracle
from faults.life import Died, Life
from faults.news import News
from faults.schedule import PERIOD_S, TAKEOVER_S, Fault, Kind, Schedule

from dracofl.field import Positions
from dracofl.protocol.commands import Happening
from dracofl.protocol.headers import Answer, decode_answer
from dracofl.runtime.journal import Line
from dracofl.runtime.parcel import Parcel
from dracofl.runtime.save import Saved
from dracofl.runtime.transport import Unanswered

_QUIET_PERIODS = 2.2  # until everybody must have come together
_MOST_QUIET_PERIODS = 3.0  # after those, until somebody unifies
LEAST_EVENTS = 300


@dataclass(slots=True)
class Exchange:
    """A parcel that was sent and has no answer yet."""

    sender: Life
    parcel: Parcel
    asked_s: float  # by the sender's clock
    is_over: bool = False


@dataclass(frozen=True, slots=True)
class Summary:
    peers: int
    events: int
    unifications: int


class World:
    def __init__(self, schedule: Schedule, tell: Callable[[str], None] | None = None) -> None:
        self.schedule = schedule
        self.weather = schedule.weather
        self.now_s = 0.0
        self.lives: dict[int, Life] = {}  # of those that are up
        self.by_epoch: dict[int, Life] = {}
        self.newest_epochs: dict[int, int] = {}
        self.journals: dict[int, list[Line]] = {user: [] for user in range(schedule.users)}
        self.periods: set[int] = set()  # those in which somebody unified
        self.positions: Positions = np.zeros((schedule.users, 2))
        self.oracle = Oracle(self)
        self._news = News(self)
        self._tell = tell
        self.chance = random.Random(f"{schedule.seed} network")
        self._heap: list[tuple[float, int, Life | None, Callable[[], None]]] = []
        self._serial = 0
        self._events = 0
        self._saves: dict[int, Saved] = {}
        self._starts = dict.fromkeys(range(schedule.users), 0)
        self._cuts: list[Fault] = []
        self._hub_crashes: list[Fault] = []
        self._open: dict[int, Exchange] = {}

    # The course of things

    def play(self) -> Summary:
        """Until everything is repaired, two periods more, and a unification whose model has had time to spread."""
        schedule = self.schedule
        for user, start_s in enumerate(schedule.starts_s):
            self.at(start_s, None, partial(self._start, user))
        for fault in schedule.faults:
            self.at(fault.at_s, None, partial(self._break, fault))
        self.at(schedule.quiet_s, None, self._clear_up)
        self._run(schedule.quiet_s + _QUIET_PERIODS * PERIOD_S)
        while self._events < LEAST_EVENTS:
            self._run(self._heap[0][0])
        newest, latest_s = max(self.periods, default=0), self.now_s + _MOST_QUIET_PERIODS * PERIOD_S
        while max(self.periods, default=0) == newest and self._heap[0][0] < latest_s:
            self._run(self._heap[0][0])
        self._run(self.now_s + self._spreading_s())
        self.oracle.ended()
        return Summary(schedule.users, self._events, len(self.periods))

    def _spreading_s(self) -> float:
        """Three takeovers, and then from neighbour to neighbour: each time behind an exchange that is under way."""
        hop_s = 3 * 1.5 * self.weather.delay_s
        return 3 * TAKEOVER_S + self.schedule.users * hop_s

    def _run(self, until_s: float) -> None:
        heap = self._heap
        while heap and heap[0][0] <= until_s:
            self.now_s, _, life, act = heapq.heappop(heap)
            self._visit(life, act)
        self.now_s = until_s

    def at(self, true_s: float, life: Life | None, act: Callable[[], None]) -> int:
        """Something that happens to this life, if it lasts so long, or to the network."""
        self._serial += 1
        heapq.heappush(self._heap, (max(true_s, self.now_s), self._serial, life, act))
        return self._serial

    def _visit(self, life: Life | None, act: Callable[[], None]) -> None:
        if life is None:
            act()
        elif life.alive and life.frozen_until_s > self.now_s:
            self.at(life.frozen_until_s, life, act)
        elif life.alive:
            try:
                act()
            except Died:
                self._kill(life)

    def _happened(self, life: Life) -> None:
        self._events += 1
        self.oracle.stepped(life)

    def tell(self, text: str) -> None:
        if self._tell is not None:
            self._tell(f"{self.now_s:9.4f}  {text}")

    # What reaches peers

    def rang(self, life: Life, happening: Happening, now_s: float) -> None:
        self.tell(f"{life}: {happening.name.lower()}")
        life.peer.timer(happening, now_s)
        if happening == Happening.WINDOW_CLOSED:
            self.oracle.window_closed(life)
        elif happening == Happening.PERIOD_ENDED:
            self.oracle.period_ended(life)
        self._happened(life)

    def unified(self, life: Life, period: int) -> None:
        self.periods.add(period)
        self.tell(f"{life} is the hub of period {period}")
        self.oracle.unified(life, period)
        if self._hub_crashes:
            self._doom(life, self._hub_crashes.pop())

    def send(self, life: Life, parcel: Parcel) -> None:
        weather, chance = self.weather, self.chance
        exchange = Exchange(life, parcel, life.now_s())
        receiver = parcel.header.receiver
        serial = self.at(
            self.now_s + weather.timeout_s, life, lambda: self._answer(serial, exchange, Unanswered.TIMEOUT)
        )
        self._open[serial] = exchange
        if receiver not in self.lives and chance.random() < 0.7:
            self.at(self.now_s + 0.001, life, lambda: self._answer(serial, exchange, Unanswered.UNREACHABLE))
            return
        header, numbers = parcel.on_the_wire()
        parts = header, numbers.tobytes()
        for _ in range(2 if chance.random() < weather.duplicate else 1):
            if chance.random() >= weather.loss:
                self.at(self.now_s + self._draw_delay_s(), None, lambda: self._reach(serial, exchange, parts))

    def _reach(self, serial: int, exchange: Exchange, parts: tuple[bytes, bytes]) -> None:
        """Whoever is up under this name by now."""
        life = self.lives.get(exchange.parcel.header.receiver)
        if life is not None and not self.is_cut(exchange.sender.user, life.user):
            self._visit(life, lambda: self._arrive(life, serial, exchange, parts))

    def _arrive(self, life: Life, serial: int, exchange: Exchange, parts: tuple[bytes, bytes]) -> None:
        answer = life.peer.message(*parts, life.now_s())
        found = decode_answer(answer, self.schedule.setting.parameters)
        assert found is not None
        header = exchange.parcel.header
        if self._tell is not None:
            self.tell(
                f"{life}: {header.kind.name.lower()} {header.number} of hub {header.hub} from {exchange.sender} "
                f"for epoch {header.to_epoch}: {found.verdict.name.lower()}"
            )
        self.oracle.arrived(life, exchange.parcel, found.verdict)
        self._happened(life)
        back = (life.user, exchange.sender.user)
        if self.chance.random() >= self.weather.lost_answer and not self.is_cut(*back):
            arrives_s = self.now_s + self._draw_delay_s()
            self.at(arrives_s, exchange.sender, lambda: self._answer(serial, exchange, answer, found))

    def _answer(self, serial: int, exchange: Exchange, data: bytes | Unanswered, answer: Answer | None = None) -> None:
        if exchange.is_over:
            return
        exchange.is_over = True
        del self._open[serial]
        life, now_s = exchange.sender, exchange.sender.now_s()
        life.peer.answered(exchange.parcel, data, exchange.asked_s, now_s)
        if answer is not None and isinstance(data, bytes):
            self.oracle.answered(life, exchange.parcel, exchange.asked_s, now_s, answer, data)
        self._happened(life)
        life.send_next(exchange.parcel.header.receiver)

    def _draw_delay_s(self) -> float:
        weather, chance = self.weather, self.chance
        if chance.random() < weather.detour:
            return chance.uniform(0.0, weather.detour_s)
        return weather.delay_s * chance.uniform(0.5, 1.5)

    def draw_training_s(self) -> float:
        return self.chance.uniform(0.0, 0.5 * PERIOD_S) if self.chance.random() < self.schedule.slow_training else 0.0

    def is_cut(self, sender: int, receiver: int) -> bool:
        return any(
            (sender in cut.users) != (receiver in cut.users) and (sender in cut.users or not cut.one_way)
            for cut in self._cuts
        )

    def bring_news(self, observer: Life, other: Life, is_there: bool) -> None:
        self.tell(f"{observer}: {other} {'came' if is_there else 'left'}")
        if is_there:
            self.oracle.came(observer, other)
            observer.peer.member_came(other.user, other.epoch, observer.now_s())
        else:
            observer.peer.member_left(other.user, other.epoch, observer.now_s())
        self._happened(observer)

    # What breaks

    def _start(self, user: int) -> None:
        if user in self.lives:
            return
        epoch = len(self.by_epoch) + 1
        self.newest_epochs[user] = epoch
        life = Life(self, user, epoch, self._starts[user], self._saves.get(user))
        self.lives[user] = self.by_epoch[epoch] = life
        self._starts[user] += 1
        self.tell(f"{life} starts")
        self.oracle.born(life)
        self._visit(life, life.start)
        self._news.look_after(user, 0.0)
        self._visit(life, partial(self._save, life))

    def _save(self, life: Life) -> None:
        self._saves[life.user] = life.save()
        self.oracle.saved(life)
        self.at(self.now_s + self.schedule.save_every_s, life, partial(self._save, life))

    def _break(self, fault: Fault) -> None:
        self.tell(f"{fault.kind}: {fault.users} for {fault.lasts_s:.2f} s")
        ends_s = min(self.now_s + fault.lasts_s, self.schedule.quiet_s)
        life = self.lives.get(fault.users[0])
        if fault.kind == Kind.HUB_CRASH:
            self._hub_crashes.append(fault)
        elif fault.kind == Kind.CUT:
            self._cuts.append(fault)
            self._look_across(fault, self.weather.lease_s)
            self.at(ends_s, None, partial(self._heal, fault))
        elif life is not None and fault.kind == Kind.CRASH:
            self._doom(life, fault)
        elif life is not None:
            life.frozen_until_s = max(life.frozen_until_s, ends_s)
            self._news.look_after(life.user, self.weather.lease_s)
            self.at(ends_s, None, partial(self._news.look_after, life.user, 0.0))

    def _doom(self, life: Life, fault: Fault) -> None:
        life.back_after_s = fault.lasts_s
        life.posts_left = fault.posts
        if fault.kind == Kind.CRASH and fault.posts is None:
            self._kill(life)

    def _kill(self, life: Life) -> None:
        self.tell(f"{life} dies")
        life.alive = False
        del self.lives[life.user]
        self.at(min(self.now_s + life.back_after_s, self.schedule.quiet_s), None, partial(self._start, life.user))
        # The end of its process may be noticed at once, or when it has not been heard for too long.
        self._news.look_after(life.user, self.chance.choice([0.005, self.weather.lease_s]))
        for serial, exchange in self._open.items():
            if exchange.parcel.header.receiver == life.user and self.chance.random() < 0.5:
                gone = partial(self._answer, serial, exchange, Unanswered.UNREACHABLE)
                self.at(self.now_s + 0.001, exchange.sender, gone)

    def _heal(self, cut: Fault) -> None:
        if cut in self._cuts:
            self.tell(f"healed: {cut.users}")
            self._cuts.remove(cut)
            self._look_across(cut, 0.0)

    def _look_across(self, cut: Fault, wait_s: float) -> None:
        for user in cut.users:
            if user in self.lives:
                self._news.look_after(user, wait_s)

    def _clear_up(self) -> None:
        self.tell("everything is repaired")
        self.weather = self.weather.cleared()
        self._hub_crashes.clear()
        for cut in list(self._cuts):
            self._heal(cut)
        for life in self.lives.values():
            life.posts_left = None
            life.frozen_until_s = min(life.frozen_until_s, self.now_s)
        for user in range(self.schedule.users):
            self._start(user)
