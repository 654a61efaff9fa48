"""Real Zenoh sessions over loopback, several in one process."""

from __future__ import annotations

import builtins
import json
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("zenoh")
pytest.importorskip("cryptography")

import zenoh

from dracofl.errors import ConfigError, DracoError
from dracofl.runtime.certificates import Certificates, create_authority, issue
from dracofl.runtime.peer import Unanswered
from dracofl.runtime.transport import Reply, Transport
from dracofl.runtime.zenoh import ZenohTransport
from dracofl.runtime.zenoh_options import ZenohOptions, configuration

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


def answer_size(sender: int, data: bytes, reply: Reply) -> None:
    reply(b"%d bytes of %d" % (len(data), sender))


@dataclass
class Node:
    transport: Transport
    endpoint: str
    members: dict[int, int] = field(default_factory=dict)
    heard: list[tuple[int, bytes]] = field(default_factory=list)

    def open(self, act: Callable[[int, bytes, Reply], None]) -> Node:
        def on_message(sender: int, data: bytes, reply: Reply) -> None:
            self.heard.append((sender, data))
            act(sender, data, reply)

        def on_member(user: int, epoch: int, there: bool) -> None:
            if there:
                self.members[user] = epoch
            elif self.members.get(user) == epoch:
                del self.members[user]

        self.transport.open(on_message, on_member)
        return self

    def send(self, receiver: int, data: bytes, timeout_s: float = 2.0) -> bytes | Unanswered:
        return self.transport.send(receiver, data, timeout_s)


class Net:
    """Opens nodes and closes them again. The first one is the seed of those after it."""

    def __init__(self) -> None:
        self.seed: tuple[str, ...] = ()
        self.opened: list[Any] = []

    def options(self, user: int, **changes: Any) -> ZenohOptions:
        listen = (free_endpoint("tcp" if changes.get("certificates") is None else "tls"),)
        usual = {"network": "test", "users": USERS, "epoch": 1, "listen": listen, "connect": self.seed, "lease_s": 1.25}
        return ZenohOptions(user=user, **usual | changes)  # type: ignore[arg-type]

    def node(self, user: int, act: Callable[[int, bytes, Reply], None] = answer_size, **changes: Any) -> Node:
        options = self.options(user, **changes)
        transport = ZenohTransport(options)
        self.opened.append(transport)
        node = Node(transport, options.listen[0]).open(act)
        self.seed = self.seed or (node.endpoint,)
        return node

    def raw(self, settings: dict[str, Any]) -> zenoh.Session:
        """A session that does not keep to any rule of ours."""
        session = zenoh.open(zenoh.Config.from_json5(json.dumps(settings)))
        self.opened.append(session)
        return session


@pytest.fixture
def net() -> Iterator[Net]:
    net = Net()
    yield net
    for opened in net.opened:
        opened.close()


def test_members_are_seen_and_messages_answered(net: Net) -> None:
    first, second = net.node(0, epoch=7), net.node(3, epoch=9)
    assert until(lambda: first.members == {3: 9} and second.members == {0: 7})  # not themselves
    assert second.send(0, b"hello") == b"5 bytes of 3"
    assert first.send(3, b"") == b"0 bytes of 0"
    assert first.heard == [(3, b"hello")]


def test_large_messages_go_both_ways_and_are_the_same(net: Net) -> None:
    data = bytes(range(250)) * 2400
    first, second = net.node(0, lambda _, data, reply: reply(data[::-1])), net.node(1)
    assert until(lambda: 0 in second.members)
    assert second.send(0, data) == data[::-1]
    assert first.heard == [(1, data)]


def test_timeout_and_unreachable_are_told_apart(net: Net) -> None:
    kept: list[Reply] = []
    net.node(0, lambda _sender, _data, reply: kept.append(reply))
    second = net.node(1)
    assert until(lambda: 0 in second.members)

    begin = time.monotonic()
    assert second.send(4, b"to nobody") == Unanswered.UNREACHABLE
    assert time.monotonic() - begin < 0.1
    assert second.send(0, b"to one who never answers", timeout_s=0.3) == Unanswered.TIMEOUT
    assert 0.25 < time.monotonic() - begin < 1
    kept.pop()(b"too late to be of use, and no error")


