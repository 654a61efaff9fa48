"""What a seed means: a network, a method, bad weather, and what will break when. One seed is one schedule.

The bad time lasts for some periods. Then everything is repaired, everybody is up again, and the network is given a few
quiet periods to come together.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from enum import StrEnum

from dracofl.channels.lossy import Lossy
from dracofl.methods.draco import Draco
from dracofl.methods.interface import Setting
from dracofl.types import Graph

PERIOD_S = 10.0
TAKEOVER_S = 0.05 * PERIOD_S  # how long one waits for each who goes before
PARAMETERS = 4  # a model is tiny: the laws hold whatever its length
MOST_DRIFT = 1e-3


class Kind(StrEnum):
    CRASH = "crash"
    HUB_CRASH = "hub crash"  # of the next hub, in the middle of its unification
    CUT = "cut"
    FREEZE = "freeze"  # stopped, and later going on as if nothing had been


@dataclass(frozen=True, slots=True)
class Fault:
    kind: Kind
    at_s: float
    lasts_s: float
    users: tuple[int, ...] = ()  # of a cut: one side
    posts: int | None = None  # of a crash: how many messages it still hands out; None: it dies at once
    one_way: bool = False  # of a cut: what this side sends is lost, and what it is sent is not


@dataclass(frozen=True, slots=True)
class Weather:
    """Of the network: chances are of each message or answer."""

    loss: float
    lost_answer: float
    duplicate: float
    detour: float  # a long way round: it is overtaken by many
    delay_s: float  # mean
    detour_s: float  # at most
    timeout_s: float
    lease_s: float  # until who is not heard counts as gone

    def cleared(self) -> Weather:
        return Weather(0.0, 0.0, 0.0, 0.0, self.delay_s, 0.0, self.timeout_s, self.lease_s)


@dataclass(frozen=True, slots=True)
class Clock:
    """A peer's own. `offset_s` is what it shows at time 0."""

    offset_s: float
    rate: float

    def shows(self, true_s: float) -> float:
        return self.offset_s + self.rate * true_s

    def when(self, shown_s: float) -> float:
        return (shown_s - self.offset_s) / self.rate


@dataclass(frozen=True, slots=True)
class Schedule:
    seed: int
    setting: Setting
    method: Draco
    channel: Lossy | None  # the radio in software
    weather: Weather
    capacity: int  # of each outbox
    deadline_s: float
    save_every_s: float
    slow_training: float  # chance that an update takes longer than was drawn
    sees_all: bool  # whether peers know who is there beyond their neighbours
    starts_s: tuple[float, ...]
    zeros_s: tuple[float, ...]  # when each peer's clock shows 0
    faults: tuple[Fault, ...]
    quiet_s: float  # when everything is repaired

    @property
    def users(self) -> int:
        return self.setting.users

    def clock(self, user: int, start: int) -> Clock:
        """By this start. In one of four the clock was set while the peer was down."""
        chance = random.Random(f"{self.seed} clock {user} {start}")
        set_by_s = chance.uniform(-30.0, 30.0) if start and chance.random() < 0.25 else 0.0
        return Clock(set_by_s - self.zeros_s[user], 1.0 + chance.uniform(-MOST_DRIFT, MOST_DRIFT))


