"""How a peer uses Zenoh: what may be chosen, and what Zenoh is told."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dracofl.errors import ConfigError

if TYPE_CHECKING:
    from dracofl.runtime.certificates import Certificates

# How long a message may wait for a place in a link's queue before it is dropped: with Zenoh's own 1 ms and 50 ms,
# 600 KB do not get through a link of 20 Mbit/s. Together they stay below the lease, or a frozen peer stalls the others.
WAIT_S, WAIT_FRAGMENTS_S = 0.2, 1.0

_NETWORK = re.compile(r"[A-Za-z0-9_.-]{1,64}")
# No options after the address: Zenoh would let them overrule the certificates.
_ENDPOINT = re.compile(r"(?P<protocol>tcp|tls)/(?P<host>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9_.-]+):(?P<port>[0-9]{1,5})")
_OVERHEAD_BYTES = 65536  # room for what Zenoh adds to a message
_OURS = ["query", "reply", "declare_queryable", "liveliness_token", "declare_liveliness_subscriber", "liveliness_query"]


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
    max_waiting: int = 2  # messages for each user that may wait to be read; then the links are not read
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
        _rule("out", "egress", _OURS, "**"),
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
