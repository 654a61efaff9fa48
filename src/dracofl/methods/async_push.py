"""async-push: DIGEST (Gholami and Seferoglu, 2024), local SGD and a global model that walks the graph.

Every user runs local SGD without pause and keeps D(i), the sum of its updates since the last visit. A global model G
walks the directed graph: at user i

    G += D(i) / N,   x(i) <- G,   D(i) <- 0

and when the holder has made H further local updates it sends G to an out-neighbour drawn at random. S models may walk
at once, each with its own D(i).

Reconstructed from descriptions, not read from the paper's text. Decided here, where it has no lossy radio: a model that
does not arrive is sent again when its sender can know, to an out-neighbour drawn afresh (a neighbour that hears nobody
would hold it for ever), its airtime counted. So there are never more nor fewer than S of them. A walk starts at a user
drawn at random, who is visited at time 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from dracofl import rng
from dracofl.methods.interface import Setting
from dracofl.protocol.commands import Command, Happening, RecordFinish, SendUpdate, SetTimer, Settle
from dracofl.protocol.messages import Message
from dracofl.protocol.node import NONE
from dracofl.protocol.vectors import Vectors, VectorsState
from dracofl.tape import Combine, Copy, Free, Train
from dracofl.types import Fate

IN_FLIGHT = -1


@dataclass(frozen=True, slots=True)
class AsyncPush:
    """DIGEST: local SGD without pause, and a global model that walks the directed graph."""

    local_updates: int
    streams: int

    def open(self, setting: Setting) -> AsyncPushNetwork:
        return AsyncPushNetwork(self, setting)


@dataclass(slots=True)
class AsyncPushState:
    started: list[int]
    finished: list[int]
    training: list[int]  # vector of the update being computed (snapshot "start")
    holder: list[int]  # of each walk
    updates_left: list[int]  # that the holder of each walk still makes
    hops: list[int]  # transmissions of each walk
    sent_on_link: list[dict[int, int]]  # by sender, then receiver
    walk_of: dict[int, int]  # vector in flight -> walk
    vectors: VectorsState


class AsyncPushNetwork:
    def __init__(self, method: AsyncPush, setting: Setting) -> None:
        self._method = method
        self._setting = setting
        users, walks = setting.users, method.streams
        # Names after the models: the walking models, then what each user owes to each walk.
        self.vectors = Vectors(models=users + walks + users * walks)
        self._state = AsyncPushState(
            started=[0] * users,
            finished=[0] * users,
            training=[NONE] * users,
            holder=[IN_FLIGHT] * walks,
            updates_left=[0] * walks,
            hops=[0] * walks,
            sent_on_link=[{} for _ in range(users)],
            walk_of={},
            vectors=self.vectors.state,
        )

    @property
    def state(self) -> AsyncPushState:
        return self._state

    def restore(self, state: AsyncPushState) -> None:
        self._state = state
        self.vectors.state = state.vectors

    def start(self) -> list[Command]:
        users, out = self._setting.users, list[Command]()
        for walk in range(self._method.streams):
            start = int(rng.uniform(rng.stream(self._setting.seed, "walk", walk), 0) * users)
            out.append(Copy(0.0, start, start, self.walking(walk)))
            # Nothing owed yet: zero times any vector.
            out += [Combine(0.0, user, self.owed(user, walk), ((user, 0.0),)) for user in range(users)]
            out += self._visit(walk, start, self.walking(walk), 0.0)
        for user in range(users):
            out += self._begin_update(user, 0.0)
        return out

    def handle(self, happening: Happening, user: int, message: Message | None, now_s: float) -> list[Command]:
        if happening == Happening.UPDATE_DUE:
            return self._finish_update(user, now_s)
        assert message is not None
        walk = self._state.walk_of.pop(message.vector)
        if happening == Happening.MESSAGE_FAILED:
            return self._send(walk, message.sender, now_s)
        out = self._visit(walk, user, message.vector, now_s)
        out.append(Settle(message, Fate.APPLIED))
        if self.vectors.release(message.vector):
            out.append(Free(message.vector))
        return out

    def held(self) -> list[Message]:
        return []

    def unifies(self, happening: Happening) -> bool:
        return False

    def walking(self, walk: int) -> int:
        """The vector of a walking model."""
        return self._setting.users + walk

    def owed(self, user: int, walk: int) -> int:
        """The vector of D: what this user adds at the next visit of this walk."""
        return self._setting.users + self._method.streams + user * self._method.streams + walk

    def _visit(self, walk: int, user: int, arrived: int, now_s: float) -> list[Command]:
        walking, owed = self.walking(walk), self.owed(user, walk)
        self._state.holder[walk] = user
        self._state.updates_left[walk] = self._method.local_updates
        return [
            Combine(now_s, user, walking, ((arrived, 1.0), (owed, 1.0 / self._setting.users))),
            Copy(now_s, user, walking, user),
            Combine(now_s, user, owed, ((owed, 0.0),)),
        ]

    def _begin_update(self, user: int, now_s: float) -> list[Command]:
        state, out = self._state, list[Command]()
        number = state.started[user]
        state.started[user] = number + 1
        if self._snapshot == "start":
            state.training[user] = self.vectors.new()
            out.append(Train(now_s, user, number, user, state.training[user]))
        due_s = now_s + self._setting.computing_s(user, number)
        return [*out, SetTimer(Happening.UPDATE_DUE, user, due_s)]

    @property
    def _snapshot(self) -> Literal["finish", "start"]:
        return self._setting.snapshot

    def _finish_update(self, user: int, now_s: float) -> list[Command]:
        state, out = self._state, list[Command]()
        number = state.finished[user]
        state.finished[user] = number + 1
        update = state.training[user]
        if self._snapshot == "finish":
            update = self.vectors.new()
            out.append(Train(now_s, user, number, user, update))
        for vector in (user, *(self.owed(user, walk) for walk in range(self._method.streams))):
            out.append(Combine(now_s, user, vector, ((vector, 1.0), (update, 1.0))))
        self.vectors.release(update)
        out += [Free(update), RecordFinish(user, number)]
        for walk in range(self._method.streams):
            if state.holder[walk] == user:
                state.updates_left[walk] -= 1
                if state.updates_left[walk] == 0:
                    out += self._send(walk, user, now_s)
        return out + self._begin_update(user, now_s)

    def _send(self, walk: int, user: int, now_s: float) -> list[Command]:
        state, receivers = self._state, self._setting.graph.successors[user]
        draw = rng.uniform(rng.stream(self._setting.seed, "hop", walk), state.hops[walk])
        receiver = receivers[int(draw * len(receivers))]
        state.hops[walk] += 1
        state.holder[walk] = IN_FLIGHT
        number = state.sent_on_link[user].get(receiver, 0)
        state.sent_on_link[user][receiver] = number + 1
        vector = self.vectors.new()
        state.walk_of[vector] = walk
        return [
            Copy(now_s, user, self.walking(walk), vector),
            SendUpdate(
                user,
                number,
                vector,
                1,
                now_s,
                self._setting.payload_bytes,
                (receiver,),
                (1.0,),
                reports=True,
            ),
        ]
