"""Independent losses: the simplest bad link."""

from __future__ import annotations

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
    def __init__(self, channel: Lossy, seed: int) -> None:
        self.state = Stateless()
        self._arrives = Delivery(channel.delay_s)
        self._lost = Delivery(channel.delay_s, Fate.LOST, "random loss")
        self._channel = channel
        self._seed = seed

    def transmit(
        self,
        content: str,
        sender: int,
        index: int,
        receivers: tuple[int, ...],
        payload_bytes: int,
        now_s: float,
    ) -> Transmission:
        purpose, loss = f"loss-{content}", self._channel.loss
        deliveries = [
            self._lost
            if rng.uniform(rng.stream(self._seed, purpose, sender, receiver), index) < loss
            else self._arrives
            for receiver in receivers
        ]
        return Transmission(self._channel.delay_s, deliveries)
