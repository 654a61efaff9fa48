"""The journal of a peer: a line for everything that reached it and everything it decided, written as it happens.

A line is a JSON list: what it is, when by the peer's own clock, and the rest. Each is handed to the operating system
before its consequences are, so a killed process leaves all of it but perhaps half a line, which readers leave out.
Everything else that is told of a real run is worked out from its journals: tables and counts (`records`), and the
whole run once more (`replay`).

Inputs: "start", "timer", "update", "model", "came", "left", "given". They end with a digest of the commands that
followed, for replay. Outputs: "finished", "sent", "merged", "unified", "relayed", "settled", "model_received", "gave",
"answered", "refused", "evaluated", "saved", "stopped".
"""

from __future__ import annotations

import errno
import hashlib
import json
import mmap
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from pydantic_core import from_json, to_json

from dracofl.errors import RunFolderError
from dracofl.telemetry.storage import storage_error, storage_errors

Line = list[Any]
START = "START"
"""The name of the timer that begins it all."""
_ROOM_BYTES = 1 << 18  # reserved at a time
_NEWLINE = ord("\n")
_CLOSED = -1
# The standard library's: other versions of pydantic may write a number otherwise, and what a digest is of must not
# depend on that, as it is compared on other machines.
_AS_TEXT = json.JSONEncoder(separators=(",", ":"), check_circular=False).encode


class Journal(Protocol):
    def write(self, *line: Any) -> None: ...


class FileJournal:
    """Written by way of memory: a system call a line would let other threads have the interpreter five times a message.
    What is in memory that a file is mapped to is the operating system's, whatever becomes of the process. Behind the
    last line there is room for more, zeros, until the journal is closed. Nobody else may cut the file short meanwhile:
    who writes to a part of memory whose file is gone is killed."""

    _error: OSError | None = None  # after which nothing is written: what follows a line that is missing proves nothing
    _memory: mmap.mmap | None = None

    def __init__(self, path: Path) -> None:
        self._path = path
        with storage_errors(path):
            _end_last_line(path)
            self._file = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
            self._length = os.fstat(self._file).st_size
        self._begin = self._end = 0  # of what is mapped

    def write(self, *line: Any) -> None:
        data = _as_json(line)
        try:
            if self._error is not None:
                raise self._error
            if self._memory is None or self._length + len(data) >= self._end:
                self._memory = self._make_room(len(data) + 1)
        except OSError as error:
            self._error = error
            raise storage_error(self._path, error) from error
        at = self._length - self._begin
        self._memory[at : at + len(data)] = data
        self._memory[at + len(data)] = _NEWLINE  # last: without it there is no line
        self._length += len(data) + 1

    def close(self) -> None:
        """Once more does no harm."""
        if self._file == _CLOSED:
            return
        file, self._file = self._file, _CLOSED
        if self._memory is not None:
            self._memory.close()
            self._memory = None
        with storage_errors(self._path):
            try:
                os.ftruncate(file, self._length)
            finally:
                os.close(file)

    def _make_room(self, size: int) -> mmap.mmap:
        if self._memory is not None:
            self._memory.close()
        self._begin = self._length // mmap.ALLOCATIONGRANULARITY * mmap.ALLOCATIONGRANULARITY
        room = _ROOM_BYTES + size
        _reserve(self._file, self._begin, room)
        self._end = self._begin + room
        return mmap.mmap(self._file, room, offset=self._begin)


class MemoryJournal:
    """For peers whose lines go to one list, in the order in which they are written."""

    def __init__(self, user: int, lines: list[tuple[int, Line]]) -> None:
        self._user = user
        self._lines = lines

    def write(self, *line: Any) -> None:
        self._lines.append((self._user, list(line)))


@dataclass(frozen=True, slots=True)
class JournalFile:
    """The lines of a journal, read from the disk each time: all of them at once may be more than there is room for."""

    path: Path

    def __iter__(self) -> Iterator[Line]:
        return read_journal(self.path)


def read_journal(path: Path) -> Iterator[Line]:
    """Every whole line before the first zero, which is room that nothing was written to yet: by the peer that still
    runs, perhaps, while this reads on. What follows a line that cannot be read is not trusted."""
    try:
        with open(path, "rb") as file:
            for number, text in enumerate(file, start=1):
                if not _is_whole(text):
                    return
                try:
                    line = from_json(text)
                    if not _is_line(line):
                        raise ValueError("it is no line of a journal")
                except ValueError as error:
                    raise RunFolderError(f"{path}, line {number}, is damaged: {error}") from None
                yield line
    except OSError as error:
        raise RunFolderError(f"{path} cannot be read: {error.strerror or error}") from None


def digest(commands: Iterable[Any]) -> str:
    """Of named tuples: a short proof, for replay, that the same commands followed."""
    text = _AS_TEXT([(type(command).__name__, *command) for command in commands])
    return hashlib.blake2b(text.encode(), digest_size=6).hexdigest()


def checksum(numbers: np.ndarray) -> str:
    """Tells other numbers apart in a replay: against errors, not against attackers, so it may be quick."""
    raw = np.frombuffer(numbers.data, np.uint8)
    whole = len(raw) // 8 * 8
    words = raw[:whole].view(np.uint64)
    total, mixed = int(np.add.reduce(words)), int(np.bitwise_xor.reduce(words))
    return f"{total:016x}{mixed:016x}{raw[whole:].tobytes().hex()}"


def _as_json(data: Any) -> bytes:
    # Five a message: this takes a third of the time of the standard library's. (So does reading, a fifth.)
    return to_json(data, inf_nan_mode="constants")


def _is_line(line: Any) -> bool:
    return isinstance(line, list) and len(line) >= 2 and isinstance(line[0], str) and isinstance(line[1], int | float)


def _reserve(file: int, begin: int, size: int) -> None:
    """Now, and with an error if there is none: a mapped file that cannot grow any more kills who writes to it."""
    try:
        os.posix_fallocate(file, begin, size)
        return
    except AttributeError:  # macOS
        pass
    except OSError as error:
        if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL):
            raise
    os.ftruncate(file, begin + size)  # where all that can be asked for is the length


def _is_whole(text: bytes) -> bool:
    return text.endswith(b"\n") and b"\0" not in text  # JSON has none


def _end_last_line(path: Path) -> None:
    """A process that was killed may have left half a line and room behind it, and a machine that lost its power a hole
    in the middle: all that follows is cut off, so that what is written then can be read."""
    if not path.exists():
        return
    with open(path, "rb+") as file:
        end = 0
        for text in file:
            if not _is_whole(text):
                break
            end += len(text)
        file.truncate(end)
