"""Peers over Eclipse Zenoh: no server, no broker, no multicast.

    draco/<network>/to/<receiver>/from/<sender>   a message: a query with the message on it; its reply is the answer
    draco/<network>/alive/<user>/<epoch>          a liveliness token: there while the peer is

A `put` to a dead peer succeeds in silence, which is why messages are queries. With certificates, who may use which of
these keys is bound to the common name of the certificate: user 2 can neither send as user 1, nor receive or answer for
it, nor announce it. Callbacks run on threads of Zenoh's, so they only hand over.
"""

from __future__ import annotations

import ipaddress
import json
import re
import threading
import weakref
from contextlib import suppress
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Any

from dracofl.errors import ConfigError, DracoError
from dracofl.runtime.peer import Unanswered
from dracofl.runtime.transport import OnMember, OnMessage

if TYPE_CHECKING:
    from zenoh import LivelinessToken, Querier, Query, Sample, Session

    from dracofl.runtime.certificates import Certificates

# How long a message may wait for a place in a link's queue before it is dropped: with Zenoh's own 1 ms and 50 ms,
# 600 KB do not get through a link of 20 Mbit/s. Together they stay below the lease, or a frozen peer stalls the others.
WAIT_S, WAIT_FRAGMENTS_S = 0.2, 1.0

_NETWORK = re.compile(r"[A-Za-z0-9_.-]{1,64}")
# No options after the address: Zenoh would let them overrule the certificates.
_ENDPOINT = re.compile(r"(?P<protocol>tcp|tls)/(?P<host>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9_.-]+):(?P<port>[0-9]{1,5})")
_NUMBER = "(0|[1-9][0-9]*)"
_OVERHEAD_BYTES = 65536  # room for what Zenoh adds to a message
_SOURCE_LINE = re.compile(r" at [^\s\]]*\.rs:[0-9]+\.?")
_MESSAGES = [
    "put",
    "delete",
    "declare_subscriber",
    "query",
    "declare_queryable",
    "reply",
    "liveliness_token",
    "declare_liveliness_subscriber",
    "liveliness_query",
]


@dataclass(frozen=True, slots=True)
class ZenohOptions:
    network: str  # part of all keys: two networks on one LAN do not mix
    user: int
    users: int
    epoch: int
    listen: tuple[str, ...] = ()  # such as "tls/0.0.0.0:7447"
    connect: tuple[str, ...] = ()
    discovery: bool = True  # connect to everybody one hears of; otherwise to nobody but `connect`
    certificates: Certificates | None = None
    insecure: bool = False  # allow other machines without certificates
    lease_s: float = 2.0  # a peer that is silent for longer is gone
    max_message_bytes: int = 64 * 1024 * 1024
    max_waiting: int = 8  # messages of one sender that wait for our answer; more are let go unread
    queue_batches: int = 16  # of 64 KB each, in the queue of a link

    def __post_init__(self) -> None:
        problems = [*_problems(self), *_address_problems(self)]
        if problems:
            raise ConfigError(problems)


def _problems(options: ZenohOptions) -> list[str]:
    problems = []
    if _NETWORK.fullmatch(options.network) is None:
        problems.append(f"network = {options.network!r} must be 1 to 64 letters, digits, '_', '.' or '-'")
    if not 0 <= options.user < options.users:
        problems.append(f"user = {options.user} must be between 0 and users - 1 = {options.users - 1}")
    if options.epoch < 0:
        problems.append(f"epoch = {options.epoch} must be 0 or more")
    if not options.lease_s > WAIT_S + WAIT_FRAGMENTS_S:
        problems.append(
            f"lease_s = {options.lease_s} must be above {WAIT_S + WAIT_FRAGMENTS_S} s, the wait for a place"
        )
    if options.max_message_bytes < 1:
        problems.append(f"max_message_bytes = {options.max_message_bytes} must be 1 or more")
    if options.max_waiting < 1:
        problems.append(f"max_waiting = {options.max_waiting} must be 1 or more")
    if not 1 <= options.queue_batches <= 16:
        problems.append(f"queue_batches = {options.queue_batches} must be between 1 and 16")
    return problems


def _address_problems(options: ZenohOptions) -> list[str]:
    if not (options.listen or options.connect):
        return ["listen and connect are both empty: at least one must name an address, or nobody can be reached"]
    problems = []
    protocol = "tcp" if options.certificates is None else "tls"
    for name, endpoints in (("listen", options.listen), ("connect", options.connect)):
        for endpoint in endpoints:
            match = _ENDPOINT.fullmatch(endpoint)
            if match is None or int(match["port"]) > 65535:
                problems.append(f"{name}: {endpoint!r} is no address; one looks like '{protocol}/10.0.0.3:7447'")
            elif match["protocol"] != protocol:
                why = "with certificates it must be tls/..." if protocol == "tls" else "tls/... needs certificates"
                problems.append(f"{name}: {endpoint!r} cannot be used: {why}")
            elif protocol == "tcp" and not options.insecure and not _is_loopback(match["host"]):
                problems.append(
                    f"{name}: {endpoint!r} is open to other machines, and without certificates to anybody; "
                    "make some with `draco certs`, or say --insecure on a network you trust"
                )
    return problems


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False  # a name may lead anywhere


