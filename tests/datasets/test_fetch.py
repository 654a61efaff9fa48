"""Fetching, from a server on this machine that can be slow-witted, break off, or hand out the wrong file."""

from __future__ import annotations

import gzip
import hashlib
import http.server
import io
import os
import socket
import threading
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dracofl import rng
from dracofl.datasets import emnist, fetch, poker
from dracofl.errors import DataError, StorageError

TRAINING, TESTING = "poker-hand-training-true.data", "poker-hand-testing.data"


def poker_text(count: int) -> bytes:
    hands = poker.deal(rng.generator(5, "test-fetch"), count)
    table = np.column_stack([hands, poker.label_hands(hands)])
    return b"".join(",".join(map(str, row)).encode() + b"\r\n" for row in table.tolist())


def zip_of(members: dict[str, bytes]) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return file.getvalue()


MEMBERS = {TRAINING: poker_text(6_000), TESTING: poker_text(6_001)}
ARCHIVE = zip_of({"data/readme.txt": b"not wanted", **{f"data/{name}": made for name, made in MEMBERS.items()}})


@dataclass
class Server:
    """What it serves and how, and what it was asked for."""

    content: bytes = ARCHIVE
    ranges: bool = True
    length: bool = True
    chunked: bool = False
    status: int = 200
    break_after: int | None = None
    """Bytes of an answer after which the connection is cut."""
    breaks: int = 10**9
    """In how many answers."""
    lie: int = 0
    """Added to the place where a range begins."""
    asked: list[str | None] = field(default_factory=list)
    """The range of each request."""
    port: int = 0

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}/poker+hand.zip"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("no_proxy", "*")
    how = Server()

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            asked = self.headers.get("Range")
            how.asked.append(asked)
            self.close_connection = True
            start, whole = 0, len(how.content)
            if how.status != 200:
                self.send_error(how.status)
                return
            if how.ranges and asked:
                start = int(asked.removeprefix("bytes=").removesuffix("-")) + how.lie
                if start >= whole:
                    self.send_response(416)
                    self.send_header("Content-Range", f"bytes */{whole}")
                    self.send_header("Content-Length", "0")
                    self.end_headers()
                    return
                self.send_response(206)
                self.send_header("Content-Range", f"bytes {start}-{whole - 1}/{whole}")
            else:
                self.send_response(200)
            body = how.content[start:]
            if how.chunked:
                self.send_header("Transfer-Encoding", "chunked")
                body = b"".join(
                    b"%x\r\n%s\r\n" % (len(body[at:][:999]), body[at:][:999]) for at in range(0, len(body), 999)
                )
                body += b"0\r\n\r\n"
            elif how.length:
                self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if how.break_after is not None and how.breaks > 0:
                how.breaks -= 1
                body = body[: how.break_after]
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as real:
        how.port = real.server_port
        thread = threading.Thread(target=real.serve_forever, args=(0.01,))
        thread.start()
        set_source(monkeypatch, address=how.address)
        yield how
        real.shutdown()
        thread.join()


def set_source(monkeypatch: pytest.MonkeyPatch, **changes: Any) -> None:
    """The source of "poker" is ours; with `known` its size and hash are known, as those of EMNIST are."""
    facts = {
        "address": "http://127.0.0.1:9/poker+hand.zip",
        "archive": "poker+hand.zip",
        "members": {TRAINING: hashlib.sha256(MEMBERS[TRAINING]).hexdigest(), TESTING: None},
    }
    monkeypatch.setitem(fetch.SOURCES, "poker", fetch.Source(**{**facts, **changes}))


def make_known(monkeypatch: pytest.MonkeyPatch, server: Server, content: bytes = ARCHIVE) -> None:
    set_source(monkeypatch, address=server.address, size=len(content), md5=hashlib.md5(content).hexdigest())


def check(folder: Path) -> None:
    """The members are there and right, and nothing else is."""
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == MEMBERS


def complaint(folder: Path) -> str:
    with pytest.raises(DataError) as caught:
        fetch.fetch("poker", folder, progress=False)
    return str(caught.value)


PART = "poker+hand.zip.part"

known_or_not = pytest.mark.parametrize("known", [False, True])


# --- when all is well


