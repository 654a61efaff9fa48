"""One start of a peer: what a process is to a real one. It has a clock, timers and outboxes, and it can be killed."""

from __future__ import annotations

import copy
import functools
import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from faults.schedule import PARAMETERS

from dracofl.protocol.commands import Happening
from dracofl.protocol.headers import shape_of
from dracofl.protocol.peer import PeerState
from dracofl.runtime.parcel import Outbox, Parcel
from dracofl.runtime.peer import Peer
from dracofl.runtime.ports import Limits
from dracofl.runtime.save import Saved, resume
from dracofl.runtime.transport import Unanswered

if TYPE_CHECKING:
    from faults.world import World

SHAPE = shape_of("faults")


class Died(Exception):
    """Raised through the peer's own code, wherever it is at that moment."""


@functools.lru_cache(maxsize=4096)
def update_of(user: int, number: int) -> np.ndarray:
    """A local update that says whose it is. Whole numbers add up exactly; the last one counts the updates in a sum."""
    update = np.array([1 << user, number, (number * 31 + user * 17) % 101, 1], np.float32)
    update.setflags(write=False)
    return update


class Life:
    def __init__(self, world: World, user: int, epoch: int, start: int, saved: Saved | None) -> None:
        schedule = world.schedule
        self.user = user
        self.epoch = epoch
        self.alive = True
        self.frozen_until_s = -math.inf
        self.posts_left: int | None = None  # until it dies
        self.back_after_s = 0.0  # then
        self.trained_s = -math.inf  # when the update that is being computed was, by its clock
        self.clock = schedule.clock(user, start)
        self.outboxes = {other: Outbox(schedule.capacity) for other in range(schedule.users) if other != user}
        self._world = world
        self._latest_s = -math.inf
        self._busy: set[int] = set()  # neighbours whose outbox waits for an answer
        self._timers: dict[Happening, int] = {}  # the serial number of the one that counts
        core = schedule.method.open_peer(schedule.setting, user, PeerState(epoch))
        vectors = {user: np.zeros(PARAMETERS, np.float32)}
        if saved is not None:
            vectors = resume(core, copy.deepcopy(saved), epoch, world.journals[user][saved.lines :])
        medium = None if schedule.channel is None else schedule.channel.open(schedule.seed, world.positions)
        limits = Limits(SHAPE, PARAMETERS, norm=1e9, deadline_s=schedule.deadline_s)
        self.peer = Peer(core, vectors[user], medium, limits, self, self)
        self.peer.vectors |= vectors

    def __str__(self) -> str:
        return f"peer {self.user} (epoch {self.epoch})"

    def now_s(self, at_least_s: float = -math.inf) -> float:
        """By its own clock, which never goes back."""
        self._latest_s = max(self._latest_s, self.clock.shows(self._world.now_s), at_least_s)
        return self._latest_s

    def start(self) -> None:
        self.write("start", self.now_s(), {"epoch": self.epoch})
        self.peer.start(self.now_s())

    def save(self) -> Saved:
        """What is on its disc from now on."""
        core, vectors = self.peer.core, self.peer.vectors
        peer = replace(core.state, heard={user: replace(heard) for user, heard in core.state.heard.items()}, members={})
        kept = {name: vector.copy() for name, vector in vectors.items()}
        return Saved("", 0.0, len(self._world.journals[self.user]), replace(core.node.state), peer, kept)

    # Its journal

    def write(self, *line: Any) -> None:
        self._world.journals[self.user].append(list(line))
        if line[0] == "unified":
            self._world.unified(self, period=line[3])

    # Its ports

    def set_timer(self, happening: Happening, at_s: float) -> None:
        def ring() -> None:
            if self._timers.get(happening) == serial:
                del self._timers[happening]
                self._world.rang(self, happening, self.now_s(at_s))

        serial = self._timers[happening] = self._world.at(self.clock.when(at_s), self, ring)

    def train(self, number: int, model: np.ndarray) -> None:
        def done() -> None:
            self.trained_s = self.now_s()
            self.peer.trained(update_of(self.user, number), self.trained_s)
            self._world.oracle.stepped(self)

        self.trained_s = math.inf
        self._world.at(self._world.now_s + self._world.draw_training_s(), self, done)

    def post(self, parcel: Parcel, at_s: float) -> None:
        if self.posts_left is not None:
            if self.posts_left == 0:
                raise Died
            self.posts_left -= 1
        self._world.oracle.posted(self, parcel)
        if at_s <= self.now_s():
            self._put(parcel)
        else:
            self._world.at(self.clock.when(at_s), self, lambda: self._put(parcel))

    # Its outboxes

    def _put(self, parcel: Parcel) -> None:
        receiver = parcel.header.receiver
        self._world.oracle.queued(self, parcel)
        merged = self.outboxes[receiver].put(parcel)
        if merged is not None:
            self.write("merged", self.now_s(), receiver, *merged)
        if receiver not in self._busy:
            self._busy.add(receiver)
            self._world.at(self._world.now_s, self, lambda: self.send_next(receiver))

    def send_next(self, receiver: int) -> None:
        """One at a time goes to a neighbour, and the next one when there is an answer, or none in time."""
        outbox = self.outboxes[receiver]
        while len(outbox):
            parcel, now_s = outbox.take(), self.now_s()
            self._world.oracle.taken(self, parcel)
            if parcel.expires_s > now_s:
                self._world.send(self, parcel)
                return
            self.peer.answered(parcel, Unanswered.LATE, now_s, now_s)
        self._busy.discard(receiver)
