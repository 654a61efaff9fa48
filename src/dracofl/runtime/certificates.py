"""Certificates of a network: one authority signs one certificate for each device, which says which user it is.

The common name `peer-<user>` is what counts: peers hold each other to it, wherever they are. A device needs its own
key and certificate and the authority's certificate; the authority's key stays with who issues, and signs no messages.

    folder/authority.key   0600    folder/peer-3.key   0600
    folder/authority.pem           folder/peer-3.pem
"""

from __future__ import annotations

import datetime as dt
import ipaddress
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from dracofl.errors import ConfigError, DracoError
from dracofl.telemetry.storage import storage_errors, write_atomically

try:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        NoEncryption,
        PrivateFormat,
        load_pem_private_key,
    )
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
except ImportError as missing:
    raise DracoError("certificates need the package cryptography: pip install 'dracofl[net]'") from missing

_AGO = dt.timedelta(hours=1)  # the clocks of devices differ: a new certificate is valid on a slow one too
_HOST_NAME = re.compile(
    r"(?=.{1,253}$)[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?(\.[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?)*"
)
_PEER_NAME = re.compile(r"peer-(0|[1-9][0-9]*)")


@dataclass(frozen=True, slots=True)
class Certificates:
    """The files of one device."""

    authority: Path
    certificate: Path
    key: Path

    @classmethod
    def in_folder(cls, folder: Path, user: int) -> Certificates:
        """Where `issue` writes them."""
        name = common_name(user)
        return cls(folder / "authority.pem", folder / f"{name}.pem", folder / f"{name}.key")


@dataclass(frozen=True, slots=True)
class Identity:
    """Whom a certificate is for, and until when."""

    common_name: str
    expires: dt.datetime  # in UTC

    @property
    def user(self) -> int | None:
        """None if the name is not one of a peer."""
        match = _PEER_NAME.fullmatch(self.common_name)
        return None if match is None else int(match[1])


def common_name(user: int) -> str:
    return f"peer-{user}"


def create_authority(folder: Path, name: str = "draco", days: float = 3650) -> None:
    """A new authority: its key, and a certificate which it signs itself."""
    certificate_path, key_path = folder / "authority.pem", folder / "authority.key"
    _refuse_to_overwrite(certificate_path, key_path)
    _refuse_days(days)
    if not 1 <= len(name) <= 64:
        raise ConfigError(f"name = {name!r} of the authority must have 1 to 64 characters")
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    certificate = (
        _builder(subject, subject, key, days)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    with storage_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    _write_pair(key_path, key, certificate_path, certificate)


def issue(folder: Path, user: int, hosts: Sequence[str], days: float = 365) -> Certificates:
    """A key and a certificate for the device of a user. `hosts` are the names and addresses it is reached at."""
    paths = Certificates.in_folder(folder, user)
    if user < 0:
        raise ConfigError(f"user = {user} must be 0 or more")
    _refuse_to_overwrite(paths.certificate, paths.key)
    _refuse_days(days)
    authority, authority_key = _load_certificate(paths.authority), _load_key(folder / "authority.key")
    if authority.public_key() != authority_key.public_key():
        raise ConfigError(f"{folder / 'authority.key'} is not the key of {paths.authority}")
    _refuse_expired(authority, paths.authority)
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name(user))])
    # the common name is among the names too, so that there is one even for a device without a fixed address
    names = [x509.DNSName(common_name(user)), *(_alternative_name(host) for host in hosts)]
    purposes = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]  # a peer is both
    certificate = (
        _builder(subject, authority.subject, key, days, not_after=authority.not_valid_after_utc)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key()), critical=False)
        .sign(authority_key, hashes.SHA256())
    )
    _write_pair(paths.key, key, paths.certificate, certificate)
    return paths


