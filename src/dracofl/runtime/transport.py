"""What a peer needs of a network: messages that are answered, and to know who is there."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Protocol

import numpy as np

OnMessage = Callable[[int, bytes, bytes], bytes | None]
"""Told whom a message came from, its header and its numbers, on a thread of the network's. Returns what to answer, if
anything.

The number is the sender as the network knows it. A header in the message that names another one is a lie. Messages
wait for one another here, so it must not wait for anything slow."""

OnMember = Callable[[int, int, bool], None]
"""Told that a user of an epoch is there (True) or gone (False), on a thread of the network's."""


class Unanswered(StrEnum):
    """Why there is no answer to a parcel."""

    LATE = "late"  # its time was over before it was its turn
    UNREACHABLE = "unreachable"  # nobody was there to take it
    TIMEOUT = "timeout"  # it may have arrived: only the receiver's journal can tell


class Transport(Protocol):
    @property
    def dropped(self) -> int:
        """Messages that were let go unread: too large, too many of one sender, or of nobody."""
        ...

    def open(self, on_message: OnMessage, on_member: OnMember) -> None:
        """Listen, connect and announce this peer; who cannot be reached yet is tried again and again."""
        ...

    def send(self, receiver: int, header: bytes, numbers: np.ndarray, timeout_s: float) -> bytes | Unanswered:
        """Waits for the answer: UNREACHABLE if nobody is there to give one, TIMEOUT if none came in time. Nobody may
        write to the numbers any more."""
        ...

    def close(self) -> None:
        """Take leave, so that the others know at once."""
        ...
