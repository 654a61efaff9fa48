"""Every error a user can meet. The type says whose fault it is, the exit code how a script can tell.

DracoError
├── ConfigError     the configuration: every problem found, not just the first        exit 2
├── DataError       a data file that is missing, truncated or too small               exit 2
├── RunFolderError  a folder that is no run, or a run of another version              exit 2
├── StorageError    the disk: full, read-only, vanished                               exit 2
├── DivergedError   the models: a value stopped being finite                          exit 3
└── Interrupted     nobody: the run was stopped, saved, and can be continued          exit 130
"""

from __future__ import annotations

from collections.abc import Sequence


class DracoError(Exception):
    """Base of all errors that are explained to the user in a sentence instead of a traceback."""

    exit_code = 2


class ConfigError(DracoError):
    """One or more things are wrong with the configuration; `problems` holds a sentence for each."""

    def __init__(self, problems: Sequence[str] | str) -> None:
        self.problems: tuple[str, ...] = (problems,) if isinstance(problems, str) else tuple(problems)
        super().__init__("\n".join(self.problems))


class DataError(DracoError):
    """A data file is missing, cannot be read, or holds fewer samples than asked for."""


class RunFolderError(DracoError):
    """The folder is not a run, is already in use, or was written by an incompatible version."""


class StorageError(DracoError):
    """The disk refused a write. What was saved before is intact."""


class DivergedError(DracoError):
    """A model stopped being finite: when, whose, and in which operation."""

    exit_code = 3

    def __init__(self, *, time_s: float, user: int, operation: str) -> None:
        self.time_s, self.user, self.operation = time_s, user, operation
        self.folder = ""  # where the run up to there is kept, once it is
        super().__init__(f"non-finite value at t = {time_s:.3f} s, user {user}, first made by {operation}")


class Interrupted(DracoError):
    """The run was stopped from outside and saved; `folder` continues it."""

    exit_code = 130

    def __init__(self, *, time_s: float, folder: str) -> None:
        self.time_s, self.folder = time_s, folder
        super().__init__(f"stopped and saved at t = {time_s:.1f} s; go on with: draco run {folder}")
