"""Real Zenoh sessions over loopback, several in one process."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import zenoh

from dracofl.runtime.transport import OnMessage, Transport, Unanswered
from dracofl.runtime.zenoh import ZenohTransport
from dracofl.runtime.zenoh_options import ZenohOptions

USERS = 5
A_WHILE_S = 0.4  # in which what is allowed would have happened many times over


def free_endpoint(protocol: str = "tcp") -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"{protocol}/127.0.0.1:{probe.getsockname()[1]}"


def until(condition: Callable[[], object], timeout_s: float = 5.0) -> bool:
    end = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.005)
    return True


def answer_size(sender: int, header: bytes, numbers: bytes) -> bytes | None:
    return b"%d bytes of %d" % (len(header) + len(numbers), sender)


@dataclass
class Node:
    transport: Transport
    endpoint: str
    members: dict[int, int] = field(default_factory=dict)
    heard: list[tuple[int, bytes]] = field(default_factory=list)

    def open(self, answer: OnMessage) -> Node:
        def on_message(sender: int, header: bytes, numbers: bytes) -> bytes | None:
            self.heard.append((sender, header + numbers))
            return answer(sender, header, numbers)

        def on_member(user: int, epoch: int, there: bool) -> None:
            if there:
                self.members[user] = epoch
            elif self.members.get(user) == epoch:
                del self.members[user]

        self.transport.open(on_message, on_member)
        return self

    def send(self, receiver: int, data: bytes, timeout_s: float = 2.0) -> bytes | Unanswered:
        return self.transport.send(receiver, b"", np.frombuffer(data, np.uint8), timeout_s)


class Net:
    """Opens nodes and closes them again. The first one is the seed of those after it."""

    def __init__(self) -> None:
        self.seed: tuple[str, ...] = ()
        self.opened: list[Any] = []

    def options(self, user: int, **changes: Any) -> ZenohOptions:
        listen = (free_endpoint("tcp" if changes.get("certificates") is None else "tls"),)
        usual = {"network": "test", "users": USERS, "epoch": 1, "listen": listen, "connect": self.seed, "lease_s": 1.25}
        return ZenohOptions(user=user, **usual | changes)  # type: ignore[arg-type]

    def node(self, user: int, answer: OnMessage = answer_size, **changes: Any) -> Node:
        options = self.options(user, **changes)
        transport = ZenohTransport(options)
        self.opened.append(transport)
        node = Node(transport, options.listen[0]).open(answer)
        self.seed = self.seed or (node.endpoint,)
        return node

    def raw(self, settings: dict[str, Any]) -> zenoh.Session:
        """A session that does not keep to any rule of ours."""
        session = zenoh.open(zenoh.Config.from_json5(json.dumps(settings)))
        self.opened.append(session)
        return session