def test_what_is_let_go_without_an_answer_ends_at_once_and_may_have_arrived(net: Net) -> None:
    first, second = net.node(0, lambda *_: None), net.node(1)
    assert until(lambda: 0 in second.members)
    begin = time.monotonic()
    assert second.send(0, b"x", timeout_s=5) == Unanswered.TIMEOUT
    assert time.monotonic() - begin < 1
    assert first.heard == [(1, b"x")]


def test_an_answer_may_come_later_from_another_thread_but_only_once(net: Net) -> None:
    errors: list[Exception] = []

    def answer_twice(reply: Reply) -> None:
        reply(b"later")
        try:
            reply(b"again")
        except RuntimeError as error:
            errors.append(error)

    net.node(0, lambda _sender, _data, reply: threading.Timer(0.05, answer_twice, (reply,)).start())
    second = net.node(1)
    assert until(lambda: 0 in second.members)
    assert second.send(0, b"x") == b"later"
    assert until(lambda: errors)


def test_one_that_does_not_answer_holds_up_nobody_else(net: Net) -> None:
    kept: list[Reply] = []
    net.node(0, lambda _sender, _data, reply: kept.append(reply))
    net.node(1)
    sender = net.node(2)
    assert until(lambda: {0, 1} <= set(sender.members))
    answers: list[object] = []
    slow = threading.Thread(target=lambda: answers.append(sender.send(0, b"x", timeout_s=1)))
    slow.start()
    assert until(lambda: kept)
    assert all(sender.send(1, b"y" * 100_000) == b"100000 bytes of 2" for _ in range(20))
    assert answers == []
    kept[0](b"at last")
    slow.join()
    assert answers == [b"at last"]


def test_who_closes_is_gone_at_once_and_comes_back_with_a_new_epoch(net: Net) -> None:
    kept: list[Reply] = []
    first = net.node(0, lambda _sender, _data, reply: kept.append(reply))
    second = net.node(1)
    assert until(lambda: 0 in second.members)
    answers: list[object] = []
    waits = threading.Thread(target=lambda: answers.append(second.send(0, b"x", timeout_s=5)))
    waits.start()
    assert until(lambda: kept)
    first.transport.close()
    assert until(lambda: second.members == {}, timeout_s=1)
    waits.join(timeout=1)
    assert answers == [Unanswered.TIMEOUT]  # it was there, and nobody can tell whether it counted
    assert second.send(0, b"x") == Unanswered.UNREACHABLE
    kept.pop()(b"an answer from a closed peer is nothing")
    first.transport.close()  # once more is nothing either
    assert first.send(1, b"x") == Unanswered.UNREACHABLE

    net.node(0, listen=(first.endpoint,), connect=(), epoch=2)
    assert until(lambda: second.members == {0: 2})
    assert second.send(0, b"back") == b"4 bytes of 1"


def test_a_stranger_who_says_nothing_cannot_hide_that_a_peer_leaves(net: Net) -> None:
    first, second = net.node(0), net.node(1)
    assert until(lambda: 0 in second.members)
    with socket.create_connection(("127.0.0.1", int(first.endpoint.rpartition(":")[2]))):
        time.sleep(0.1)
        closing = threading.Thread(target=first.transport.close)
        closing.start()
        assert until(lambda: second.members == {}, timeout_s=1)
    closing.join(timeout=1)  # the stranger has gone
    assert not closing.is_alive()


