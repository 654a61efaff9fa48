"""Exponential delays: the alternative to the radio in the paper's Algorithm 2."""

from __future__ import annotations

import math
from dataclasses import dataclass

from dracofl import rng
from dracofl.channels.interface import Delivery, Stateless, Transmission
from dracofl.errors import ConfigError
from dracofl.field import Positions
from dracofl.types import Fate


@dataclass(frozen=True, slots=True)
class Exponential:
    """Each message takes Exp(rate) seconds; past an optional deadline it is late."""

    rate: float
    rates: tuple[tuple[float, ...], ...] | None  # rates[i][j] of the link i -> j, instead of `rate`
    deadline_s: float | None

    def open(self, seed: int, positions: Positions) -> ExponentialMedium:
        users = len(positions)
        if self.rates is not None and (len(self.rates) != users or any(len(row) != users for row in self.rates)):
            raise ConfigError(f"channel.rates must be a {users} x {users} table of rates, one row a sender")
        return ExponentialMedium(self, seed)


class ExponentialMedium:
    listens = False

    def __init__(self, channel: Exponential, seed: int) -> None:
        self.state = Stateless()
        self._channel = channel
        self._seed = seed

    def announce(self, senders: frozenset[int], now_s: float) -> None: ...

    def transmit(
        self,
        content: str,
        sender: int,
        index: int,
        receivers: tuple[int, ...],
        payload_bytes: int,
        now_s: float,
        deadline_s: float = math.inf,
    ) -> Transmission:
        channel, purpose = self._channel, f"delay-{content}"
        deadline_s = min(deadline_s, channel.deadline_s or math.inf)
        deliveries = []
        airtime_s = -1.0
        for receiver in receivers:
            rate = channel.rate if channel.rates is None else channel.rates[sender][receiver]
            delay_s = rng.exponential(rng.stream(self._seed, purpose, sender, receiver), index) / rate
            if delay_s >= deadline_s:
                deliveries.append(Delivery(deadline_s, Fate.LATE))
            else:
                deliveries.append(Delivery(delay_s))
                airtime_s = max(airtime_s, delay_s)
        if airtime_s < 0.0:  # nobody has it
            airtime_s = 0.0 if deadline_s == math.inf else deadline_s
        return Transmission(airtime_s, deliveries)
