"""Messages and members: real Zenoh sessions over loopback, several in one process."""

from __future__ import annotations

import builtins
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("zenoh")
pytest.importorskip("cryptography")

from zenoh_net import A_WHILE_S, USERS, Net, answer_size, free_endpoint, until

from dracofl.errors import ConfigError, DracoError
from dracofl.runtime.certificates import Certificates
from dracofl.runtime.transport import Unanswered
from dracofl.runtime.zenoh import ZenohTransport
from dracofl.runtime.zenoh_options import ZenohOptions, configuration

NOTHING = np.zeros(0, np.float32)


class Slow:
    """Answers when it may."""

    def __init__(self) -> None:
        self.may_answer = threading.Event()

    def answer(self, _sender: int, _header: bytes, _numbers: bytes) -> bytes:
        self.may_answer.wait(timeout=20)
        return b"at last"


@pytest.fixture
def slow() -> Iterator[Slow]:
    """Asked for after `net`, it is let go before the network is closed, which waits for it."""
    slow = Slow()
    yield slow
    slow.may_answer.set()


def test_members_are_seen_and_messages_answered(net: Net) -> None:
    first, second = net.node(0, epoch=7), net.node(3, epoch=9)
    assert until(lambda: first.members == {3: 9} and second.members == {0: 7})  # not themselves
    assert second.send(0, b"hello") == b"5 bytes of 3"
    assert first.send(3, b"") == b"0 bytes of 0"
    assert first.heard == [(3, b"hello")]


def test_large_messages_go_both_ways_and_are_the_same(net: Net) -> None:
    data = bytes(range(250)) * 2400
    first, second = net.node(0, lambda _, header, numbers: numbers[::-1]), net.node(1)
    assert until(lambda: 0 in second.members)
    assert second.send(0, data) == data[::-1]
    assert first.heard == [(1, data)]


def test_numbers_that_were_sent_before_and_others_are_not_mistaken_for_each_other(net: Net) -> None:
    first, second, third = net.node(0), net.node(1), net.node(2)
    assert until(lambda: {0, 1} <= third.members.keys())
    one, two = np.arange(3, dtype=np.uint8), np.arange(3, 6, dtype=np.uint8)
    sent = [(0, b"a", one), (1, b"b", one), (0, b"c", one), (0, b"d", two), (0, b"e", one), (1, b"f", one.copy())]
    for receiver, header, numbers in sent:
        assert third.transport.send(receiver, header, numbers, 2.0) == b"4 bytes of 2"
    for user, node in enumerate((first, second)):
        assert node.heard == [(2, header + numbers.tobytes()) for receiver, header, numbers in sent if receiver == user]


def test_timeout_and_unreachable_are_told_apart(net: Net, slow: Slow) -> None:
    net.node(0, slow.answer)
    second = net.node(1)
    assert until(lambda: 0 in second.members)

    begin = time.monotonic()
    assert second.send(4, b"to nobody") == Unanswered.UNREACHABLE
    assert time.monotonic() - begin < 0.1
    assert second.send(0, b"to one who is slow", timeout_s=0.3) == Unanswered.TIMEOUT
    assert 0.25 < time.monotonic() - begin < 1
    slow.may_answer.set()  # too late to be of use, and no error


def test_what_is_left_without_an_answer_ends_at_once_and_may_have_arrived(net: Net) -> None:
    first, second = net.node(0, lambda *_: None), net.node(1)
    assert until(lambda: 0 in second.members)
    begin = time.monotonic()
    assert second.send(0, b"x", timeout_s=5) == Unanswered.TIMEOUT
    assert time.monotonic() - begin < 1
    assert first.heard == [(1, b"x")]


def test_one_that_does_not_answer_holds_up_nobody_else(net: Net, slow: Slow) -> None:
    first = net.node(0, slow.answer)
    net.node(1)
    sender = net.node(2)
    assert until(lambda: {0, 1} <= set(sender.members))
    answers: list[object] = []
    waits = threading.Thread(target=lambda: answers.append(sender.send(0, b"x", timeout_s=2)))
    waits.start()
    assert until(lambda: first.heard)
    assert all(sender.send(1, b"y" * 100_000) == b"100000 bytes of 2" for _ in range(20))
    assert answers == []
    slow.may_answer.set()
    waits.join()
    assert answers == [b"at last"]


def test_who_closes_is_gone_at_once_and_comes_back_with_a_new_epoch(net: Net, slow: Slow) -> None:
    first = net.node(0, slow.answer)
    second = net.node(1)
    assert until(lambda: 0 in second.members)
    answers: list[object] = []
    waits = threading.Thread(target=lambda: answers.append(second.send(0, b"x", timeout_s=5)))
    waits.start()
    assert until(lambda: first.heard)
    closing = threading.Thread(target=first.transport.close)
    closing.start()
    assert until(lambda: second.members == {}, timeout_s=1)
    waits.join(timeout=1)
    assert answers == [Unanswered.TIMEOUT]  # it was there, and nobody can tell whether it counted
    assert second.send(0, b"x") == Unanswered.UNREACHABLE
    slow.may_answer.set()  # an answer from a closed peer is nothing
    closing.join(timeout=2)
    assert not closing.is_alive()
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
            threading.Thread(target=lambda: answers.append(watcher.send(user, b"hi", NOTHING, 2.0))).start()

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


def test_a_message_that_nobody_can_handle_is_let_go_and_the_next_one_is_taken(net: Net) -> None:
    def fail_at_first(sender: int, header: bytes, numbers: bytes) -> bytes | None:
        if numbers == b"bad":
            raise MemoryError
        return answer_size(sender, header, numbers)

    first, second = net.node(0, fail_at_first), net.node(1)
    assert until(lambda: 0 in second.members)
    for _ in range(5):  # more than there are threads that read
        assert second.send(0, b"bad") == Unanswered.TIMEOUT
    assert second.send(0, b"good") == b"4 bytes of 1"
    assert first.transport.dropped == 5


def test_when_nobody_reads_messages_wait_and_none_is_lost(net: Net, slow: Slow) -> None:
    first, second = net.node(0, slow.answer, max_waiting=1), net.node(1)
    assert until(lambda: 0 in second.members)
    for number in range(3 * USERS):
        assert second.send(0, b"%d" % number, timeout_s=0.05) == Unanswered.TIMEOUT
    assert len(first.heard) <= 2  # one for each thread that reads
    slow.may_answer.set()
    assert until(lambda: len(first.heard) == 3 * USERS)
    assert second.send(0, b"x") == b"at last"


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


# A process that freezes, and one that is killed

ANSWERS = """
import sys
from dracofl.runtime.zenoh import ZenohTransport
from dracofl.runtime.zenoh_options import ZenohOptions
options = ZenohOptions("test", 0, 5, 1, listen=(sys.argv[1],), lease_s=1.25)
ZenohTransport(options).open(lambda sender, header, numbers: numbers, lambda *_: None)
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
