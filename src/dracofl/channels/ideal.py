"""The ideal channel, for tests and as an upper bound."""

from __future__ import annotations

import math
from dataclasses import dataclass

from dracofl.channels.interface import Delivery, Stateless, Transmission
from dracofl.field import Positions

_AT_ONCE = Delivery(0.0)


@dataclass(frozen=True, slots=True)
class Ideal:
    """Every message arrives at once; nothing is lost."""

    def open(self, seed: int, positions: Positions) -> IdealMedium:
        return IdealMedium()


class IdealMedium:
    listens = False

    def __init__(self) -> None:
        self.state = Stateless()

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
        return Transmission(0.0, [_AT_ONCE] * len(receivers))
