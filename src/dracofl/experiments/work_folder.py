"""The folder of many runs. What was asked is the first thing written there, so that asking again continues it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dracofl.errors import RunFolderError
from dracofl.telemetry.storage import storage_errors, write_atomically


def begin_or_continue(what: str, asked: Any, folder: Path, check: Callable[[], None]) -> None:
    """Make the folder, if `check` finds nothing wrong, or see that the same was asked before."""
    if may_begin(what, asked, folder):
        check()
        with storage_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
        write_json(folder / f"{what}.json", asked)


def may_begin(what: str, asked: Any, folder: Path) -> bool:
    """True if there is nothing in the folder yet, False if the same was begun there; all else is refused."""
    file = folder / f"{what}.json"
    if file.is_file():
        try:
            begun = json.loads(file.read_text())
        except (OSError, ValueError) as error:
            raise RunFolderError(f"{file} cannot be read: {error}") from None
        if begun != asked:
            raise RunFolderError(
                f"{folder} holds another {what} (see {file.name} there): repeat its command to continue it, or "
                "name another folder with --out"
            )
        return False
    # Of a process that was killed there may be the beginning of that file.
    if folder.is_file() or (folder.is_dir() and any(path.suffix != ".unfinished" for path in folder.iterdir())):
        raise RunFolderError(f"{folder} exists and is not a {what}; name another with --out")
    return True


def write_json(path: Path, data: Any) -> None:
    text = json.dumps(data, indent=2, allow_nan=False) + "\n"
    write_atomically(path, lambda file: file.write(text.encode()))