def check(paths: Certificates, user: int | None = None) -> Identity:
    """Whether a device can go on the network with these files, and as whom; `user` is who it should be.

    A network refuses a bad certificate without a word, so what can be known before is said here.
    """
    authority, certificate = _load_certificate(paths.authority), _load_certificate(paths.certificate)
    key = _load_key(paths.key)
    if certificate.public_key() != key.public_key():
        raise ConfigError(f"{paths.key} is not the key of {paths.certificate}: they must be issued together")
    try:
        certificate.verify_directly_issued_by(authority)
    except Exception as error:  # of several types, all of which mean this
        raise ConfigError(
            f"{paths.certificate} was not issued by the authority of {paths.authority}; "
            "every device of a network needs a certificate of the same authority"
        ) from error
    _refuse_expired(authority, paths.authority)
    _refuse_expired(certificate, paths.certificate)
    identity = Identity(_name_of(certificate), certificate.not_valid_after_utc)
    if identity.user is None:
        raise ConfigError(f"{paths.certificate} is for {identity.common_name!r}, not for a peer such as 'peer-0'")
    if user is not None and identity.user != user:
        raise ConfigError(f"{paths.certificate} is for user {identity.user}, but this peer is user {user}")
    return identity


def read_identity(path: Path) -> Identity:
    """Whom the certificate in a file is for, whoever issued it and whether or not it is still valid."""
    certificate = _load_certificate(path)
    return Identity(_name_of(certificate), certificate.not_valid_after_utc)


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    days: float,
    not_after: dt.datetime | None = None,
) -> x509.CertificateBuilder:
    now = dt.datetime.now(dt.UTC)
    end = now + dt.timedelta(days=days)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _AGO)
        .not_valid_after(end if not_after is None else min(end, not_after))
    )


def _usage(signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _alternative_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        if _HOST_NAME.fullmatch(host) is None:
            raise ConfigError(f"host {host!r} is neither an address like '10.0.0.3' nor a name like 'pi-3'") from None
        return x509.DNSName(host)


def _write_pair(
    key_path: Path, key: ec.EllipticCurvePrivateKey, certificate_path: Path, certificate: x509.Certificate
) -> None:
    secret = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    public = certificate.public_bytes(Encoding.PEM)

    def write_secret(file: BinaryIO) -> None:
        os.fchmod(file.fileno(), 0o600)  # if a crash left one of this name, it kept its mode
        file.write(secret)

    before = os.umask(0o077)  # from its first moment: who opens an empty file can read what is written to it later
    try:
        write_atomically(key_path, write_secret)
    finally:
        os.umask(before)
    write_atomically(certificate_path, lambda file: file.write(public))


def _refuse_to_overwrite(*paths: Path) -> None:
    for path in paths:
        if path.exists():
            raise ConfigError(f"{path} is there already; move it away or choose another folder to make a new one")


def _refuse_days(days: float) -> None:
    if not 0 < days <= 36500:
        raise ConfigError(f"days = {days} must be above 0 and at most 36500")


def _refuse_expired(certificate: x509.Certificate, path: Path) -> None:
    now = dt.datetime.now(dt.UTC)
    begin, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    if now > end:
        raise ConfigError(f"{path} expired on {end:%Y-%m-%d %H:%M} UTC; issue a new one with: draco certs")
    if now < begin:
        raise ConfigError(f"{path} is valid only from {begin:%Y-%m-%d %H:%M} UTC; is the clock of this device right?")


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigError(
            f"cannot read {path}: {error.strerror or error}; certificates come from: draco certs"
        ) from error


def _load_certificate(path: Path) -> x509.Certificate:
    try:
        return x509.load_pem_x509_certificate(_read(path))
    except ValueError as error:
        raise ConfigError(f"{path} holds no certificate in PEM form") from error


def _load_key(path: Path) -> ec.EllipticCurvePrivateKey:
    try:
        key = load_pem_private_key(_read(path), password=None)
    except (ValueError, TypeError) as error:  # TypeError: it is locked by a password
        raise ConfigError(f"{path} holds no private key in PEM form without a password") from error
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise ConfigError(f"{path} holds a key of another kind than draco certs makes")
    return key


def _name_of(certificate: x509.Certificate) -> str:
    names = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    return str(names[0].value) if names else ""