def test_who_is_seen_can_be_sent_to_at_once(net: Net) -> None:
    first = net.node(0)
    answers: list[object] = []

    def greet(user: int, _epoch: int, there: bool) -> None:
        if there:
            threading.Thread(target=lambda: answers.append(watcher.send(user, b"hi", 2.0))).start()

    watcher = ZenohTransport(net.options(1))
    net.opened.append(watcher)
    watcher.open(answer_size, greet)
    for epoch in range(2, 7):
        assert until(lambda before=epoch - 1: len(answers) == before)
        first.transport.close()
        first = net.node(0, listen=(first.endpoint,), connect=(), epoch=epoch)
    assert until(lambda: len(answers) == 6)
    assert answers == [b"2 bytes of 1"] * 6


def test_one_seed_is_enough_for_a_full_mesh(net: Net) -> None:
    nodes = [net.node(user) for user in range(USERS)]
    everybody = set(range(USERS))
    assert until(lambda: all(set(node.members) == everybody - {user} for user, node in enumerate(nodes)))
    for user, node in enumerate(nodes):
        for other in everybody - {user}:
            assert node.send(other, b"x") == b"1 bytes of %d" % user
    nodes[0].transport.close()  # the seed is not needed any more
    assert until(lambda: 0 not in nodes[1].members)
    assert nodes[1].send(4, b"x") == b"1 bytes of 1"


def test_without_discovery_only_the_listed_neighbours_are_seen(net: Net) -> None:
    middle, left, right = (net.node(user, discovery=False) for user in (0, 1, 2))
    assert until(lambda: set(middle.members) == {1, 2})
    time.sleep(A_WHILE_S)
    assert set(left.members) == set(right.members) == {0}
    assert left.send(2, b"x") == Unanswered.UNREACHABLE
    assert left.send(0, b"x") == b"1 bytes of 1"


def test_a_seed_that_comes_later_is_found(net: Net) -> None:
    seed = free_endpoint()
    early = net.node(1, connect=(seed,))
    time.sleep(0.3)
    assert early.send(0, b"x") == Unanswered.UNREACHABLE
    net.node(0, listen=(seed,), connect=())
    assert until(lambda: early.members == {0: 1})


def test_two_networks_do_not_mix(net: Net) -> None:
    first, second = net.node(0), net.node(1)
    other = net.node(0, network="other")
    stranger = net.node(2, network="other")
    assert until(lambda: 2 in other.members and 1 in first.members)
    assert set(first.members) == {1}
    assert set(stranger.members) == {0}
    assert stranger.send(0, b"x") == b"1 bytes of 2"
    assert stranger.send(1, b"x") == Unanswered.UNREACHABLE
    assert first.heard == second.heard == []


def test_messages_that_are_too_large_are_refused_aloud(net: Net) -> None:
    net.node(0)
    second = net.node(1, max_message_bytes=1000)
    assert until(lambda: 0 in second.members)
    with pytest.raises(DracoError, match="1001 bytes is larger than max_message_bytes = 1000"):
        second.send(0, bytes(1001))
    assert second.send(0, bytes(1000)) == b"1000 bytes of 1"


def test_a_flood_from_one_sender_is_let_go(net: Net) -> None:
    kept: list[Reply] = []
    first = net.node(0, lambda _sender, _data, reply: kept.append(reply), max_waiting=2)
    second, third = net.node(1), net.node(2)
    assert until(lambda: {0} <= set(second.members) & set(third.members))
    for _ in range(3):
        assert second.send(0, b"x", timeout_s=0.1) == Unanswered.TIMEOUT
    assert third.send(0, b"y", timeout_s=0.1) == Unanswered.TIMEOUT
    assert first.heard == [(1, b"x"), (1, b"x"), (2, b"y")]
    kept.clear()
    assert second.send(0, b"z", timeout_s=0.1) == Unanswered.TIMEOUT
    assert first.heard[-1] == (1, b"z")


def test_keys_that_are_not_ours_reach_nobody(net: Net) -> None:
    first = net.node(0)
    raw = net.raw(configuration(net.options(1)))
    tokens = [
        raw.liveliness().declare_token(f"draco/test/alive/{end}") for end in ("9/1", "x/1", "1/-1", "1/01", "2/4")
    ]
    assert until(lambda: first.members == {2: 4})
    for sender in ("9", "x", "01", "0", "1" * 5000, "*"):
        assert list(raw.get(f"draco/test/to/0/from/{sender}", payload=b"x", timeout=1)) == []
    assert list(raw.get("draco/test/to/0/from/1", timeout=1)) == []  # nothing in it
    assert first.heard == []
    for token in tokens:
        token.undeclare()


