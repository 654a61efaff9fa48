"""The journal: what was written is read, whatever became of the process that wrote it."""

from __future__ import annotations

import errno
import json
import math
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dracofl.errors import RunFolderError, StorageError
from dracofl.protocol.commands import AskForModel, Happening, RecordFinish, SetTimer
from dracofl.runtime.journal import FileJournal, Line, MemoryJournal, digest, read_journal
from dracofl.tape import Free

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


def write(path: Path, *lines: Line) -> None:
    journal = FileJournal(path)
    for line in lines:
        journal.write(*line)
    journal.close()


@given(st.lists(st.tuples(st.text(), st.floats(allow_nan=False), values), max_size=8))
def test_every_line_comes_back_as_it_was(
    tmp_path_factory: pytest.TempPathFactory, lines: list[tuple[str, float, object]]
) -> None:
    path = tmp_path_factory.mktemp("journal") / "journal.jsonl"
    write(path, *map(list, lines))
    assert list(read_journal(path)) == [list(line) for line in lines]


def test_what_is_not_a_number_survives(tmp_path: Path) -> None:
    write(tmp_path / "journal", ["update", 1.0, math.nan, math.inf, -math.inf])
    ((_, _, *numbers),) = read_journal(tmp_path / "journal")
    assert str(numbers) == "[nan, inf, -inf]"


def test_the_times_are_exact_to_the_last_bit(tmp_path: Path) -> None:
    times = [0.1 + 0.2, 1e-300, 1 / 3, 123456789.123456789]
    write(tmp_path / "journal", *(["timer", time_s] for time_s in times))
    assert [line[1] for line in read_journal(tmp_path / "journal")] == times


def test_a_line_is_on_its_way_to_the_disk_before_anything_follows_from_it(tmp_path: Path) -> None:
    journal = FileJournal(tmp_path / "journal")
    journal.write("timer", 1.0)
    assert list(read_journal(tmp_path / "journal")) == [["timer", 1.0]]  # though nothing was closed
    journal.close()


@pytest.mark.parametrize("length", [1, 100, 65_535, 65_536, 65_537, 300_000])
def test_half_a_line_of_a_killed_process_is_left_out_and_then_cut_off(tmp_path: Path, length: int) -> None:
    path = tmp_path / "journal"
    write(path, ["timer", 1.0], ["timer", 2.0])
    with open(path, "ab") as file:
        file.write(b'["sent",3.0,"' + b"x" * length)
    assert list(read_journal(path)) == [["timer", 1.0], ["timer", 2.0]]
    write(path, ["start", 4.0])
    assert list(read_journal(path)) == [["timer", 1.0], ["timer", 2.0], ["start", 4.0]]


