"""Links between peers through a relay on the loopback interface: they can be cut, healed and made slow.

It forwards what TCP delivers, so it cannot lose packets. A cut link forwards nothing and closes nothing, as a cable
that was pulled: both ends find out by the lease.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Coroutine
from itertools import combinations
from types import TracebackType
from typing import Any

from real_peers.peers import free_ports

_CHUNK = 32 * 1024
_BUFFER = 64 * 1024  # small, so that the relay is no store of its own


class Relay:
    """One link for each two peers; the one that comes first connects, through it, to the other."""

    def __init__(self, users: int) -> None:
        pairs = list(combinations(range(users), 2))
        ports = free_ports(users + len(pairs))
        self._users = users
        self._listen = ports[:users]
        self._through = dict(zip(pairs, ports[users:], strict=True))
        self.bytes_per_s: float | None = None  # of each direction of a link; may be set at any time
        self._open: dict[tuple[int, int], asyncio.Event] = {}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="relay", daemon=True)
        self._tasks: set[asyncio.Task[None]] = set()
        self._servers: list[asyncio.Server] = []

    def listen(self, user: int) -> str:
        return f"tcp/127.0.0.1:{self._listen[user]}"

    def connect(self, user: int) -> list[str]:
        return [f"tcp/127.0.0.1:{port}" for (one, _), port in self._through.items() if one == user]

    def command(self, user: int) -> list[str]:
        return []

    def cut(self, user: int) -> None:
        """All links of this peer."""
        self._set_open(user, False)

    def heal(self, user: int) -> None:
        self._set_open(user, True)

    def __enter__(self) -> Relay:
        self._thread.start()
        self._do(self._serve())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._do(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _do(self, what: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(what, self._loop).result(timeout=30)

    def _set_open(self, user: int, is_open: bool) -> None:
        async def change() -> None:
            for pair, event in self._open.items():
                if user in pair:
                    (event.set if is_open else event.clear)()

        self._do(change())

    async def _serve(self) -> None:
        for pair, port in self._through.items():
            self._open[pair] = asyncio.Event()
            self._open[pair].set()
            listener = _small(socket.socket())
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(("127.0.0.1", port))
            target = self._listen[pair[1]]

            def accepted(
                reader: asyncio.StreamReader,
                writer: asyncio.StreamWriter,
                pair: tuple[int, int] = pair,
                target: int = target,
            ) -> None:
                task = asyncio.ensure_future(self._join(reader, writer, self._open[pair], target))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

            self._servers.append(await asyncio.start_server(accepted, sock=listener, limit=_BUFFER))

    async def _join(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, is_open: asyncio.Event, target: int
    ) -> None:
        await is_open.wait()
        there, there_writer = _small(socket.socket()), None
        there.setblocking(False)
        try:
            await asyncio.get_running_loop().sock_connect(there, ("127.0.0.1", target))
            there_reader, there_writer = await asyncio.open_connection(sock=there, limit=_BUFFER)
            pumps = {
                asyncio.ensure_future(self._pump(reader, there_writer, is_open)),
                asyncio.ensure_future(self._pump(there_reader, writer, is_open)),
            }
            try:
                await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for pump in pumps:
                    pump.cancel()
                await asyncio.gather(*pumps, return_exceptions=True)
        except OSError:  # that peer is down
            pass
        finally:
            for one in (writer, there_writer):
                if one is not None:
                    one.transport.abort()
            there.close()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, is_open: asyncio.Event) -> None:
        writer.transport.set_write_buffer_limits(high=_BUFFER)
        loop = asyncio.get_running_loop()
        free_at = loop.time()
        while data := await reader.read(_CHUNK):
            await is_open.wait()
            if self.bytes_per_s is not None:
                free_at = max(free_at, loop.time()) + len(data) / self.bytes_per_s
                await asyncio.sleep(free_at - loop.time())
            writer.write(data)
            await writer.drain()

    async def _end(self) -> None:
        for server in self._servers:
            server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


def _small(one: socket.socket) -> socket.socket:
    for option in (socket.SO_RCVBUF, socket.SO_SNDBUF):
        with contextlib.suppress(OSError):
            one.setsockopt(socket.SOL_SOCKET, option, _BUFFER)
    return one
