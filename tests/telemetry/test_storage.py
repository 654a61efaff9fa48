"""Writing to the disk: the old file or the new one, never half, and a sentence when it fails."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import BinaryIO

import pytest

from dracofl.errors import StorageError
from dracofl.telemetry.storage import write_atomically


def fill(file: BinaryIO) -> None:
    file.write(b"new")


def fill_half_then(error: BaseException, file: BinaryIO) -> None:
    file.write(b"ne")
    file.flush()
    raise error


def test_the_new_file_takes_the_place_of_the_old(tmp_path: Path) -> None:
    path = tmp_path / "state"
    write_atomically(path, fill)
    assert path.read_bytes() == b"new"
    write_atomically(path, lambda file: file.write(b"newer"))
    assert path.read_bytes() == b"newer"
    assert list(tmp_path.iterdir()) == [path]


def test_a_full_disk_leaves_the_old_file_and_no_rubbish(tmp_path: Path) -> None:
    path = tmp_path / "state"
    path.write_bytes(b"old")
    full = OSError(errno.ENOSPC, "No space left on device")
    with pytest.raises(StorageError) as refused:
        write_atomically(path, lambda file: fill_half_then(full, file))
    assert str(refused.value) == f"cannot write {path}: No space left on device; what was saved before is intact"
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("error", [KeyboardInterrupt(), ValueError("ours")])
def test_any_other_failure_of_the_writer_leaves_the_old_file_too(error: BaseException, tmp_path: Path) -> None:
    path = tmp_path / "state"
    path.write_bytes(b"old")
    with pytest.raises(type(error)):
        write_atomically(path, lambda file: fill_half_then(error, file))
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_that_vanished(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=f"cannot write {tmp_path}/gone/state: No such file or directory"):
        write_atomically(tmp_path / "gone" / "state", fill)


def test_a_path_below_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"old")
    with pytest.raises(StorageError, match="Not a directory"):
        write_atomically(tmp_path / "file" / "state", fill)
    assert (tmp_path / "file").read_bytes() == b"old"
