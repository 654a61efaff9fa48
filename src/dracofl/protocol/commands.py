"""What a core asks of whoever drives it: the simulator in virtual time, or a real peer.

Beside these a core returns operations of the tape (`dracofl.tape`), to be carried out in the order given.
"""

from __future__ import annotations

import math
from enum import IntEnum
from typing import NamedTuple, TypeAlias

from dracofl.protocol.messages import Message
from dracofl.tape import Operation
from dracofl.types import Fate


class Happening(IntEnum):
    """The kinds of things that reach a core from outside."""

    UPDATE_DUE = 0  # the computing time of a local update is over
    TRANSMISSION_DUE = 1
    WINDOW_CLOSED = 2
    UPDATE_ARRIVED = 3
    MODEL_ARRIVED = 4
    PERIOD_ENDED = 5
    MESSAGE_FAILED = 6  # told to its sender, when it can know; only of messages whose sender asked
    HUB_OVERDUE = 7  # between real peers: the hub should have been heard by now


class SetTimer(NamedTuple):
    """Tell me `happening` at `at_s`."""

    happening: Happening
    user: int
    at_s: float


class RecordFinish(NamedTuple):
    """Local update `number` of `user` is finished."""

    user: int
    number: int


class SendUpdate(NamedTuple):
    """Broadcast a vector to these receivers, who will weigh it so. The vector's reference goes with the command.

    `weights` None asks for the rule "delivered": equal shares over the receivers that it will reach. `reports` asks to
    be told of each receiver that it does not reach. `reliable` goes around the air: at once and without fail.
    `deadline_s` may be shorter than the channel's.
    """

    sender: int
    number: int
    vector: int
    updates: int
    finished_s: float
    payload_bytes: int
    receivers: tuple[int, ...]
    weights: tuple[float, ...] | None
    reports: bool = False
    reliable: bool = False
    deadline_s: float = math.inf


class SendModel(NamedTuple):
    """Broadcast the hub's model to these, over the radio or, if reliable, at once and without fail.

    In a simulation they are everybody; between real peers they are neighbours, who hand it on.
    """

    hub: int
    period: int
    vector: int
    payload_bytes: int
    receivers: tuple[int, ...]
    reliable: bool


class Settle(NamedTuple):
    """This message has met its fate here."""

    message: Message
    fate: Fate
    reason: str = ""


class AskForModel(NamedTuple):
    """Ask this neighbour for its model, if a later unification is in it. Between real peers alone."""

    neighbour: int
    unified_period: int


Command: TypeAlias = Operation | SetTimer | RecordFinish | SendUpdate | SendModel | Settle | AskForModel