# What is refused before anything is opened


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"listen": ("tcp/0.0.0.0:7447",)}, r"draco certs.*--insecure"),
        ({"listen": ("tcp/[::]:7447",)}, "open to other machines"),
        ({"connect": ("tcp/10.0.0.3:7447",)}, "--insecure"),
        ({"connect": ("tcp/pi-3:7447",)}, "--insecure"),
        ({"listen": ("tls/127.0.0.1:7447",)}, "needs certificates"),
        ({"listen": ("quic/127.0.0.1:7447",)}, "no address"),
        ({"listen": ("127.0.0.1:7447",)}, "looks like 'tcp/"),
        ({"listen": ("tcp/127.0.0.1:99999",)}, "no address"),
        ({"listen": ("tcp/127.0.0.1:7447#iface=lo",)}, "no address"),
        ({"listen": (), "connect": ()}, "both empty"),
        ({"network": "a/b"}, "network = 'a/b'"),
        ({"user": 5}, "user = 5"),
        ({"epoch": -1}, "epoch = -1"),
        ({"lease_s": 1.2}, "lease_s = 1.2"),
        ({"max_message_bytes": 0}, "max_message_bytes = 0"),
        ({"max_waiting": 0}, "max_waiting = 0"),
        ({"queue_batches": 17}, "queue_batches = 17"),
    ],
)
def test_bad_options_are_named(changes: dict[str, Any], why: str) -> None:
    usual: dict[str, Any] = {"network": "n", "user": 0, "users": USERS, "epoch": 1, "listen": ("tcp/127.0.0.1:7447",)}
    with pytest.raises(ConfigError, match=why):
        ZenohOptions(**usual | changes)


def test_loopback_and_what_is_said_to_be_trusted_are_allowed() -> None:
    ZenohOptions("n", 0, 2, 1, listen=("tcp/localhost:0", "tcp/[::1]:0"), connect=("tcp/127.9.9.9:1",))
    ZenohOptions("n", 0, 2, 1, listen=("tcp/0.0.0.0:0",), connect=("tcp/pi-3:7447",), insecure=True)


def test_certificates_want_tls(tmp_path: Path) -> None:
    paths = Certificates.in_folder(tmp_path, 0)
    with pytest.raises(ConfigError, match="with certificates it must be tls"):
        ZenohOptions("n", 0, 2, 1, listen=("tcp/127.0.0.1:0",), certificates=paths)


def test_an_address_in_use_and_a_missing_certificate_are_said_in_a_sentence(net: Net, tmp_path: Path) -> None:
    first = net.node(0)
    with pytest.raises(ConfigError, match="in use") as caught:
        net.node(1, listen=(first.endpoint,))
    assert first.endpoint in str(caught.value)
    assert ".rs" not in str(caught.value)
    with pytest.raises(ConfigError, match=r"peer-1.*draco certs|authority.*draco certs"):
        net.node(1, certificates=Certificates.in_folder(tmp_path, 1), connect=())


