"""From a core's wish to send to parcels: what the radio in software lets through, their headers, and the journal."""

from __future__ import annotations

import math

import numpy as np

from dracofl.channels.interface import Delivery, Medium
from dracofl.protocol.commands import AskForModel, SendModel, SendUpdate
from dracofl.protocol.headers import Header, Kind
from dracofl.protocol.peer import PeerCore
from dracofl.runtime.journal import Journal
from dracofl.runtime.offsets import Offsets
from dracofl.runtime.parcel import Parcel
from dracofl.runtime.ports import Limits, Ports
from dracofl.runtime.transport import Unanswered
from dracofl.types import Fate

_AT_ONCE = Delivery(0.0)


class Outgoing:
    def __init__(
        self,
        core: PeerCore,
        medium: Medium | None,
        limits: Limits,
        offsets: Offsets,
        ports: Ports,
        journal: Journal,
    ) -> None:
        self._core = core
        self._medium = medium
        self._limits = limits
        self._offsets = offsets
        self._ports = ports
        self._journal = journal

    def send_update(self, send: SendUpdate, payload: np.ndarray, now_s: float) -> None:
        assert send.weights is not None  # "delivered" is refused between real peers
        airtime_s, deliveries = self._transmit("update", send.number, send.receivers, send.payload_bytes, now_s)
        members = self._core.state.members
        outcomes, parcels = [], []
        for receiver, weight, delivery in zip(send.receivers, send.weights, deliveries, strict=True):
            fate, reason = delivery.fate, delivery.reason
            if fate is None and receiver not in members:
                fate, reason = Fate.LOST, Unanswered.UNREACHABLE.value
            outcomes.append([receiver, weight, members.get(receiver, 0), "" if fate is None else fate.value, reason])
            if fate is None:
                header = self._header(Kind.UPDATE, receiver, send.number, now_s)._replace(
                    updates=send.updates, weight=weight, finished_s=send.finished_s, length=len(payload)
                )
                parcel = Parcel(header, payload, (send.number,), now_s + self._limits.deadline_s)
                parcels.append((parcel, delivery.delay_s))
        self._journal.write(
            "sent",
            now_s,
            send.number,
            send.updates,
            send.finished_s,
            send.payload_bytes,
            airtime_s,
            outcomes,
        )
        for parcel, delay_s in parcels:
            self._ports.post(parcel, now_s + delay_s)

    def send_model(self, send: SendModel, payload: np.ndarray, now_s: float) -> None:
        receivers = send.receivers
        airtime_s, deliveries = 0.0, [_AT_ONCE] * len(receivers)
        if not send.reliable:
            airtime_s, deliveries = self._transmit("model", send.period, receivers, send.payload_bytes, now_s)
        word = "unified" if send.hub == self._core.user else "relayed"
        members = self._core.state.members
        self._journal.write(word, now_s, send.hub, send.period, send.payload_bytes, airtime_s)
        for receiver, delivery in zip(receivers, deliveries, strict=True):
            if delivery.fate is None and receiver in members:
                header = self._header(Kind.MODEL, receiver, send.period, now_s)
                header = header._replace(hub=send.hub, weight=1.0, length=len(payload))
                parcel = Parcel(header, payload, (send.period,), math.inf)
                self._ports.post(parcel, now_s + delivery.delay_s)

    def ask(self, ask: AskForModel, now_s: float) -> None:
        header = self._header(Kind.ASK, ask.neighbour, ask.unified_period, now_s)
        self._ports.post(Parcel(header, np.zeros(0, np.float32), (), math.inf), now_s)

    def _header(self, kind: Kind, receiver: int, number: int, now_s: float) -> Header:
        state, user = self._core.state, self._core.user
        return Header(
            kind,
            user,
            receiver,
            state.epoch,
            state.members.get(receiver, 0),
            number,
            updates=0,
            hub=user,
            weight=0.0,
            finished_s=now_s,
            sent_s=now_s,
            offset_s=self._offsets.of(receiver),
            length=0,
            shape=self._limits.shape,
        )

    def _transmit(
        self, content: str, index: int, receivers: tuple[int, ...], size: int, now_s: float
    ) -> tuple[float, list[Delivery]]:
        if self._medium is None:
            return 0.0, [_AT_ONCE] * len(receivers)
        return self._medium.transmit(content, self._core.user, index, receivers, size, now_s)
