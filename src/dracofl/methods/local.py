"""local: everybody alone. The lower reference: what a user's own data is worth."""

from __future__ import annotations

from dataclasses import dataclass

from dracofl.methods.interface import Setting
from dracofl.protocol.commands import Command, Happening, RecordFinish, SetTimer
from dracofl.protocol.messages import Message
from dracofl.protocol.vectors import Vectors, VectorsState
from dracofl.tape import Combine, Free, Train


@dataclass(frozen=True, slots=True)
class Local:
    """No communication at all: each user trains on its own samples. A lower reference."""

    def open(self, setting: Setting) -> LocalNetwork:
        return LocalNetwork(setting)


@dataclass(slots=True)
class LocalState:
    finished: list[int]
    vectors: VectorsState


class LocalNetwork:
    def __init__(self, setting: Setting) -> None:
        self._setting = setting
        self.vectors = Vectors(models=setting.users)
        self._finished = [0] * setting.users

    @property
    def state(self) -> LocalState:
        return LocalState(self._finished, self.vectors.state)

    def restore(self, state: LocalState) -> None:
        self._finished = state.finished
        self.vectors.state = state.vectors

    def start(self) -> list[Command]:
        return [self._begin(user, 0.0) for user in range(self._setting.users)]

    def handle(self, happening: Happening, user: int, message: Message | None, now_s: float) -> list[Command]:
        number = self._finished[user]
        self._finished[user] = number + 1
        update = self.vectors.new()
        self.vectors.release(update)
        return [
            Train(now_s, user, number, user, update),
            Combine(now_s, user, user, ((user, 1.0), (update, 1.0))),
            Free(update),
            RecordFinish(user, number),
            self._begin(user, now_s),
        ]

    def held(self) -> list[Message]:
        return []

    def unifies(self, happening: Happening) -> bool:
        return False

    def _begin(self, user: int, now_s: float) -> SetTimer:
        duration_s = self._setting.computing_s(user, self._finished[user])
        return SetTimer(Happening.UPDATE_DUE, user, now_s + duration_s)
