"""Writing so that a crash, a full disk or a pulled plug leaves either the old file or the new one, never half."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from dracofl.errors import StorageError


def write_atomically(path: Path, write: Callable[[BinaryIO], object]) -> None:
    """`write` fills a file beside `path`, which takes its place when it is safely on the disk."""
    unfinished = path.with_name(path.name + ".unfinished")
    with storage_errors(path):
        try:
            with open(unfinished, "wb") as file:
                write(file)
                file.flush()
                os.fsync(file.fileno())
            os.replace(unfinished, path)
        except BaseException:
            unfinished.unlink(missing_ok=True)
            raise


@contextmanager
def storage_errors(path: Path) -> Iterator[None]:
    """Says which file the disk refused, and why."""
    try:
        yield
    except OSError as error:
        raise storage_error(path, error) from error


def storage_error(path: Path, error: OSError) -> StorageError:
    return StorageError(f"cannot write {path}: {error.strerror or error}; what was saved before is intact")