def draw_schedule(seed: int) -> Schedule:
    chance = random.Random(f"{seed} schedule")
    users = chance.randint(5, 7)
    graph = _draw_graph(users, chance)
    when = chance.choice(["on-update", "on-update", "poisson"])
    # Sparse graphs, on which hubs' models cost little, compute more: enough happens everywhere, nowhere too much.
    links = sum(len(receivers) for receivers in graph.successors)
    channel = chance.choice([None, None, Lossy(chance.uniform(0.0, 0.4), chance.choice([0.0, 0.1, 1.0]))])
    unification = chance.choice(["reliable", "reliable", "reliable", "radio"])
    arriving = 1.0 if channel is None else 1.0 - channel.loss
    over_the_air = channel is not None and unification == "radio"
    events = max(25.0, chance.uniform(65.0, 75.0) - (0.0 if over_the_air else 1.5 * links))
    rate = events / PERIOD_S / (users + 2 * links * arriving)
    setting = Setting(
        seed=seed,
        graph=graph,
        compute_rates=tuple(rate * chance.uniform(0.6, 1.6) for _ in range(users)),
        snapshot="start",
        when=when,
        transmit_rates=(rate,) * users,
        backlog=chance.choice(["sum", "latest"]),
        parameters=PARAMETERS,
        message_bytes=None,
    )
    method = Draco(
        psi=chance.choice([None, chance.randint(2, 12)]),
        own_weight=chance.choice([0.0, 1.0]),
        window_s=chance.choice([0.0, 0.0, chance.uniform(0.2, 3.0)]),
        weights="uniform",
        period_s=PERIOD_S,
        hub=chance.choice(["round-robin", "random"]),
        unification=unification,
    )
    quiet_s = chance.uniform(3.5, 4.5) * PERIOD_S
    late_s = chance.uniform(0.0, 2.5 * PERIOD_S)
    starts_s = tuple(late_s if chance.random() < 0.1 else chance.uniform(0.0, 2.0) for _ in range(users))
    agreed = chance.random() < 0.5  # on when the clocks show 0: otherwise each shows it when it starts
    return Schedule(
        seed=seed,
        setting=setting,
        method=method,
        channel=channel,
        weather=_draw_weather(chance),
        capacity=chance.randint(1, 3),
        deadline_s=chance.choice([1.0, 5.0, 1000.0]),
        save_every_s=chance.uniform(3.0, 20.0),
        slow_training=chance.choice([0.0, 0.2]),
        sees_all=chance.random() < 0.5,
        starts_s=starts_s,
        zeros_s=tuple(chance.uniform(-1.0, 0.0) if agreed else start_s for start_s in starts_s),
        faults=_draw_faults(users, quiet_s, chance),
        quiet_s=quiet_s,
    )


def _draw_graph(users: int, chance: random.Random) -> Graph:
    """Always strongly connected: a hub's model can reach everybody."""
    ring = list(range(users))
    chance.shuffle(ring)
    links = {(ring[place - 1], ring[place]) for place in range(users)}
    kind = chance.choice(["directed-cycle", "cycle", "chords", "chords" if users > 5 else "complete"])
    if kind == "cycle":
        links |= {(receiver, sender) for sender, receiver in links}
    elif kind == "complete":
        links = {(sender, receiver) for sender in ring for receiver in ring if sender != receiver}
    elif kind == "chords":
        links |= {(sender, receiver) for sender in ring for receiver in chance.sample(ring, 2) if sender != receiver}
    return Graph(tuple(tuple(sorted(to for sender, to in links if sender == user)) for user in range(users)))


def _draw_weather(chance: random.Random) -> Weather:
    rough = chance.random()
    return Weather(
        loss=rough * chance.uniform(0.0, 0.3),
        lost_answer=rough * chance.uniform(0.0, 0.3),
        duplicate=rough * chance.uniform(0.0, 0.4),
        detour=rough * chance.uniform(0.0, 0.3),
        delay_s=chance.choice([0.002, 0.02, 0.1]),
        detour_s=chance.choice([0.5, 3.0, 20.0]),
        timeout_s=chance.uniform(0.5, 3.0),
        lease_s=chance.uniform(0.5, 3.0),
    )


def _draw_faults(users: int, quiet_s: float, chance: random.Random) -> tuple[Fault, ...]:
    faults = []
    for _ in range(chance.randint(2, 6)):
        kind = chance.choice([Kind.CRASH, Kind.CRASH, Kind.HUB_CRASH, Kind.CUT, Kind.FREEZE])
        side = tuple(chance.sample(range(users), chance.randint(1, users // 2) if kind == Kind.CUT else 1))
        faults.append(
            Fault(
                kind,
                at_s=chance.uniform(0.2 * PERIOD_S, quiet_s - 0.5 * PERIOD_S),
                lasts_s=chance.choice([0.1, 1.0, 5.0, 15.0]) * chance.uniform(0.5, 1.5),
                users=side,
                posts=chance.choice([0, 1, 2, 3] if kind == Kind.HUB_CRASH else [None, None, 0, 1, 2]),
                one_way=chance.random() < 0.3,
            )
        )
    return tuple(sorted(faults, key=lambda fault: fault.at_s))
