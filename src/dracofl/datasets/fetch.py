"""Fetch the real data sets from their homes into the cache folder, each byte checked by hash before it is used.

    fetch("emnist") -> ~/.cache/dracofl/emnist, which `emnist.read` reads

A set is a zip file at an address, of which a few members are wanted. The zip file grows in `<folder>/<name>.part`;
broken off, it goes on from there (HTTP Range), in this call or the next. When it is whole and its hash is right, the
wanted members are unpacked, each under a temporary name until its own hash is right, and the zip file is removed.
So a file under its final name is whole. With the members there and right, nothing is fetched.

Where there is no network, the zip file can be brought by hand: put into the folder under its own name it is taken
instead, checked in the same way, and left there.

Written with the standard library: what a download library would add (pooch) is the checking of a hash, what it lacks
is the going on, and EMNIST is half a gigabyte.
"""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import os
import re
import urllib.error
import urllib.request
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path

from dracofl.errors import DataError, StorageError

Response = http.client.HTTPResponse | urllib.error.HTTPError
Report = Callable[[int, int | None], None]
"""Told of the bytes there are so far, and of how many there will be if that is known."""


@dataclass(frozen=True)
class Source:
    """A zip file somewhere, and what is wanted of it."""

    address: str
    archive: str
    """The name of the zip file."""
    members: dict[str, str | None]
    """Name (without folders) of each file wanted, to its SHA-256 if that is known."""
    size: int | None = None
    """Of the zip file in bytes, if known; likewise its MD5."""
    md5: str | None = None


SOURCES: dict[str, Source] = {
    "emnist": Source(
        address="https://biometrics.nist.gov/cs_links/EMNIST/gzip.zip",
        archive="gzip.zip",
        size=561_753_746,
        md5="58c8d27c78d21e728a6bc7b3cc06412e",
        members={
            "emnist-balanced-train-images-idx3-ubyte.gz": (
                "74295e75e4e9fa2c102147460ee7eb763653d5132d883a84fb88932bfb8d2db4"
            ),
            "emnist-balanced-train-labels-idx1-ubyte.gz": (
                "b46d41e5156a0a8aaaa4d18979fdd1588850fa8571018acffd5d93b325a7d6ed"
            ),
            "emnist-balanced-test-images-idx3-ubyte.gz": (
                "117fc12b015e37ea98bfb2cbba3f77c3782c056cdbd219b87abfc8661d7135db"
            ),
            "emnist-balanced-test-labels-idx1-ubyte.gz": (
                "a67cac948379b67270b9a4d0a01c8ec661598accf2f2b1964340b7c83cb175cd"
            ),
        },
    ),
    # The hash of the test file is not known to us: the zip file's own checksum and, when it is read, the rules of
    # the game (every label is checked by them) have to do.
    "poker": Source(
        address="https://archive.ics.uci.edu/static/public/158/poker+hand.zip",
        archive="poker+hand.zip",
        members={
            "poker-hand-training-true.data": "37becdf87d5f8cbf2b91d6471e965a25b86cb4a6d878c0f94a4025969fca464f",
            "poker-hand-testing.data": None,
        },
    ),
}

_TRIES = 5  # in one call, each going on where the last was broken off
_TIMEOUT_S = 30.0
_PIECE = 1 << 16


def cache_folder() -> Path:
    """DRACOFL_CACHE if that is set, else dracofl in XDG_CACHE_HOME or in ~/.cache."""
    if own := os.environ.get("DRACOFL_CACHE"):
        return Path(own).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "dracofl"


