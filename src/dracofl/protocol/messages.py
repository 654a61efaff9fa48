"""What travels between users."""

from __future__ import annotations

from typing import NamedTuple


class Message(NamedTuple):
    """An update (or, at unification, a model) on its way to one receiver."""

    sender: int
    receiver: int
    number: int  # the sender's count of transmissions; for a model, the period it ends
    updates: int  # how many local updates the vector sums up
    weight: float  # q(sender -> receiver)
    vector: int
    payload_bytes: int
    finished_s: float  # when its content was finished, the mean over the updates in it
    sent_s: float
    arrived_s: float