def test_without_the_package_it_says_what_to_install(net: Net, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(name: str, *rest: Any) -> Any:
        if name == "zenoh":
            raise ImportError(name)
        return original(name, *rest)

    original = builtins.__import__
    monkeypatch.delitem(sys.modules, "zenoh")
    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(DracoError, match=r"dracofl\[net\]"):
        net.node(0)


# Certificates


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("certificates")
    create_authority(folder)
    for user in range(USERS):
        issue(folder, user, ["127.0.0.1"])
    return folder


def secured(net: Net, folder: Path, user: int, **changes: Any) -> Node:
    return net.node(user, certificates=Certificates.in_folder(folder, user), **changes)


def test_with_certificates_a_seed_makes_a_mesh_and_messages_are_answered(net: Net, folder: Path) -> None:
    nodes = [secured(net, folder, user) for user in range(3)]
    assert until(lambda: all(len(node.members) == 2 for node in nodes))
    for user, node in enumerate(nodes):
        for other in {0, 1, 2} - {user}:
            assert node.send(other, bytes(600_000)) == b"600000 bytes of %d" % user
    nodes[2].transport.close()
    assert until(lambda: 2 not in nodes[0].members)


def test_a_certificate_of_somebody_else_is_not_even_tried(net: Net, folder: Path) -> None:
    with pytest.raises(ConfigError, match="is for user 2, but this peer is user 1"):
        net.node(1, certificates=Certificates.in_folder(folder, 2))


def ask(session: zenoh.Session, key: str, data: bytes) -> list[bytes]:
    replies = session.get(f"draco/test/{key}", payload=data, timeout=0.5, allowed_destination=zenoh.Locality.REMOTE)
    return [reply.ok.payload.to_bytes() for reply in replies if reply.ok]


def test_user_2_cannot_pass_for_user_1(net: Net, folder: Path) -> None:
    zero, one = secured(net, folder, 0), secured(net, folder, 1)
    settings = configuration(net.options(2, certificates=Certificates.in_folder(folder, 2)))
    del settings["access_control"]  # it has no rules for itself
    two = net.raw(settings)
    stolen: list[str] = []

    def steal(query: zenoh.Query) -> None:
        stolen.append(str(query.key_expr))
        with query:
            query.reply(query.key_expr, b"stolen")

    for key in ("to/1/from/*", "to/3/from/*", "to/**"):
        two.declare_queryable(f"draco/test/{key}", steal, complete=True)
    tokens = [two.liveliness().declare_token(f"draco/test/alive/{key}") for key in ("1/99", "3/99", "2/5")]
    assert until(lambda: zero.members.get(2) == 5 and 1 in zero.members)

    for key in ("to/0/from/1", "to/0/from/3", "to/0/from/*", "to/*/from/1", "**"):
        assert ask(two, key, b"forged") == []
    two.put("draco/test/to/0/from/1", b"forged")
    assert ask(two, "to/0/from/2", b"own") == [b"3 bytes of 2"]
    assert zero.heard == [(2, b"own")]
    assert zero.members == {1: 1, 2: 5}
    for _ in range(5):
        assert zero.send(1, b"x") == b"1 bytes of 0"
    one.transport.close()
    assert until(lambda: 1 not in zero.members)
    assert zero.send(1, b"x") == zero.send(3, b"x") == Unanswered.UNREACHABLE
    assert stolen == []
    del tokens


def settings_of(how: str, folder: Path, tmp_path: Path) -> dict[str, Any]:
    """Of a stranger who trusts everybody, as user 2."""
    settings = configuration(
        Net().options(2, certificates=Certificates.in_folder(folder, 2), connect=("tls/localhost:1",))
    )
    del settings["access_control"]
    link = settings["transport"]["link"]
    if how == "plain tcp":
        del link["tls"]
        link["protocols"] = ["tcp"]
    elif how == "no certificate":
        link["tls"] = {name: link["tls"][name] for name in ("root_ca_certificate", "verify_name_on_connect")}
    elif how != "invited":
        if how == "rogue authority":
            create_authority(tmp_path)
            paths = issue(tmp_path, 2, ["127.0.0.1"])
        else:
            for name in ("authority.pem", "authority.key"):
                (tmp_path / name).write_bytes((folder / name).read_bytes())
            paths = issue(tmp_path, 2, ["127.0.0.1"], days=0.1 / 86400)
            time.sleep(1.2)  # times in a certificate are whole seconds
        for side in ("listen", "connect"):
            link["tls"] |= {f"{side}_certificate": str(paths.certificate), f"{side}_private_key": str(paths.key)}
    return settings


@pytest.mark.parametrize("direction", ["in", "out"])
@pytest.mark.parametrize("how", ["invited", "no certificate", "rogue authority", "expired", "plain tcp"])
def test_only_the_invited_get_in(net: Net, folder: Path, tmp_path: Path, how: str, direction: str) -> None:
    settings = settings_of(how, folder, tmp_path)
    protocol = settings["transport"]["link"]["protocols"][0]
    door = free_endpoint("tls")
    zero = secured(net, folder, 0, connect=() if direction == "in" else (door,))
    if direction == "in":
        settings["listen"]["endpoints"], settings["connect"]["endpoints"] = [], [zero.endpoint.replace("tls", protocol)]
    else:
        settings["listen"]["endpoints"], settings["connect"]["endpoints"] = [door.replace("tls", protocol)], []
        if how == "no certificate":
            with pytest.raises(zenoh.ZError):  # nobody can listen without one
                net.raw(settings)
            return
    stranger = net.raw(settings)
    token = stranger.liveliness().declare_token("draco/test/alive/2/5")
    one = secured(net, folder, 1)
    assert until(lambda: zero.members.get(1) == 1)
    if how == "invited":  # what the others are kept from
        assert until(lambda: zero.members == {1: 1, 2: 5})
        assert until(lambda: ask(stranger, "to/0/from/2", b"x") == [b"1 bytes of 2"])
    else:
        time.sleep(A_WHILE_S)
        assert stranger.info.peers_zid() == []
        assert ask(stranger, "to/0/from/2", b"x") == []
        assert zero.members == {1: 1}
        assert zero.heard == []
    assert one.send(0, b"x") == b"1 bytes of 1"
    token.undeclare()


def test_who_has_a_certificate_that_expires_is_out(net: Net, folder: Path, tmp_path: Path) -> None:
    for name in ("authority.pem", "authority.key"):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    issue(tmp_path, 2, [], days=2 / 86400)
    zero, two = secured(net, folder, 0), secured(net, tmp_path, 2)
    assert until(lambda: 2 in zero.members)
    assert until(lambda: 2 not in zero.members, timeout_s=4)
    time.sleep(A_WHILE_S)  # in which it tries to come back
    assert zero.members == {}
    assert two.send(0, b"x") == Unanswered.UNREACHABLE


# A process that freezes, and one that is killed

ANSWERS = """
import sys
from dracofl.runtime.zenoh import ZenohTransport
from dracofl.runtime.zenoh_options import ZenohOptions
options = ZenohOptions("test", 0, 5, 1, listen=(sys.argv[1],), lease_s=1.25)
ZenohTransport(options).open(lambda sender, data, reply: reply(data), lambda *_: None)
sys.stdin.read()
"""


@pytest.mark.slow
def test_who_freezes_is_gone_after_the_lease_and_who_is_killed_at_once(net: Net) -> None:
    endpoint = free_endpoint()
    watcher, other = net.node(1, connect=(endpoint,)), net.node(2, connect=(endpoint,))
    with subprocess.Popen([sys.executable, "-c", ANSWERS, endpoint], stdin=subprocess.PIPE) as process:
        assert until(lambda: watcher.members == {0: 1, 2: 1}, timeout_s=30)
        assert watcher.send(0, b"x") == b"x"
        process.send_signal(signal.SIGSTOP)
        assert watcher.send(0, bytes(600_000), timeout_s=0.4) == Unanswered.TIMEOUT
        assert watcher.send(2, bytes(600_000)) == b"600000 bytes of 1"
        assert until(lambda: set(watcher.members) == {2}, timeout_s=4)
        assert watcher.send(0, b"x") == Unanswered.UNREACHABLE
        process.send_signal(signal.SIGCONT)
        assert until(lambda: 0 in watcher.members and 0 in other.members)
        assert watcher.send(0, b"x") == b"x"
        process.kill()
        assert until(lambda: 0 not in watcher.members and 0 not in other.members, timeout_s=1)
    assert watcher.send(0, b"x") == Unanswered.UNREACHABLE
