"""Peers over Eclipse Zenoh: no server, no broker, no multicast.

    draco/<network>/to/<receiver>/from/<sender>   a message: a query with the header as its attachment and the numbers
                                                  as its payload; its reply is the answer
    draco/<network>/alive/<user>/<epoch>          a liveliness token: there while the peer is

A `put` to a dead peer succeeds in silence, which is why messages are queries. With certificates, who may use which of
these keys is bound to the common name of the certificate: user 2 can neither send as user 1, nor receive or answer for
it, nor announce it. Messages are taken in by a thread of ours, out of a short queue: when it is full Zenoh reads no
more from the links, and senders have to wait.
"""

from __future__ import annotations

import json
import os
import re
import threading
from types import ModuleType
from typing import TYPE_CHECKING, Any

from dracofl.errors import ConfigError, DracoError
from dracofl.runtime.threads import Readers
from dracofl.runtime.transport import OnMember, OnMessage, Unanswered
from dracofl.runtime.zenoh_options import ZenohOptions, configuration

if TYPE_CHECKING:
    import numpy as np
    from zenoh import LivelinessToken, Querier, Query, Sample, Session, ZBytes

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
        self._readers: Readers[Query] | None = None
        self._prepared: tuple[np.ndarray, ZBytes] | None = None  # numbers that were sent, and Zenoh's copy of them
        self._lock = threading.Lock()  # on what was dropped, on what is prepared and on closing

    def open(self, on_message: OnMessage, on_member: OnMember) -> None:
        options = self._options
        self._zenoh = zenoh = _import_zenoh()
        if options.certificates is not None:
            from dracofl.runtime.certificates import check

            check(options.certificates, options.user)
        have_threads(options.users)
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
        queries = session.declare_queryable(
            f"{self._prefix}/to/{options.user}/from/*",
            zenoh.handlers.FifoChannel(options.max_waiting * options.users),
            complete=True,  # of two that claim to be one user, a message goes to one
            allowed_origin=zenoh.Locality.REMOTE,
        )
        self._readers = Readers(queries, lambda query: self._take(query, on_message))
        session.liveliness().declare_subscriber(
            f"{self._prefix}/alive/*/*", lambda sample: self._notice(sample, on_member), history=True
        )
        # last: who sees it may send at once
        self._token = session.liveliness().declare_token(f"{self._prefix}/alive/{options.user}/{options.epoch}")

    def send(self, receiver: int, header: bytes, numbers: np.ndarray, timeout_s: float) -> bytes | Unanswered:
        """UNREACHABLE is certain: it was not sent at all. Whatever else may have arrived, so it counts as TIMEOUT."""
        session, zenoh = self._session, self._zenoh
        if session is None or zenoh is None:
            return Unanswered.UNREACHABLE
        _check_size(len(header) + numbers.nbytes, self._options.max_message_bytes)
        status: Any = self._queriers[receiver].matching_status  # an object, whatever its type hint says
        if not status.matching:
            return Unanswered.UNREACHABLE
        try:
            replies = session.get(
                self._key_to(receiver),
                payload=self._prepare(numbers),
                attachment=header,
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

    def _prepare(self, numbers: np.ndarray) -> ZBytes:
        """The same numbers go to all neighbours, and to one more than once (transmit.backlog = "latest"): they are
        copied once, as long as nothing else was sent in between."""
        with self._lock:
            if self._prepared is None or self._prepared[0] is not numbers:
                assert self._zenoh is not None
                self._prepared = numbers, self._zenoh.ZBytes(numbers.tobytes())
            return self._prepared[1]

    def close(self) -> None:
        with self._lock:
            session, token = self._session, self._token
            self._session = self._token = None
        if token is not None:
            token.undeclare()  # type: ignore[no-untyped-call]  # at once: a half-open connection can hold up the rest
        if session is not None:
            session.close()  # type: ignore[no-untyped-call]
        if self._readers is not None:
            self._readers.join()

    def _key_to(self, receiver: int) -> str:
        return f"{self._prefix}/to/{receiver}/from/{self._options.user}"

    def _take(self, query: Query, on_message: OnMessage) -> None:
        assert self._zenoh is not None
        try:
            with query:  # one that is left without a reply ends, and its sender knows at once
                answer = self._answer_to(query, on_message)
                if answer is not None:
                    query.reply(query.key_expr, answer)
        except self._zenoh.ZError:  # closed in the meantime: the sender has seen it
            pass
        except Exception:  # whatever is wrong with one message, the next one is taken
            self._drop()

    def _answer_to(self, query: Query, on_message: OnMessage) -> bytes | None:
        match, options = self._message_key.fullmatch(str(query.key_expr)), self._options
        header, numbers = query.attachment, query.payload
        sender = -1 if match is None else int(match[1])
        is_other = 0 <= sender < options.users and sender != options.user
        parts = [part for part in (header, numbers) if part is not None]
        if not is_other or not parts or sum(map(len, parts)) > options.max_message_bytes:
            self._drop()
            return None
        return on_message(sender, header.to_bytes() if header else b"", numbers.to_bytes() if numbers else b"")

    def _drop(self) -> None:
        with self._lock:
            self.dropped += 1

    def _notice(self, sample: Sample, on_member: OnMember) -> None:
        match, zenoh = self._member_key.fullmatch(str(sample.key_expr)), self._zenoh
        if match is None or zenoh is None:
            return
        user, epoch = int(match[1]), int(match[2])
        if user < self._options.users and (user, epoch) != (self._options.user, self._options.epoch):
            on_member(user, epoch, sample.kind == zenoh.SampleKind.PUT)


def have_threads(users: int) -> None:
    # Zenoh lets a link that went silent linger for 10 s, and one of its receiving threads with it. It has two: with two
    # neighbours cut off, nobody would be heard. So there is one for each, and some to spare.
    os.environ.setdefault("ZENOH_RUNTIME", f"(rx: (worker_threads: {min(users, 64) + 2}))")


def _check_size(size: int, limit: int) -> None:
    """Zenoh would drop it without a word at the other end."""
    if size > limit:
        raise DracoError(f"a message of {size} bytes is larger than max_message_bytes = {limit}")


def _import_zenoh() -> ModuleType:
    try:
        import zenoh
    except ImportError as error:
        raise DracoError("peers need the package eclipse-zenoh: pip install 'dracofl[net]'") from error
    return zenoh
