"""Peers as hosts of their own: a network namespace each, and between them a relay of packets that loses some.

Each namespace has one TUN interface, whose other end is a file of this process: a thread reads packets there and hands
them on, later, never, or at a limited rate. Nothing else leads out of these namespaces. It needs root, `ip` and
/dev/net/tun, and no module of the kernel that shapes traffic.
"""

from __future__ import annotations

import contextlib
import fcntl
import heapq
import os
import random
import select
import shutil
import struct
import subprocess
import threading
import time
from types import TracebackType

_TUN = "/dev/net/tun"
_SET_INTERFACE = 0x400454CA
_PLAIN_TUN = 0x0001 | 0x1000  # IP packets, with nothing before them
_LONGEST_QUEUE_S = 0.2  # what would wait longer is dropped, as a router does


def why_not() -> str | None:
    """What is missing here, if anything."""
    if os.name != "posix" or os.geteuid() != 0:
        return "network namespaces need root"
    if shutil.which("ip") is None:
        return "there is no command ip (iproute2)"
    try:
        os.close(os.open(_TUN, os.O_RDWR))
    except OSError as error:
        return f"{_TUN} cannot be opened: {error.strerror}"
    name = f"draco-{os.getpid()}-try"
    if subprocess.run(["ip", "netns", "add", name], capture_output=True, check=False).returncode:
        return "network namespaces cannot be made here"
    _ip("netns", "del", name)
    return None


class Hosts:
    """How bad the network is may be changed at any time."""

    def __init__(self, users: int) -> None:
        self.loss = 0.0  # probability for each packet
        self.bytes_per_s: float | None = None  # in each direction between two hosts
        self.delay_s = 0.0
        self.forwarded = 0
        self.lost = 0
        self._users = users
        self._names = [f"draco-{os.getpid()}-{user}" for user in range(users)]
        self._files: list[int] = []
        self._cut: set[int] = set()
        self._free_at: dict[tuple[int, int], float] = {}
        self._on_the_way: list[tuple[float, int, int, bytes]] = []
        self._luck = random.Random(1)
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._forward, name="hosts", daemon=True)

    def listen(self, user: int) -> str:
        return f"tcp/{_address(user)}:7447"

    def connect(self, user: int) -> list[str]:
        return [f"tcp/{_address(other)}:7447" for other in range(self._users) if other != user]

    def command(self, user: int) -> list[str]:
        return ["ip", "netns", "exec", self._names[user]]

    def cut(self, *users: int) -> None:
        """Off from everybody: their packets go nowhere, and nobody is told."""
        self._cut.update(users)

    def heal(self, *users: int) -> None:
        self._cut.difference_update(users)

    def __enter__(self) -> Hosts:
        try:
            for user, name in enumerate(self._names):
                self._make_host(user, name)
        except BaseException:
            self._remove()
            raise
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ending.set()
        self._thread.join()
        self._remove()

    def _make_host(self, user: int, name: str) -> None:
        _ip("netns", "add", name)
        interface = f"dr{os.getpid()}-{user}"[:15]
        file = os.open(_TUN, os.O_RDWR | os.O_NONBLOCK)
        self._files.append(file)
        fcntl.ioctl(file, _SET_INTERFACE, struct.pack("16sH", interface.encode(), _PLAIN_TUN))
        _ip("link", "set", interface, "netns", name)
        _ip("-n", name, "addr", "add", f"{_address(user)}/24", "dev", interface)
        _ip("-n", name, "link", "set", interface, "up")
        _ip("-n", name, "link", "set", "lo", "up")

    def _remove(self) -> None:
        for file in self._files:
            os.close(file)
        for name in self._names:
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)

    def _forward(self) -> None:
        sender_of = {file: user for user, file in enumerate(self._files)}
        while not self._ending.is_set():
            wait_s = 0.05
            if self._on_the_way:
                wait_s = min(max(self._on_the_way[0][0] - time.monotonic(), 0.0), wait_s)
            readable, _, _ = select.select(self._files, [], [], wait_s)
            for file in readable:
                with contextlib.suppress(BlockingIOError):
                    self._take(sender_of[file], os.read(file, 2048))
            now = time.monotonic()
            while self._on_the_way and self._on_the_way[0][0] <= now:
                _, _, receiver, packet = heapq.heappop(self._on_the_way)
                with contextlib.suppress(OSError):  # its queue is full, or it is down
                    os.write(self._files[receiver], packet)

    def _take(self, sender: int, packet: bytes) -> None:
        receiver = packet[19] - 1 if packet[0] >> 4 == 4 else -1
        if not 0 <= receiver < self._users or {sender, receiver} & self._cut:
            return
        self.forwarded += 1
        now = time.monotonic()
        at = now
        if self.bytes_per_s is not None:
            at = max(self._free_at.get((sender, receiver), 0.0), now) + len(packet) / self.bytes_per_s
            if at - now > _LONGEST_QUEUE_S:
                self.lost += 1
                return
            self._free_at[sender, receiver] = at
        if self._luck.random() < self.loss:
            self.lost += 1
            return
        heapq.heappush(self._on_the_way, (at + self.delay_s, self.forwarded, receiver, packet))


def _address(user: int) -> str:
    return f"192.0.2.{user + 1}"  # of the range that is kept for examples


def _ip(*arguments: str) -> None:
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise OSError(f"ip {' '.join(arguments)}: {done.stderr.strip()}")