def test_a_journal_of_half_a_line_begins_again(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    path.write_bytes(b'["star')
    assert list(read_journal(path)) == []
    write(path, ["start", 0.0])
    assert list(read_journal(path)) == [["start", 0.0]]


def test_opening_a_whole_journal_changes_nothing_in_it(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    write(path, ["timer", 1.0], ["long", 2.0, "x" * 200_000])
    before = path.read_bytes()
    write(path)
    assert path.read_bytes() == before


DAMAGED = {
    "cut in the middle": b'["timer",2.\n',
    "no list": b'{"timer": 2.0}\n',
    "too short": b'["timer"]\n',
    "no name": b"[1,2.0]\n",
    "no time": b'["timer","soon"]\n',
    "nothing": b"\n",
    "no text": b'["\xff\xfe",2.0]\n',
}


@pytest.mark.parametrize("damage", DAMAGED.values(), ids=DAMAGED)
def test_a_damaged_line_is_told_by_its_number(tmp_path: Path, damage: bytes) -> None:
    path = tmp_path / "journal.jsonl"
    path.write_bytes(b'["timer",1.0]\n' + damage + b'["timer",3.0]\n')
    lines = read_journal(path)
    assert next(lines) == ["timer", 1.0]
    with pytest.raises(RunFolderError, match=r"journal\.jsonl, line 2, is damaged: "):
        next(lines)


@pytest.mark.parametrize("zeros", [1, 40, 5000])
def test_a_journal_ends_at_the_first_zero_and_goes_on_from_there(tmp_path: Path, zeros: int) -> None:
    """Where power was lost, or its peer writes on while it is read."""
    path = tmp_path / "journal.jsonl"
    path.write_bytes(b'["timer",1.0]\n["tim' + bytes(zeros) + b',3.0]\n["timer",4.0]\n')
    assert list(read_journal(path)) == [["timer", 1.0]]
    write(path, ["start", 5.0])
    assert list(read_journal(path)) == [["timer", 1.0], ["start", 5.0]]


def test_a_journal_can_be_read_while_it_is_written(tmp_path: Path) -> None:
    path, lines = tmp_path / "journal", 50_000  # not without end: a reader that is no faster would follow it for ever

    def write_on() -> None:
        journal = FileJournal(path)
        for number in range(lines):
            journal.write("line", float(number), "x" * (number % 300))
        journal.close()

    writer = threading.Thread(target=write_on)
    writer.start()
    lengths = [0]
    while lengths[-1] < lines:
        was_alive = writer.is_alive()
        times = [line[1] for line in read_journal(path)] if path.exists() else []
        assert times == [float(number) for number in range(len(times))]
        assert was_alive or len(times) == lines
        lengths.append(len(times))
    writer.join()
    assert lengths == sorted(lengths)


def test_a_closed_journal_is_closed(tmp_path: Path) -> None:
    journal = FileJournal(tmp_path / "journal")
    journal.write("timer", 1.0)
    journal.close()
    other = tmp_path / "other"
    with open(other, "wb") as file:  # likely with the number that was the journal's
        file.write(b"x" * 100)
        file.flush()
        journal.close()
        with pytest.raises(StorageError, match="Bad file descriptor"):
            journal.write("timer", 2.0)
    assert other.read_bytes() == b"x" * 100
    assert list(read_journal(tmp_path / "journal")) == [["timer", 1.0]]


@pytest.mark.parametrize("number", [errno.EOPNOTSUPP, errno.EINVAL])
def test_where_a_file_system_reserves_nothing_the_file_grows(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cannot(*_: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "posix_fallocate", cannot)
    write(tmp_path / "journal", ["timer", 1.0])
    assert (tmp_path / "journal").read_bytes() == b'["timer",1.0]\n'


def test_a_journal_that_is_not_there_is_said_to_be(tmp_path: Path) -> None:
    with pytest.raises(RunFolderError, match="cannot be read: No such file"):
        list(read_journal(tmp_path / "journal"))


def test_a_journal_that_cannot_be_made_is_a_matter_of_the_disk(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=r"cannot write .*No such file or directory"):
        FileJournal(tmp_path / "nowhere" / "journal")


def no_room(*_: int) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_full_disk_is_said_to_be_full_and_what_was_written_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What would be written after a line that is missing would prove nothing."""
    path, journal, reserve = tmp_path / "journal", FileJournal(tmp_path / "journal"), os.posix_fallocate
    journal.write("timer", 1.0)
    monkeypatch.setattr(os, "posix_fallocate", no_room)
    journal.write("timer", 2.0)  # there is some room left
    with pytest.raises(StorageError, match="No space left on device"):
        journal.write("long", 3.0, "x" * 1_000_000)
    monkeypatch.setattr(os, "posix_fallocate", reserve)
    with pytest.raises(StorageError, match="No space left on device"):
        journal.write("timer", 4.0)
    journal.close()
    assert list(read_journal(path)) == [["timer", 1.0], ["timer", 2.0]]


def test_where_room_cannot_be_reserved_the_file_grows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "posix_fallocate")
    write(tmp_path / "journal", ["timer", 1.0])
    assert (tmp_path / "journal").read_bytes() == b'["timer",1.0]\n'


def test_a_closed_journal_is_as_long_as_its_lines(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    for _ in range(3):
        write(path, *(["line", float(number), "x" * number] for number in range(900)))
    assert b"\0" not in path.read_bytes()
    assert [line[1] for line in read_journal(path)] == [float(number) for number in range(900)] * 3


KILLED = """
import os, signal, sys, threading
from pathlib import Path
from dracofl.runtime.journal import FileJournal
journal = FileJournal(Path(sys.argv[1]))
threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGKILL)).start()
number = 0
while True:
    journal.write("line", float(number), "x" * (number % 5000))
    os.write(1, b".")
    number += 1
"""


def test_a_process_that_is_killed_leaves_every_line_that_it_went_on_from(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    done = subprocess.run([sys.executable, "-c", KILLED, str(path)], capture_output=True)
    assert done.returncode == -signal.SIGKILL
    lines = list(read_journal(path))
    assert [line[1] for line in lines] == [float(number) for number in range(len(lines))]
    assert len(done.stdout) <= len(lines) <= len(done.stdout) + 1
    write(path, ["start", 0.0])  # and the next one goes on behind them
    assert [*lines, ["start", 0.0]] == list(read_journal(path))


def test_lines_of_several_peers_in_memory_keep_their_order() -> None:
    lines: list[tuple[int, Line]] = []
    journals = [MemoryJournal(user, lines) for user in range(2)]
    journals[1].write("timer", 2.0)
    journals[0].write("timer", 1.0)
    assert lines == [(1, ["timer", 2.0]), (0, ["timer", 1.0])]


def test_a_digest_tells_commands_apart_and_survives_the_journal() -> None:
    free, finish = Free(7), RecordFinish(0, 7)
    assert digest([free, finish]) == digest((free, finish))
    assert digest([free, finish]) != digest([finish, free])
    assert digest([Free(7)]) != digest([Free(8)])
    assert digest([Free(7)]) != digest([AskForModel(7, 0)])
    assert digest([AskForModel(1, 2)]) != digest([RecordFinish(1, 2)])  # the same fields under another name
    never = SetTimer(Happening.UPDATE_DUE, 0, math.nan)
    assert json.loads(json.dumps(digest([never]))) == digest([never])
