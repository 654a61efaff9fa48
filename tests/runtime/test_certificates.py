from __future__ import annotations

import builtins
import datetime as dt
import importlib
import os
import stat
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("cryptography")

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ed25519
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from dracofl.errors import ConfigError, DracoError
from dracofl.runtime import certificates
from dracofl.runtime.certificates import Certificates, check, create_authority, issue, read_identity


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made") / "new" / "folder"
    create_authority(folder, "a lab", days=100)
    issue(folder, 3, ["10.0.0.3", "fe80::3", "pi-3", "pi-3.example.org"], days=10)
    return folder


@pytest.fixture
def paths(made: Path, tmp_path: Path) -> Certificates:
    """A copy of the files of user 3, to spoil."""
    for name in ("authority.pem", "authority.key", "peer-3.pem", "peer-3.key"):
        (tmp_path / name).write_bytes((made / name).read_bytes())
    return Certificates.in_folder(tmp_path, 3)


def load(path: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate(path.read_bytes())


def test_what_is_issued_is_accepted_and_says_for_whom(made: Path) -> None:
    paths = Certificates.in_folder(made, 3)
    identity = check(paths, user=3)
    assert (identity.common_name, identity.user) == ("peer-3", 3)
    left = identity.expires - dt.datetime.now(dt.UTC)
    assert dt.timedelta(days=9.9) < left <= dt.timedelta(days=10)
    assert read_identity(paths.certificate) == check(paths) == identity
    assert read_identity(paths.authority).common_name == "a lab"
    assert read_identity(paths.authority).user is None


def test_a_certificate_is_for_one_device_as_client_and_server_and_signs_no_others(made: Path) -> None:
    extensions = load(made / "peer-3.pem").extensions
    assert not extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    assert not extensions.get_extension_for_class(x509.KeyUsage).value.key_cert_sign
    purposes = set(extensions.get_extension_for_class(x509.ExtendedKeyUsage).value)
    assert purposes == {x509.ExtendedKeyUsageOID.SERVER_AUTH, x509.ExtendedKeyUsageOID.CLIENT_AUTH}
    names = extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["peer-3", "pi-3", "pi-3.example.org"]
    assert [str(address) for address in names.get_values_for_type(x509.IPAddress)] == ["10.0.0.3", "fe80::3"]
    authority = load(made / "authority.pem").extensions
    assert authority.get_extension_for_class(x509.BasicConstraints).value == x509.BasicConstraints(True, 0)


def test_keys_are_for_their_owner_alone_from_the_first_moment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[str, int]] = []
    original = os.fchmod

    def note(file: int, mode: int) -> None:
        seen.append(("as it is made", stat.S_IMODE(os.fstat(file).st_mode)))
        original(file, mode)

    monkeypatch.setattr(os, "fchmod", note)
    before = os.umask(0)  # the most careless of users
    try:
        create_authority(tmp_path)
        issue(tmp_path, 0, [])
        assert os.umask(0) == 0  # left as it was
    finally:
        os.umask(before)
    assert seen == [("as it is made", 0o600)] * 2
    for name in ("authority.key", "peer-0.key"):
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "authority.key",
        "authority.pem",
        "peer-0.key",
        "peer-0.pem",
    ]


def test_nothing_is_overwritten(made: Path) -> None:
    before = {path: path.read_bytes() for path in made.iterdir()}
    with pytest.raises(ConfigError, match=r"authority.pem is there already"):
        create_authority(made)
    with pytest.raises(ConfigError, match=r"peer-3.pem is there already"):
        issue(made, 3, [])
    assert {path: path.read_bytes() for path in made.iterdir()} == before


def test_no_certificate_outlives_its_authority(tmp_path: Path) -> None:
    create_authority(tmp_path, days=5)
    paths = issue(tmp_path, 0, [], days=365)
    assert check(paths).expires == read_identity(paths.authority).expires


