"""What the simulator needs of a channel."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from dracofl.types import Fate


class Delivery(NamedTuple):
    """What becomes of a transmission at one receiver: it arrives after `delay_s`, or meets its fate on the way.

    Then `delay_s` is how long the sender waits until it knows.
    """

    delay_s: float
    fate: Fate | None = None
    reason: str = ""


class Transmission(NamedTuple):
    airtime_s: float
    deliveries: list[Delivery]  # one a receiver, in the order asked


class Medium(Protocol):
    """A channel in use. All that changes in it is in `state`, a dataclass of plain data."""

    state: Any
    listens: bool  # whether it matters who else is on the air, so that it wants to be told

    def announce(self, senders: frozenset[int], now_s: float) -> None:
        """These users start to transmit at this instant; their transmissions follow one by one."""
        ...

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
        """Send `payload_bytes` to all receivers at once; `deadline_s` may be shorter than the channel's own.

        `index` counts this sender's transmissions of this content ("update" or "model"); with it every draw is a
        function of (seed, content, link, index), so no transmission changes the luck of another.
        """
        ...


@dataclass(slots=True)
class Stateless:
    """The state of a channel that remembers nothing."""
