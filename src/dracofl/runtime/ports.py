"""What a peer is told and what it may ask for: the seam between `Peer` and whoever drives it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from dracofl.protocol.commands import Happening
from dracofl.runtime.parcel import Parcel


class Ports(Protocol):
    """What a peer asks of its driver. Nothing here blocks."""

    def set_timer(self, happening: Happening, at_s: float) -> None:
        """At most one of a kind: a later one takes the place of the one before."""
        ...

    def train(self, number: int, model: np.ndarray) -> None:
        """Begin local update `number` from a model that nobody else writes to; `Peer.trained` has the result."""
        ...

    def post(self, parcel: Parcel, at_s: float) -> None:
        """Put it into the receiver's outbox at this time; `Peer.answered` has what became of it."""
        ...


@dataclass(frozen=True, slots=True)
class Limits:
    shape: bytes
    parameters: int
    norm: float
    deadline_s: float  # a message that waited longer is not sent
