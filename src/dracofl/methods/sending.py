"""Sending one's model as it is now: what all methods that average models do."""

from __future__ import annotations

from typing import Any

from dracofl.protocol.commands import Command, SendUpdate
from dracofl.protocol.vectors import Vectors
from dracofl.tape import Copy


def send_model(
    vectors: Vectors,
    user: int,
    number: int,
    payload_bytes: int,
    receivers: tuple[int, ...],
    weights: tuple[float, ...],
    now_s: float,
    **options: Any,
) -> list[Command]:
    """A copy goes out, as the model may change while it is on its way. Options are those of `SendUpdate`."""
    vector = vectors.new()
    send = SendUpdate(user, number, vector, 1, now_s, payload_bytes, receivers, weights, **options)
    return [Copy(now_s, user, user, vector), send]
