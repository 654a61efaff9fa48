"""A graph somebody wrote down: an edge list or a matrix.

    edge list   text, two columns: `sender receiver`, users numbered from 0
    matrix      .npy, or text with as many columns as rows: entry [i][j] other than 0 means that i sends to j

Text columns are separated by blanks or a comma; `#` starts a comment. Two columns are always an edge list,
so the matrix of two users has to be a .npy. A user's link to itself (a diagonal entry) is ignored, a repeated
link counts once.
"""

from __future__ import annotations

import io
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from dracofl.errors import ConfigError, DataError
from dracofl.field import Positions
from dracofl.topologies.connectivity import refuse_isolated
from dracofl.topologies.links import from_pairs
from dracofl.types import Graph

_SEPARATOR = re.compile(r"\s*,\s*|\s+")
_USER = re.compile(r"[0-9]{1,18}")


@dataclass(frozen=True, slots=True)
class FromFile:
    """The links written in a file: lines 'sender receiver', or a square matrix as text or .npy."""

    path: str

    def build(self, users: int, seed: int, positions: Positions) -> Graph:
        path = Path(self.path)
        graph = _read_npy(path, users) if path.suffix == ".npy" else _read_text(path, users)
        refuse_isolated(graph, f'topology.path = "{self.path}"')
        return graph


def _read_npy(path: Path, users: int) -> Graph:
    try:
        matrix = np.lib.format.read_array(io.BytesIO(_contents(path)), allow_pickle=False)
    except (ValueError, OverflowError, MemoryError) as error:  # the last two: a damaged header's absurd shape
        raise DataError(f"{path}: not a NumPy array file: {error}") from error
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or matrix.dtype.kind not in "biuf":
        raise DataError(
            f"{path}: an array of {matrix.dtype} with shape {matrix.shape}; it must be a square matrix of numbers"
        )
    if not np.isfinite(matrix).all():
        row, column = np.argwhere(~np.isfinite(matrix))[0].tolist()
        raise DataError(f"{path}: entry [{row}][{column}] is {matrix[row, column]}, where a finite number is needed")
    _check_size(path, len(matrix), users)
    return from_pairs(users, np.argwhere(matrix))


def _read_text(path: Path, users: int) -> Graph:
    rows = list(_rows(path))
    if not rows:
        raise DataError(f"{path}: holds no links, only blank lines or comments")
    first_line, first_row = rows[0]
    for line, row in rows:
        if len(row) != len(first_row):
            raise DataError(
                f"{path}, line {line}: {_counted(len(row), 'column')}, where line {first_line} has {len(first_row)}"
            )
    return _edge_list(path, rows, users) if len(first_row) == 2 else _matrix(path, rows, users)


def _edge_list(path: Path, rows: list[tuple[int, list[str]]], users: int) -> Graph:
    pairs = []
    for line, row in rows:
        for cell in row:
            if not _USER.fullmatch(cell):
                raise DataError(f'{path}, line {line}: "{cell}" is no user; users are whole numbers from 0')
            if int(cell) >= users:
                raise ConfigError(
                    f'topology.path = "{path}": line {line} names user {cell}, '
                    f"but with users = {users} they are numbered 0 to {users - 1}"
                )
        pairs.append([int(cell) for cell in row])
    return from_pairs(users, np.array(pairs))


def _matrix(path: Path, rows: list[tuple[int, list[str]]], users: int) -> Graph:
    columns = len(rows[0][1])
    if len(rows) != columns:
        raise DataError(
            f"{path}: {_counted(len(rows), 'row')} of {_counted(columns, 'column')}, "
            "where an edge list has 2 columns and a matrix as many rows as columns"
        )
    _check_size(path, columns, users)
    pairs = [
        [sender, receiver]
        for sender, (line, row) in enumerate(rows)
        for receiver, cell in enumerate(row)
        if _number(path, line, cell) != 0.0
    ]
    return from_pairs(users, np.array(pairs, dtype=np.int64).reshape(-1, 2))


def _check_size(path: Path, size: int, users: int) -> None:
    if size != users:
        raise ConfigError(
            f'topology.path = "{path}": a matrix of {_counted(size, "user")}, but users = {users}; they must agree'
        )


def _number(path: Path, line: int, cell: str) -> float:
    try:
        number = float(cell)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise DataError(f'{path}, line {line}: "{cell}" is not a finite number')
    return number


def _rows(path: Path) -> Iterator[tuple[int, list[str]]]:
    """The cells of each line that has any, with the line's number."""
    contents = _contents(path)
    try:
        text = contents.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = contents.count(b"\n", 0, error.start) + 1
        raise DataError(f"{path}, line {line}: not text in UTF-8; a binary matrix must be a .npy file") from error
    # newline=None ends a line wherever an editor would: line feed, carriage return, or both.
    for line, written in enumerate(io.StringIO(text, newline=None), start=1):
        cells = written.partition("#")[0].strip()
        if cells:
            yield line, _SEPARATOR.split(cells)


def _contents(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from error
    except ValueError as error:  # a NUL in the name
        raise DataError(f"{path}: cannot be read: {error}") from error


def _counted(number: int, thing: str) -> str:
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"