@known_or_not
@pytest.mark.parametrize("manner", [{}, {"ranges": False}, {"length": False}, {"chunked": True}])
def test_what_is_fetched_can_be_read_and_is_not_fetched_again(
    tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch, known: bool, manner: dict[str, bool]
) -> None:
    for name, value in manner.items():
        setattr(server, name, value)
    if known:
        make_known(monkeypatch, server)
    folder = fetch.fetch("poker", tmp_path / "new" / "folder", progress=False)
    assert folder == tmp_path / "new" / "folder"
    check(folder)
    assert len(poker.read(folder).train) == 6_000
    assert server.asked == [None]
    fetch.fetch("poker", folder, progress=False)
    assert server.asked == [None]


def test_the_cache_is_where_the_environment_says(
    tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DRACOFL_CACHE", str(tmp_path / "own"))
    assert fetch.fetch("poker", progress=False) == tmp_path / "own" / "poker"
    check(tmp_path / "own" / "poker")
    assert server.asked == [None]
    monkeypatch.delenv("DRACOFL_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert fetch.cache_folder() == tmp_path / "xdg" / "dracofl"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert fetch.cache_folder() == tmp_path / ".cache" / "dracofl"


def test_progress_is_shown_on_standard_error(
    tmp_path: Path, server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    assert server.asked == []
    fetch.fetch("poker", tmp_path)
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "poker+hand.zip" in shown.err


def test_a_set_like_emnist_is_unpacked_into_what_its_reader_accepts(
    tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    labels = (np.arange(5_047) % 47).astype(np.uint8)
    pictures = np.zeros((5_047, 28, 28), np.uint8)
    files = {}
    for split in ("train", "test"):
        head = (0x0803).to_bytes(4, "big") + (5_047).to_bytes(4, "big") + 2 * (28).to_bytes(4, "big")
        files[f"emnist-balanced-{split}-images-idx3-ubyte.gz"] = gzip.compress(head + pictures.tobytes(), 1)
        head = (0x0801).to_bytes(4, "big") + (5_047).to_bytes(4, "big")
        files[f"emnist-balanced-{split}-labels-idx1-ubyte.gz"] = gzip.compress(head + labels.tobytes(), 1)
    assert set(files) == set(fetch.SOURCES["emnist"].members)
    server.content = zip_of({f"gzip/{name}": made for name, made in {**files, "emnist-letters.gz": b""}.items()})
    source = fetch.Source(
        address=server.address,
        archive="gzip.zip",
        size=len(server.content),
        md5=hashlib.md5(server.content).hexdigest(),
        members={name: hashlib.sha256(made).hexdigest() for name, made in files.items()},
    )
    monkeypatch.setitem(fetch.SOURCES, "emnist", source)
    folder = fetch.fetch("emnist", tmp_path, progress=False)
    assert {path.name for path in folder.iterdir()} == set(files)
    assert len(emnist.read(folder).test) == 5_047


# --- broken off


@known_or_not
@pytest.mark.parametrize("chunked", [False, True])
def test_a_broken_connection_is_taken_up_where_it_was(
    tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch, known: bool, chunked: bool
) -> None:
    if known:
        make_known(monkeypatch, server)
    server.break_after, server.breaks, server.chunked = 100_000, 2, chunked
    fetch.fetch("poker", tmp_path, progress=False)
    check(tmp_path)
    assert server.asked[0] is None
    assert len(server.asked) == 3
    starts = [int(str(asked).removeprefix("bytes=").removesuffix("-")) for asked in server.asked[1:]]
    assert 60_000 < starts[0] < starts[1] <= 200_000
    assert chunked or starts == [100_000, 200_000]


@known_or_not
def test_a_call_that_gave_up_is_taken_up_by_the_next(
    tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch, known: bool
) -> None:
    if known:
        make_known(monkeypatch, server)
    server.break_after = 10_000
    message = complaint(tmp_path)
    assert (
        "cannot be fetched: the connection was closed too early. 50,000 bytes of it are there, and the same" in message
    )
    assert [path.name for path in tmp_path.iterdir()] == [PART]
    assert (tmp_path / PART).read_bytes() == ARCHIVE[:50_000]
    with pytest.raises(DataError, match="has no poker-hand"):
        poker.read(tmp_path)
    server.break_after = None
    fetch.fetch("poker", tmp_path, progress=False)
    assert server.asked[-1] == "bytes=50000-"
    check(tmp_path)


@known_or_not
def test_a_server_without_ranges_starts_again(
    tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch, known: bool
) -> None:
    if known:
        make_known(monkeypatch, server)
    (tmp_path / PART).write_bytes(ARCHIVE[:1_000])
    server.ranges = False
    fetch.fetch("poker", tmp_path, progress=False)
    assert server.asked == ["bytes=1000-"]
    check(tmp_path)


@known_or_not
def test_a_whole_file_that_was_not_unpacked_is_not_fetched_again(
    tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch, known: bool
) -> None:
    if known:
        make_known(monkeypatch, server)
    (tmp_path / PART).write_bytes(ARCHIVE)
    (tmp_path / f"{TESTING}.part").write_bytes(b"killed while this was written")
    fetch.fetch("poker", tmp_path, progress=False)
    assert server.asked == ([] if known else [f"bytes={len(ARCHIVE)}-"])
    check(tmp_path)


@known_or_not
def test_more_than_the_whole_file_is_thrown_away(
    tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch, known: bool
) -> None:
    if known:
        make_known(monkeypatch, server)
    (tmp_path / PART).write_bytes(ARCHIVE + b"more")
    fetch.fetch("poker", tmp_path, progress=False)
    assert server.asked == [f"bytes={len(ARCHIVE) + 4}-", None]
    check(tmp_path)


def test_a_server_that_goes_on_elsewhere_is_asked_for_all(tmp_path: Path, server: Server) -> None:
    (tmp_path / PART).write_bytes(ARCHIVE[:1_000])
    server.lie = 7
    fetch.fetch("poker", tmp_path, progress=False)
    assert server.asked == ["bytes=1000-", None]
    check(tmp_path)


def test_a_file_lost_from_the_folder_is_fetched_again(tmp_path: Path, server: Server) -> None:
    fetch.fetch("poker", tmp_path, progress=False)
    (tmp_path / TESTING).unlink()
    fetch.fetch("poker", tmp_path, progress=False)
    assert server.asked == [None, None]
    check(tmp_path)


# --- the wrong file


def test_a_wrong_hash_is_an_error_and_the_file_is_not_kept(
    tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_known(monkeypatch, server)
    damaged = bytearray(ARCHIVE)
    damaged[1_000] ^= 1
    server.content = bytes(damaged)
    message = complaint(tmp_path)
    assert message.startswith(f"{tmp_path / PART} is damaged: its MD5 is {hashlib.md5(damaged).hexdigest()}, not ")
    assert "fetch it again" in message
    assert list(tmp_path.iterdir()) == []
    server.content = ARCHIVE
    fetch.fetch("poker", tmp_path, progress=False)
    check(tmp_path)


def test_a_part_of_another_file_is_found_out(tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    make_known(monkeypatch, server)
    (tmp_path / PART).write_bytes(b"x" * 1_000)
    assert "is damaged" in complaint(tmp_path)
    fetch.fetch("poker", tmp_path, progress=False)
    check(tmp_path)


def test_a_file_of_another_size_is_refused_before_it_is_fetched(
    tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_known(monkeypatch, server)
    server.content += b"\0"
    message = complaint(tmp_path)
    assert message.startswith(f"{server.address} has {len(ARCHIVE) + 1:,} bytes and not {len(ARCHIVE):,}: ")
    assert list(tmp_path.iterdir()) == []


def test_a_member_with_a_wrong_hash_is_an_error_and_is_not_kept(tmp_path: Path, server: Server) -> None:
    server.content = zip_of({**MEMBERS, TRAINING: MEMBERS[TRAINING] + b"x"})
    message = complaint(tmp_path)
    assert f"{TRAINING} in {tmp_path / PART} has SHA-256 " in message
    assert hashlib.sha256(MEMBERS[TRAINING]).hexdigest() in message
    assert list(tmp_path.iterdir()) == []


def test_a_member_whose_checksum_is_wrong_is_an_error_and_is_not_kept(tmp_path: Path, server: Server) -> None:
    damaged = bytearray(ARCHIVE)
    damaged[ARCHIVE.index(MEMBERS[TESTING]) + 10] ^= 1  # of this member we know no hash
    server.content = bytes(damaged)
    assert "is broken off or no zip file (Bad CRC-32" in complaint(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [TRAINING]


@pytest.mark.parametrize("content", [b"<html>please log in</html>", ARCHIVE[:-500]])
def test_what_is_no_zip_file_is_an_error_and_is_not_kept(tmp_path: Path, server: Server, content: bytes) -> None:
    server.content = content
    message = complaint(tmp_path)
    assert f"{PART} is broken off or no zip file (" in message
    assert server.address in message
    assert list(tmp_path.iterdir()) == []


def test_a_zip_file_without_the_member_is_an_error(tmp_path: Path, server: Server) -> None:
    server.content = zip_of({"other.data": b""})
    assert f"{PART} holds other.data; {TRAINING} should be in it" in complaint(tmp_path)


def test_a_file_that_is_there_and_is_another_is_not_overwritten(tmp_path: Path, server: Server) -> None:
    (tmp_path / TRAINING).write_bytes(b"mine")
    message = complaint(tmp_path)
    assert message.startswith(f"{tmp_path / TRAINING} is not the file that is to be fetched: its SHA-256 is ")
    assert "move it away" in message
    assert (tmp_path / TRAINING).read_bytes() == b"mine"
    assert server.asked == []


def test_an_unknown_name_is_an_error_with_the_known_ones() -> None:
    with pytest.raises(DataError, match="there is no data set 'mnist' to fetch; there are emnist, poker"):
        fetch.fetch("mnist")


# --- no network


def test_without_a_network_the_error_says_what_to_fetch_and_where_to_put_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    for name in list(os.environ):
        if name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    with pytest.raises(DataError) as caught:
        fetch.fetch("emnist", tmp_path, progress=False)
    assert str(caught.value) == (
        "https://biometrics.nist.gov/cs_links/EMNIST/gzip.zip cannot be fetched: [Errno -2] Name or service not known. "
        f"Without a network: fetch that address elsewhere, put the file at {tmp_path}/gzip.zip (561,753,746 bytes, MD5 "
        "58c8d27c78d21e728a6bc7b3cc06412e) and give the same command again"
    )
    with pytest.raises(DataError) as caught:
        fetch.fetch("poker", tmp_path, progress=False)
    assert f"put the file at {tmp_path}/poker+hand.zip and give the same command again" in str(caught.value)


@pytest.mark.parametrize("status", [403, 404, 503])
def test_a_server_that_refuses_says_so_and_what_is_there_stays(tmp_path: Path, server: Server, status: int) -> None:
    (tmp_path / PART).write_bytes(ARCHIVE[:1_000])
    server.status = status
    message = complaint(tmp_path)
    assert f"{server.address} cannot be fetched: the server answers {status} " in message
    assert "1,000 bytes of it are there" in message
    assert len(server.asked) == 1
    assert (tmp_path / PART).read_bytes() == ARCHIVE[:1_000]


@known_or_not
def test_a_file_brought_by_hand_is_taken_and_left(
    tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch, known: bool
) -> None:
    if known:
        make_known(monkeypatch, server)
    brought = tmp_path / "poker+hand.zip"
    brought.write_bytes(ARCHIVE)
    fetch.fetch("poker", tmp_path, progress=False)
    assert server.asked == []
    assert brought.read_bytes() == ARCHIVE
    brought.unlink()
    check(tmp_path)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (ARCHIVE[:-5], f"has {len(ARCHIVE) - 5:,} bytes, not {len(ARCHIVE):,}: it is not the file at http"),
        (b"x" * len(ARCHIVE), "is damaged: its MD5 is "),
    ],
)
def test_a_wrong_file_brought_by_hand_is_named_and_left(
    tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch, content: bytes, problem: str
) -> None:
    make_known(monkeypatch, server)
    brought = tmp_path / "poker+hand.zip"
    brought.write_bytes(content)
    assert f"{brought} {problem}" in complaint(tmp_path)
    assert brought.read_bytes() == content


# --- the disk


def test_a_folder_that_cannot_be_made_is_the_disks_fault(tmp_path: Path, server: Server) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match=r"poker cannot be stored in .*file/poker: Not a directory"):
        fetch.fetch("poker", tmp_path / "file" / "poker", progress=False)
    assert server.asked == []


def test_a_full_disk_is_the_disks_fault_and_what_is_there_stays(tmp_path: Path, server: Server) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("there is no /dev/full here")
    (tmp_path / PART).symlink_to("/dev/full")
    with pytest.raises(StorageError, match="No space left on device"):
        fetch.fetch("poker", tmp_path, progress=False)
    assert server.asked == [None]
