"""What a peer needs of a network: messages that are answered, and to know who is there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from dracofl.runtime.peer import Unanswered

Reply = Callable[[bytes], None]
"""Answers one message. May be called from any thread, once; a message may also stay without an answer."""

OnMessage = Callable[[int, bytes, Reply], None]
"""Told whom a message came from and what it was, on a thread of the network's: it must return at once.

The number is the sender as the network knows it. A header in the message that names another one is a lie."""

OnMember = Callable[[int, int, bool], None]
"""Told that a user of an epoch is there (True) or gone (False), on a thread of the network's."""


class Transport(Protocol):
    @property
    def dropped(self) -> int:
        """Messages that were let go unread: too large, too many of one sender, or of nobody."""
        ...

    def open(self, on_message: OnMessage, on_member: OnMember) -> None:
        """Listen, connect and announce this peer; who cannot be reached yet is tried again and again."""
        ...

    def send(self, receiver: int, data: bytes, timeout_s: float) -> bytes | Unanswered:
        """Waits for the answer: UNREACHABLE if nobody is there to give one, TIMEOUT if none came in time."""
        ...

    def close(self) -> None:
        """Take leave, so that the others know at once."""
        ...
