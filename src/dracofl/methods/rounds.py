"""Synchronous rounds: everybody computes, everybody sends, and the slowest ends the round.

A round ends when every user has finished its local update and every message of the round has arrived or is known to
have failed. With N exponential computing times the expected wait is H_N / lambda. What the users send and how they mix
is a `Mixing`; this file is the clock they share.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from dracofl.methods.interface import Setting
from dracofl.protocol.commands import Command, Happening, RecordFinish, SendUpdate, SetTimer
from dracofl.protocol.messages import Message
from dracofl.protocol.vectors import Vectors, VectorsState
from dracofl.tape import Combine, Copy, Free, Train


class Mixing(Protocol):
    """The part of a synchronous method that differs. `numbers` is all that changes in it."""

    numbers: list[float]
    vectors: Vectors

    def start(self) -> list[Command]: ...

    def send(self, user: int, round_number: int, now_s: float) -> list[Command]:
        """What this user sends when its model has taken its local step."""
        ...

    def mix(self, arrived: list[Message], now_s: float) -> list[Command]:
        """The end of the round: settle what arrived, give up its vectors, and change the models."""
        ...


@dataclass(slots=True)
class RoundState:
    number: int
    computing: int  # users that have not finished
    outstanding: int  # messages neither arrived nor known to have failed
    arrived: list[Message]
    numbers: list[float]
    vectors: VectorsState = field(default_factory=lambda: VectorsState(0))


class RoundNetwork:
    def __init__(self, setting: Setting, mixing: Mixing) -> None:
        self._setting = setting
        self._mixing = mixing
        self.vectors = mixing.vectors
        self._state = RoundState(0, setting.users, 0, [], mixing.numbers, self.vectors.state)

    @property
    def state(self) -> RoundState:
        self._state.numbers = self._mixing.numbers
        return self._state

    def restore(self, state: RoundState) -> None:
        self._state = state
        self._mixing.numbers = state.numbers
        self.vectors.state = state.vectors

    def start(self) -> list[Command]:
        return self._mixing.start() + self._begin_round(0.0)

    def handle(self, happening: Happening, user: int, message: Message | None, now_s: float) -> list[Command]:
        state = self._state
        if happening == Happening.UPDATE_DUE:
            out = self._finish_update(user, now_s)
        elif message is not None and happening == Happening.MODEL_ARRIVED:
            return [Copy(now_s, user, message.vector, user), *give_up(self.vectors, [message])]
        else:
            assert message is not None
            state.outstanding -= 1
            if happening == Happening.UPDATE_ARRIVED:
                state.arrived.append(message)
            out = []
        if state.computing == 0 and state.outstanding == 0:
            arrived, state.arrived = state.arrived, []
            out += self._mixing.mix(arrived, now_s)
            state.number += 1
            state.computing = self._setting.users
            out += self._begin_round(now_s)
        return out

    def held(self) -> list[Message]:
        return list(self._state.arrived)

    def unifies(self, happening: Happening) -> bool:
        return False

    def _begin_round(self, now_s: float) -> list[Command]:
        number = self._state.number
        return [
            SetTimer(Happening.UPDATE_DUE, user, now_s + self._setting.computing_s(user, number))
            for user in range(self._setting.users)
        ]

    def _finish_update(self, user: int, now_s: float) -> list[Command]:
        state = self._state
        state.computing -= 1
        update = self.vectors.new()
        self.vectors.release(update)
        sent = self._mixing.send(user, state.number, now_s)
        state.outstanding += sum(len(command.receivers) for command in sent if isinstance(command, SendUpdate))
        return [
            # The model has not changed since the round began, so both snapshots are the same.
            Train(now_s, user, state.number, user, update),
            Combine(now_s, user, user, ((user, 1.0), (update, 1.0))),
            Free(update),
            RecordFinish(user, state.number),
            *sent,
        ]


def give_up(vectors: Vectors, messages: list[Message]) -> list[Command]:
    """Release what these messages carried."""
    return [Free(message.vector) for message in messages if vectors.release(message.vector)]