def fetch(name: str, folder: str | os.PathLike[str] | None = None, progress: bool = True) -> Path:
    """The folder with the files of this data set, fetched if they are not there yet.

    They go to `folder`, or to the set's own folder in the cache. `progress` shows a bar on standard error.
    """
    if name not in SOURCES:
        raise DataError(f"there is no data set {name!r} to fetch; there are {', '.join(SOURCES)}")
    source = SOURCES[name]
    place = Path(folder) if folder is not None else cache_folder() / name
    try:
        place.mkdir(parents=True, exist_ok=True)
        if not _is_complete(source, place):
            _fill(source, place, progress)
    except OSError as error:  # what went wrong on the way here is a DataError by now, so this is the disk
        raise StorageError(f"{name} cannot be stored in {place}: {error.strerror or error}") from error
    return place


def _is_complete(source: Source, folder: Path) -> bool:
    """Whether all members are there. One that is there and is not what it should be is an error: it may be wanted."""
    for name, sha256 in source.members.items():
        path = folder / name
        if path.exists() and sha256 and (found := _hash_of(path, "sha256")) != sha256:
            raise DataError(
                f"{path} is not the file that is to be fetched: its SHA-256 is {found}, not {sha256}; "
                "move it away, or fetch into another folder"
            )
    return all((folder / name).exists() for name in source.members)


def _fill(source: Source, folder: Path, progress: bool) -> None:
    brought, part = folder / source.archive, folder / f"{source.archive}.part"
    if brought.exists():
        _check_archive(source, brought)
        _unpack(source, brought, folder)
        return
    with _bar(source.archive) if progress else contextlib.nullcontext(_tell_nobody) as report:
        _download(source, part, report)
    try:
        _check_archive(source, part)
        _unpack(source, part, folder)
    except DataError:
        part.unlink()  # going on from it would lead nowhere
        raise
    part.unlink()


# --- over the network


class _BrokenOffError(Exception):
    """The other side is out of reach, or no longer there."""


def _download(source: Source, part: Path, report: Report) -> None:
    """Append to the part until it is the whole file."""
    problem = ""
    for _ in range(_TRIES):
        there = _size_of(part)
        if there and there == source.size:
            return
        try:
            _go_on(source, part, there, report)
            return
        except _BrokenOffError as error:
            problem = str(error)
        if _size_of(part) <= there:
            break  # not a byte more: there is no point in asking again right now
    raise DataError(_advice(source, part, problem))


def _go_on(source: Source, part: Path, there: int, report: Report) -> None:
    """One connection: ask for what is missing and append what comes."""
    with _ask(source, there) as response:
        first, total = _range_of(response)
        match response.status:
            case HTTPStatus.OK | HTTPStatus.PARTIAL_CONTENT if first in (0, there):
                _append(source, part, response, first, total, report)
                return
            case HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE if total == there:
                return  # nothing comes after what is there: that is all
            case HTTPStatus.PARTIAL_CONTENT | HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE if there:
                pass
            case status:
                raise _BrokenOffError(f"the server answers {status} {response.reason}")
    part.unlink()  # the server cannot go on from this
    _go_on(source, part, 0, report)


def _append(source: Source, part: Path, response: Response, first: int, total: int | None, report: Report) -> None:
    """What comes, at its place in the file; what is there beyond that place is given up."""
    if source.size is not None and total not in (source.size, None):
        raise DataError(
            f"{source.address} has {total:,} bytes and not {source.size:,}: it is not, or no longer, the file that was "
            "wanted"
        )
    expected = total if source.size is None else source.size
    with part.open("ab" if first else "wb") as file:
        report(first, expected)
        for piece in _pieces(response):
            file.write(piece)
            report(file.tell(), expected)
        there = file.tell()
    # Where no length is known, a broken connection shows in the transfer encoding, or in the zip file.
    if expected is not None and there != expected:
        raise _BrokenOffError("the connection was closed too early")


def _ask(source: Source, there: int) -> Response:
    """The answer to a request for what comes after the bytes that are there, be it a good one or not."""
    headers = {"User-Agent": "dracofl", "Accept-Encoding": "identity"}
    if there:
        headers["Range"] = f"bytes={there}-"
    request = urllib.request.Request(source.address, headers=headers)
    try:
        response: Response = urllib.request.urlopen(request, timeout=_TIMEOUT_S)
        return response
    except urllib.error.HTTPError as error:
        return error
    except (OSError, http.client.HTTPException) as error:
        raise _BrokenOffError(_reason(error)) from error


