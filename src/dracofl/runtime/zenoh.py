"""Peers over Eclipse Zenoh: no server, no broker, no multicast.

    draco/<network>/to/<receiver>/from/<sender>   a message: a query with the message on it; its reply is the answer
    draco/<network>/alive/<user>/<epoch>          a liveliness token: there while the peer is

A `put` to a dead peer succeeds in silence, which is why messages are queries. With certificates, who may use which of
these keys is bound to the common name of the certificate: user 2 can neither send as user 1, nor receive or answer for
it, nor announce it. Callbacks run on threads of Zenoh's, so they only hand over.
"""

from __future__ import annotations

import json
import re
import threading
import weakref
from contextlib import suppress
from types import ModuleType
from typing import TYPE_CHECKING, Any

from dracofl.errors import ConfigError, DracoError
from dracofl.runtime.peer import Unanswered
from dracofl.runtime.transport import OnMember, OnMessage
from dracofl.runtime.zenoh_options import ZenohOptions, configuration

if TYPE_CHECKING:
    from zenoh import LivelinessToken, Querier, Query, Sample, Session


_NUMBER = "(0|[1-9][0-9]{0,19})"
_SOURCE_LINE = re.compile(r" at [^\s\]]*\.rs:[0-9]+\.?")


class ZenohTransport:
    """A `Transport`. The sender it gives `on_message` is the one in the key, which certificates prove."""

    def __init__(self, options: ZenohOptions) -> None:
        self.dropped = 0
        self._options = options
        self._prefix = f"draco/{options.network}"
        self._message_key = re.compile(re.escape(f"{self._prefix}/to/{options.user}/from/") + _NUMBER)
        self._member_key = re.compile(re.escape(f"{self._prefix}/alive/") + f"{_NUMBER}/{_NUMBER}")
        self._zenoh: ModuleType | None = None
        self._session: Session | None = None
        self._token: LivelinessToken | None = None
        self._queriers: dict[int, Querier] = {}  # by receiver: they know whether it is there
        self._waiting: dict[int, weakref.WeakSet[_Reply]] = {}  # by sender: what we owe an answer
        self._lock = threading.Lock()  # on the two above, on what was dropped and on closing

    def open(self, on_message: OnMessage, on_member: OnMember) -> None:
        options = self._options
        self._zenoh = zenoh = _import_zenoh()
        if options.certificates is not None:
            from dracofl.runtime.certificates import check

            check(options.certificates, options.user)
        try:
            session = zenoh.open(zenoh.Config.from_json5(json.dumps(configuration(options))))
        except zenoh.ZError as error:
            reason = _SOURCE_LINE.sub("", str(error))
            where = ", ".join((*options.listen, *options.connect))
            raise ConfigError(f"cannot go on the network at {where}: {reason}") from error
        self._session = session
        for receiver in range(options.users):
            if receiver != options.user:
                self._queriers[receiver] = session.declare_querier(self._key_to(receiver))
        session.declare_queryable(
            f"{self._prefix}/to/{options.user}/from/*",
            lambda query: self._take(query, on_message),
            complete=True,  # of two that claim to be one user, a message goes to one
            allowed_origin=zenoh.Locality.REMOTE,
        )
        session.liveliness().declare_subscriber(
            f"{self._prefix}/alive/*/*", lambda sample: self._notice(sample, on_member), history=True
        )
        # last: who sees it may send at once
        self._token = session.liveliness().declare_token(f"{self._prefix}/alive/{options.user}/{options.epoch}")

    def send(self, receiver: int, data: bytes, timeout_s: float) -> bytes | Unanswered:
        """UNREACHABLE is certain: it was not sent at all. Whatever else may have arrived, so it counts as TIMEOUT."""
        session, zenoh = self._session, self._zenoh
        if session is None or zenoh is None:
            return Unanswered.UNREACHABLE
        _check_size(data, self._options.max_message_bytes)
        status: Any = self._queriers[receiver].matching_status  # an object, whatever its type hint says
        if not status.matching:
            return Unanswered.UNREACHABLE
        try:
            replies = session.get(
                self._key_to(receiver),
                payload=data,
                timeout=timeout_s,
                consolidation=zenoh.ConsolidationMode.NONE,  # the first one at once
                congestion_control=zenoh.CongestionControl.DROP,
                allowed_destination=zenoh.Locality.REMOTE,
            )
        except zenoh.ZError:  # closed by another thread
            return Unanswered.UNREACHABLE
        for reply in replies:
            return Unanswered.TIMEOUT if reply.ok is None else reply.ok.payload.to_bytes()
        return Unanswered.TIMEOUT  # it went away without an answer, perhaps with the message

    def close(self) -> None:
        with self._lock:
            session, token = self._session, self._token
            self._session = self._token = None
        if token is not None:
            token.undeclare()  # type: ignore[no-untyped-call]  # at once: a half-open connection can hold up the rest
        if session is not None:
            session.close()  # type: ignore[no-untyped-call]

    def _key_to(self, receiver: int) -> str:
        return f"{self._prefix}/to/{receiver}/from/{self._options.user}"

    def _take(self, query: Query, on_message: OnMessage) -> None:
        match, payload = self._message_key.fullmatch(str(query.key_expr)), query.payload
        options, sender = self._options, -1 if match is None else int(match[1])
        limit, is_other = options.max_message_bytes, 0 <= sender < options.users and sender != options.user
        if not is_other or payload is None or len(payload) > limit:
            with self._lock:
                self.dropped += 1
            query.drop()  # type: ignore[no-untyped-call]
            return
        with self._lock:
            waiting = self._waiting.setdefault(sender, weakref.WeakSet())
            reply = None if len(waiting) >= options.max_waiting else _Reply(query, limit, waiting)
            if reply is not None:
                waiting.add(reply)
            else:
                self.dropped += 1
        if reply is None:
            query.drop()  # type: ignore[no-untyped-call]
        else:
            on_message(sender, payload.to_bytes(), reply)

    def _notice(self, sample: Sample, on_member: OnMember) -> None:
        match, zenoh = self._member_key.fullmatch(str(sample.key_expr)), self._zenoh
        if match is None or zenoh is None:
            return
        user, epoch = int(match[1]), int(match[2])
        if user < self._options.users and (user, epoch) != (self._options.user, self._options.epoch):
            on_member(user, epoch, sample.kind == zenoh.SampleKind.PUT)


class _Reply:
    """Answers a query, from any thread. If it is forgotten instead, the query ends and the sender knows at once."""

    __slots__ = ("__weakref__", "_limit", "_query", "_waiting")

    def __init__(self, query: Query, limit: int, waiting: weakref.WeakSet[_Reply]) -> None:
        self._query: Query | None = query  # Zenoh ends a query when the last who holds it lets go
        self._limit = limit
        self._waiting = waiting

    def __call__(self, data: bytes) -> None:
        _check_size(data, self._limit)
        query, self._query = self._query, None
        self._waiting.discard(self)
        if query is None:
            raise RuntimeError("a message is answered once")
        # closed in the meantime: the sender has seen it
        with suppress(_import_zenoh().ZError), query:
            query.reply(query.key_expr, data)


def _check_size(data: bytes, limit: int) -> None:
    """Zenoh would drop it without a word at the other end."""
    if len(data) > limit:
        raise DracoError(f"a message of {len(data)} bytes is larger than max_message_bytes = {limit}")


def _import_zenoh() -> ModuleType:
    try:
        import zenoh
    except ImportError as error:
        raise DracoError("peers need the package eclipse-zenoh: pip install 'dracofl[net]'") from error
    return zenoh
