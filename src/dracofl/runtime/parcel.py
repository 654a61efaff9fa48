"""A message on its way out, and the bounded queue in which it waits for its turn."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np

from dracofl.protocol.headers import Header, Kind, encode


@dataclass(frozen=True, slots=True)
class Parcel:
    """What is to be sent to one receiver."""

    header: Header
    payload: np.ndarray  # nobody writes to it
    numbers: tuple[int, ...]  # of the transmissions that are in it
    expires_s: float  # when it is no longer worth sending, by the sender's clock

    def on_the_wire(self) -> tuple[bytes, np.ndarray]:
        """Its header, and its numbers: the payload itself, if it is in order, and not a copy."""
        return encode(self.header), np.ascontiguousarray(self.payload, "<f4")

    def joined_by(self, later: Parcel) -> Parcel:
        """Updates are increments: two that go the same way with the same weight go as their sum."""
        ours, theirs = self.header, later.header
        updates = ours.updates + theirs.updates
        finished_s = (ours.updates * ours.finished_s + theirs.updates * theirs.finished_s) / updates
        return Parcel(
            ours._replace(updates=updates, finished_s=finished_s, to_epoch=theirs.to_epoch, offset_s=theirs.offset_s),
            self.payload + later.payload,
            self.numbers + later.numbers,
            max(self.expires_s, later.expires_s),
        )


class Outbox:
    """What waits for one neighbour. When it is full updates are summed up, and none is thrown away."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._updates: deque[Parcel] = deque()
        self._model: Parcel | None = None
        self._questions: deque[Parcel] = deque(maxlen=1)

    def __len__(self) -> int:
        return len(self._updates) + len(self._questions) + (self._model is not None)

    def put(self, parcel: Parcel) -> tuple[int, int] | None:
        """Returns (carrier, number) if the update was added to one that waits already."""
        if parcel.header.kind == Kind.ASK:
            self._questions.append(parcel)
        elif parcel.header.kind == Kind.MODEL:
            if self._model is None or parcel.header.number >= self._model.header.number:
                self._model = parcel  # a later hub's makes the one that waits useless; radios change their order
        elif len(self._updates) >= self._capacity:
            last = self._updates.pop()
            self._updates.append(last.joined_by(parcel))
            return last.header.number, parcel.header.number
        else:
            self._updates.append(parcel)
        return None

    def take(self) -> Parcel:
        """The next to be sent: questions and models first, as they are rare and others wait for them."""
        if self._questions:
            return self._questions.popleft()
        if self._model is not None:
            model, self._model = self._model, None
            return model
        return self._updates.popleft()
