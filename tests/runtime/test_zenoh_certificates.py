"""With certificates: who gets in, and as whom. Real Zenoh sessions over loopback."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("zenoh")
pytest.importorskip("cryptography")

import zenoh
from zenoh_net import A_WHILE_S, USERS, Net, Node, free_endpoint, until

from dracofl.errors import ConfigError
from dracofl.runtime.certificates import Certificates, create_authority, issue
from dracofl.runtime.transport import Unanswered
from dracofl.runtime.zenoh_options import configuration


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