@pytest.mark.parametrize(
    ("user", "hosts", "days", "why"),
    [
        (-1, [], 1, "user = -1"),
        (0, ["two words"], 1, "'two words' is neither"),
        (0, ["http://pi-3"], 1, "neither an address"),
        (0, [""], 1, "neither an address"),
        (0, [], 0, "days = 0"),
        (0, [], float("nan"), "days = nan"),
    ],
)
def test_what_cannot_be_issued(made: Path, user: int, hosts: list[str], days: float, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        issue(made, user, hosts, days)
    assert not (made / "peer-0.key").exists()


@pytest.mark.parametrize("name", ["", "x" * 65])
def test_an_authority_has_a_name_of_sensible_length(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match="1 to 64 characters"):
        create_authority(tmp_path, name)


def spoil_other_authority(paths: Certificates) -> None:
    for name in ("authority.pem", "authority.key"):
        (paths.authority.parent / name).unlink()
    create_authority(paths.authority.parent, "a lab")  # of the same name, which proves nothing


def spoil_other_key(paths: Certificates) -> None:
    paths.key.write_bytes((paths.key.parent / "authority.key").read_bytes())


def spoil_locked_key(paths: Certificates) -> None:
    key = load_pem_private_key(paths.key.read_bytes(), None)
    paths.key.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret")))


def spoil_kind_of_key(paths: Certificates) -> None:
    key = ed25519.Ed25519PrivateKey.generate()
    paths.key.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))


def spoil_not_a_peer(paths: Certificates) -> None:
    paths.certificate.write_bytes(paths.authority.read_bytes())
    spoil_other_key(paths)


def spoil_time(paths: Certificates) -> None:
    paths.certificate.unlink()
    paths.key.unlink()
    issue(paths.certificate.parent, 3, [], days=0.01 / 86400)
    time.sleep(1.01)  # times in a certificate are whole seconds


SPOILT: dict[str, tuple[Callable[[Certificates], object], str]] = {
    "no authority": (lambda paths: paths.authority.unlink(), r"cannot read .*authority.pem: No such file.*draco certs"),
    "no certificate": (lambda paths: paths.certificate.unlink(), r"cannot read .*peer-3.pem"),
    "no key": (lambda paths: paths.key.unlink(), r"cannot read .*peer-3.key"),
    "a folder": (lambda paths: (paths.key.unlink(), paths.key.mkdir()), r"cannot read .*peer-3.key: Is a directory"),
    "half a certificate": (
        lambda paths: paths.certificate.write_bytes(paths.certificate.read_bytes()[:200]),
        r"peer-3.pem holds no certificate",
    ),
    "no key in it": (lambda paths: paths.key.write_text("secret"), r"peer-3.key holds no private key"),
    "locked key": (spoil_locked_key, "without a password"),
    "another kind of key": (spoil_kind_of_key, "of another kind"),
    "another key": (spoil_other_key, r"peer-3.key is not the key of .*peer-3.pem"),
    "another authority": (spoil_other_authority, r"peer-3.pem was not issued by the authority"),
    "not a peer": (spoil_not_a_peer, "is for 'a lab', not for a peer"),
    "expired": (spoil_time, r"peer-3.pem expired on \d{4}-\d\d-\d\d"),
}


@pytest.mark.parametrize(("spoil", "why"), SPOILT.values(), ids=SPOILT)
def test_what_is_wrong_with_files_is_said(
    paths: Certificates, spoil: Callable[[Certificates], object], why: str
) -> None:
    check(paths)
    spoil(paths)
    with pytest.raises(ConfigError, match=why):
        check(paths)


def test_a_clock_that_is_behind_is_suspected(paths: Certificates, monkeypatch: pytest.MonkeyPatch) -> None:
    class Past(dt.datetime):
        @classmethod
        def now(cls, tz: dt.tzinfo | None = None) -> dt.datetime:  # type: ignore[override]
            return dt.datetime(1970, 1, 1, tzinfo=tz)

    monkeypatch.setattr(certificates.dt, "datetime", Past)
    with pytest.raises(ConfigError, match="is the clock of this device right"):
        check(paths)


def test_a_certificate_of_another_user_is_refused(paths: Certificates) -> None:
    with pytest.raises(ConfigError, match="is for user 3, but this peer is user 4"):
        check(paths, user=4)


def test_an_authority_with_a_wrong_key_issues_nothing(paths: Certificates) -> None:
    folder = paths.key.parent
    (folder / "authority.key").write_bytes(paths.key.read_bytes())
    with pytest.raises(ConfigError, match=r"authority.key is not the key of"):
        issue(folder, 0, [])


def test_without_the_package_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(name: str, *rest: Any) -> Any:
        if name.startswith("cryptography"):
            raise ImportError(name)
        return original(name, *rest)

    original = builtins.__import__
    monkeypatch.setattr(builtins, "__import__", refuse)
    monkeypatch.delitem(sys.modules, "dracofl.runtime.certificates")
    with pytest.raises(DracoError, match=r"dracofl\[net\]"):
        importlib.import_module("dracofl.runtime.certificates")
