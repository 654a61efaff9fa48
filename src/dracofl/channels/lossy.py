"""Independent losses: the simplest bad link."""

from __future__ import annotations

import math
from dataclasses import dataclass

from dracofl import rng
from dracofl.channels.interface import Delivery, Stateless, Transmission
from dracofl.field import Positions
from dracofl.types import Fate


@dataclass(frozen=True, slots=True)
class Lossy:
    """Each message is lost with a fixed probability; the others arrive after a fixed delay."""

    loss: float
    delay_s: float

    def open(self, seed: int, positions: Positions) -> LossyMedium:
        return LossyMedium(self, seed)


class LossyMedium:
    listens = False

    def __init__(self, channel: Lossy, seed: int) -> None:
        self.state = Stateless()
        self._arrives = Delivery(channel.delay_s)
        self._lost = Delivery(channel.delay_s, Fate.LOST, "random loss")
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
        delay_s, loss, purpose = self._channel.delay_s, self._channel.loss, f"loss-{content}"
        arrives, lost = self._arrives, self._lost
        if delay_s >= deadline_s:
            arrives, lost = Delivery(deadline_s, Fate.LATE), lost._replace(delay_s=deadline_s)
        deliveries = [
            lost if rng.uniform(rng.stream(self._seed, purpose, sender, receiver), index) < loss else arrives
            for receiver in receivers
        ]
        return Transmission(min(delay_s, deadline_s), deliveries)