def configuration(options: ZenohOptions) -> dict[str, Any]:
    """What Zenoh is told. Connecting goes on in the background, again and again."""
    lease = round(1000 * options.lease_s)
    wait = {"wait_before_drop": _micro(WAIT_S), "max_wait_before_drop_fragments": _micro(WAIT_FRAGMENTS_S)}
    link: dict[str, Any] = {
        "protocols": ["tcp" if options.certificates is None else "tls"],
        "tx": {
            "lease": lease,
            "queue": {"size": {"data": options.queue_batches}, "congestion_control": {"drop": wait}},
        },
        "rx": {"max_message_size": options.max_message_bytes + _OVERHEAD_BYTES},
    }
    whole: dict[str, Any] = {
        "mode": "peer",
        "listen": {"endpoints": list(options.listen), "timeout_ms": 0, "exit_on_failure": True},
        "connect": {
            "endpoints": list(options.connect),
            "timeout_ms": -1,
            "exit_on_failure": False,
            "retry": {"period_init_ms": 200, "period_max_ms": 1000, "period_increase_factor": 2},
        },
        "scouting": {
            "multicast": {"enabled": False},
            "gossip": {"enabled": options.discovery, "autoconnect": {"peer": ["peer"] if options.discovery else []}},
        },
        "open": {"return_conditions": {"connect_scouted": False, "declares": False}},  # members are reported anyway
        "transport": {
            "unicast": {"open_timeout": 2 * lease, "accept_timeout": 2 * lease},  # so long a stranger can delay closing
            "shared_memory": {"enabled": False},
            "link": link,
        },
    }
    if options.certificates is not None:
        link["tls"] = _tls(options.certificates)
        whole["access_control"] = _access_control(options)
    return whole


def _micro(seconds: float) -> int:
    return round(1e6 * seconds)


def _tls(paths: Certificates) -> dict[str, Any]:
    return {
        "root_ca_certificate": str(paths.authority),
        "listen_certificate": str(paths.certificate),
        "listen_private_key": str(paths.key),
        "connect_certificate": str(paths.certificate),
        "connect_private_key": str(paths.key),
        "enable_mtls": True,
        # A certificate says who a device is, not where: its address may change, and who it is the access list checks.
        "verify_name_on_connect": False,
        "close_link_on_expiration": True,
    }


def _access_control(options: ZenohOptions) -> dict[str, Any]:
    """What comes in from a peer must be about itself; all else is denied. What goes out, the other side checks."""
    from dracofl.runtime.certificates import common_name

    prefix, me = f"draco/{options.network}", options.user
    rules = [
        _rule("out", "egress", _MESSAGES, "**"),
        _rule("look", "ingress", ["declare_liveliness_subscriber", "liveliness_query"], f"{prefix}/alive/**"),
    ]
    subjects: list[dict[str, Any]] = [{"id": "everybody"}]
    policies: list[dict[str, Any]] = [{"rules": ["out", "look"], "subjects": ["everybody"]}]
    for user in range(options.users):
        name = common_name(user)
        own = [
            _rule(f"{name} lives", "ingress", ["liveliness_token"], f"{prefix}/alive/{user}/*"),
            _rule(f"{name} sends", "ingress", ["query"], f"{prefix}/to/{me}/from/{user}"),
            _rule(f"{name} receives", "ingress", ["declare_queryable"], f"{prefix}/to/{user}/from/*"),
            _rule(f"{name} answers", "ingress", ["reply"], f"{prefix}/to/{user}/from/{me}"),
        ]
        rules += own
        subjects.append({"id": name, "cert_common_names": [name]})
        policies.append({"rules": [rule["id"] for rule in own], "subjects": [name]})
    return {"enabled": True, "default_permission": "deny", "rules": rules, "subjects": subjects, "policies": policies}


def _rule(name: str, flow: str, messages: list[str], keys: str) -> dict[str, Any]:
    return {"id": name, "permission": "allow", "flows": [flow], "messages": messages, "key_exprs": [keys]}


class ZenohTransport:
    """A `Transport`. The sender it gives `on_message` is the one in the key, which certificates prove."""

    def __init__(self, options: ZenohOptions) -> None:
        self._options = options
        self._prefix = f"draco/{options.network}"
        self._message_key = re.compile(re.escape(f"{self._prefix}/to/{options.user}/from/") + _NUMBER)
        self._member_key = re.compile(re.escape(f"{self._prefix}/alive/") + f"{_NUMBER}/{_NUMBER}")
        self._zenoh: ModuleType | None = None
        self._session: Session | None = None
        self._token: LivelinessToken | None = None
        self._queriers: dict[int, Querier] = {}  # by receiver: they know whether it is there
        self._waiting: dict[int, weakref.WeakSet[_Reply]] = {}  # by sender: what we owe an answer
        self._lock = threading.Lock()  # on the two above and on closing

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
        sender, limit = -1 if match is None else int(match[1]), self._options.max_message_bytes
        if not 0 <= sender < self._options.users or payload is None or len(payload) > limit:
            query.drop()  # type: ignore[no-untyped-call]
            return
        with self._lock:
            waiting = self._waiting.setdefault(sender, weakref.WeakSet())
            reply = None if len(waiting) >= self._options.max_waiting else _Reply(query, limit, waiting)
            if reply is not None:
                waiting.add(reply)
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
