"""Peers in one process and in virtual time: the in-memory twin of a real network.

Training takes no time, a message arrives when the radio in software says so, and what happens next is the earliest on
one heap. The same `Peer` objects run here as in a process of their own, so what holds here is about them.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Protocol

import numpy as np

from dracofl.protocol.commands import Happening
from dracofl.protocol.headers import Kind
from dracofl.runtime.parcel import Parcel
from dracofl.runtime.peer import Peer

_MODELS, _PERIODS, _OTHERS = 0, 1, 2  # at one instant: hubs' models first, then ends of periods, as in a simulation


class LocalUpdate(Protocol):
    def __call__(self, model: np.ndarray, user: int, number: int) -> np.ndarray: ...


class VirtualNetwork:
    def __init__(self, local_update: LocalUpdate) -> None:
        self.peers: dict[int, Peer] = {}
        self.now_s = 0.0
        self._local_update = local_update
        self._heap: list[tuple[float, int, int, Callable[[], None]]] = []
        self._serial = 0
        self._timers: dict[tuple[int, Happening], int] = {}  # the serial number of the one that counts

    def ports_of(self, user: int) -> _Ports:
        return _Ports(self, user)

    def start(self, epoch: int) -> None:
        """Everybody sees everybody, and then they begin."""
        for user, peer in self.peers.items():
            for other in self.peers:
                if other != user:
                    peer.member_came(other, epoch, 0.0)
        self.run(until_s=0.0, inclusive=True)
        for peer in self.peers.values():
            peer.start(0.0)

    def run(self, until_s: float, inclusive: bool = False) -> None:
        """What happens before this time, or up to it."""
        heap = self._heap
        while heap and (heap[0][0] < until_s or (inclusive and heap[0][0] == until_s)):
            self.now_s, _, _, act = heapq.heappop(heap)
            act()
        self.now_s = until_s

    def at(self, time_s: float, priority: int, act: Callable[[], None]) -> int:
        self._serial += 1
        heapq.heappush(self._heap, (time_s, priority, self._serial, act))
        return self._serial

    def set_timer(self, user: int, happening: Happening, at_s: float) -> None:
        def ring() -> None:
            if self._timers.get((user, happening)) == serial:
                del self._timers[user, happening]
                self.peers[user].timer(happening, self.now_s)

        priority = _PERIODS if happening == Happening.PERIOD_ENDED else _OTHERS
        serial = self._timers[user, happening] = self.at(at_s, priority, ring)

    def train(self, user: int, number: int, model: np.ndarray) -> None:
        self.peers[user].trained(self._local_update(model, user, number), self.now_s)

    def post(self, parcel: Parcel, at_s: float) -> None:
        def deliver() -> None:
            sender, receiver = self.peers[parcel.header.sender], self.peers[parcel.header.receiver]
            header, numbers = parcel.on_the_wire()
            answer = receiver.message(header, numbers.tobytes(), self.now_s)
            sender.answered(parcel, answer, self.now_s, self.now_s)

        self.at(at_s, _MODELS if parcel.header.kind == Kind.MODEL else _OTHERS, deliver)


class _Ports:
    def __init__(self, network: VirtualNetwork, user: int) -> None:
        self._network = network
        self._user = user

    def set_timer(self, happening: Happening, at_s: float) -> None:
        self._network.set_timer(self._user, happening, at_s)

    def train(self, number: int, model: np.ndarray) -> None:
        self._network.train(self._user, number, model)

    def post(self, parcel: Parcel, at_s: float) -> None:
        self._network.post(parcel, at_s)
