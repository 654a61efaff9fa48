"""The oracle: it sees what no peer can, all messages and all peers in true time, and what must hold of them.

Each law is a class with what it has to remember, told of what happens by methods of these names:

    born(life)                                 a peer starts, for the first time or again
    posted(life, parcel)                       it wants to send a message
    queued(life, parcel)                       which is in the outbox now
    taken(life, parcel)                        and leaves it, alone or with others
    arrived(life, parcel, verdict)             what a receiver made of it
    answered(life, parcel, asked_s, now_s, answer)
    given(life, period, numbers)               a neighbour's model came with an answer
    unified(life, period)                      it is a hub
    came(life, other)                          it will be told that the other is there
    window_closed(life)
    period_ended(life)                         by its own clock
    saved(life)                                what a restart goes on from
    stepped(life)                              after anything that happened to it
    ended(world)

The laws work out for themselves what peers should do. They read a peer's state to compare, never to know.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from dracofl.protocol.headers import Answer, Kind, Verdict, numbers_of_answer
from dracofl.protocol.hubs import pick_hub
from dracofl.runtime.parcel import Parcel

if TYPE_CHECKING:
    from faults.life import Life
    from faults.world import World


class Violation(Exception):
    """A law was broken. `law` is its name."""

    def __init__(self, law: str, now_s: float, text: str) -> None:
        super().__init__(law, now_s, text)
        self.law = law
        self.now_s = now_s
        self.text = text

    def __str__(self) -> str:
        return f"{self.law}, at {self.now_s:.4f} s: {self.text}"


class Law:
    """What all have in common: the world they watch, and how they complain. Their name is that of the class."""

    def __init__(self, world: World) -> None:
        self.world = world

    def require(self, holds: bool, *what: object) -> None:
        if not holds:
            raise Violation(type(self).__name__, self.world.now_s, " ".join(str(part) for part in what))


class Oracle:
    """Tells every law that wants to know."""

    def __init__(self, world: World) -> None:
        # Imported here: laws are kinds of Law, and the oracle knows them all.
        from faults.laws_of_messages import MESSAGE_LAWS
        from faults.laws_of_peers import PEER_LAWS

        self._world = world
        self._laws = [law(world) for law in (*MESSAGE_LAWS, *PEER_LAWS)]
        self.born = self._all("born")
        self.posted = self._all("posted")
        self.queued = self._all("queued")
        self.taken = self._all("taken")
        self.arrived = self._all("arrived")
        self.unified = self._all("unified")
        self.came = self._all("came")
        self.window_closed = self._all("window_closed")
        self.period_ended = self._all("period_ended")
        self.saved = self._all("saved")
        self.stepped = self._all("stepped")
        self._given = self._all("given")
        self._answered = self._all("answered")
        self._ended = self._all("ended")

    def answered(self, life: Life, parcel: Parcel, asked_s: float, now_s: float, answer: Answer, data: bytes) -> None:
        self._answered(life, parcel, asked_s, now_s, answer)
        if parcel.header.kind == Kind.ASK and answer.verdict == Verdict.ACCEPTED and answer.length:
            self._given(life, answer.number, np.frombuffer(numbers_of_answer(data), "<f4"))

    def ended(self) -> None:
        self._ended(self._world)

    def _all(self, name: str) -> Callable[..., None]:
        told = [getattr(law, name) for law in self._laws if hasattr(law, name)]

        def tell(*what: Any) -> None:
            for one in told:
                one(*what)

        return tell


def rank_of(world: World, period: int, hub: int) -> int:
    """How many go before it in this period."""
    schedule = world.schedule
    first = pick_hub(schedule.method.hub, schedule.seed, period, (0,) * schedule.users)
    return (hub - first) % schedule.users


def is_of_present_selves(world: World, life: Life, parcel: Parcel) -> bool:
    """It is for this life, and its sender has not been started again since."""
    header = parcel.header
    return header.to_epoch == life.epoch and header.epoch == world.newest_epochs[header.sender]