def _pieces(response: Response) -> Iterator[bytes]:
    try:
        while piece := response.read(_PIECE):
            yield piece
    except (OSError, http.client.HTTPException) as error:
        raise _BrokenOffError(_reason(error)) from error


def _range_of(response: Response) -> tuple[int, int | None]:
    """Where in the file the answer begins, and the length of the file if it says so."""
    if match := re.fullmatch(r"bytes (?:(\d+)-\d+|\*)/(\d+|\*)", response.headers.get("Content-Range", "")):
        return int(match[1] or 0), int(match[2]) if match[2] != "*" else None
    length = response.headers.get("Content-Length", "")
    return 0, int(length) if length.isdecimal() else None


def _reason(error: Exception) -> str:
    return str(getattr(error, "reason", None) or error) or type(error).__name__


def _advice(source: Source, part: Path, problem: str) -> str:
    facts = [f"{source.size:,} bytes"] if source.size is not None else []
    facts += [f"MD5 {source.md5}"] if source.md5 is not None else []
    known = f" ({', '.join(facts)})" if facts else ""
    there = _size_of(part)
    so_far = f"{there:,} bytes of it are there, and the same command goes on from them. " if there else ""
    return (
        f"{source.address} cannot be fetched: {problem}. {so_far}Without a network: fetch that address elsewhere, "
        f"put the file at {part.with_suffix('')}{known} and give the same command again"
    )


# --- on the disk


def _check_archive(source: Source, path: Path) -> None:
    size = _size_of(path)
    if source.size is not None and size != source.size:
        raise DataError(
            f"{path} has {size:,} bytes, not {source.size:,}: it is not the file at {source.address}; fetch it again"
        )
    if source.md5 is not None and (found := _hash_of(path, "md5")) != source.md5:
        raise DataError(f"{path} is damaged: its MD5 is {found}, not {source.md5}; fetch it again ({source.address})")


def _unpack(source: Source, archive: Path, folder: Path) -> None:
    """The wanted members, wherever in the zip file they are, into the folder."""
    try:
        with zipfile.ZipFile(archive) as file:
            by_name = {Path(info.filename).name: info for info in file.infolist() if not info.is_dir()}
            for name, sha256 in source.members.items():
                if name not in by_name:
                    there = ", ".join(by_name) or "nothing"
                    raise DataError(f"{archive} holds {there}; {name} should be in it ({source.address})")
                _unpack_member(file, by_name[name], folder / name, sha256)
    except (zipfile.BadZipFile, zlib.error, EOFError) as error:
        raise DataError(
            f"{archive} is broken off or no zip file ({error}); fetch it again ({source.address})"
        ) from error


def _unpack_member(file: zipfile.ZipFile, info: zipfile.ZipInfo, path: Path, sha256: str | None) -> None:
    digest, unfinished = hashlib.sha256(), path.with_name(f"{path.name}.part")
    try:
        with file.open(info) as packed, unfinished.open("wb") as unpacked:
            while piece := packed.read(_PIECE):
                digest.update(piece)
                unpacked.write(piece)
        if sha256 is not None and digest.hexdigest() != sha256:
            raise DataError(f"{path.name} in {file.filename} has SHA-256 {digest.hexdigest()}, not {sha256}")
        os.replace(unfinished, path)
    finally:
        unfinished.unlink(missing_ok=True)


def _size_of(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _hash_of(path: Path, algorithm: str) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, algorithm).hexdigest()


# --- on the screen


@contextlib.contextmanager
def _bar(name: str) -> Iterator[Report]:
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True)) as bar:
        task = bar.add_task(name, total=None)
        yield lambda there, total: bar.update(task, completed=there, total=total)


def _tell_nobody(there: int, total: int | None) -> None:
    pass
