"""The row-stochastic weights q(i -> j): each sender's row sums to 1 over its out-neighbours."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from dracofl.errors import ConfigError, DataError
from dracofl.types import Graph

Rows: TypeAlias = Sequence[tuple[float, ...] | None]
"""For each sender, the weight of each out-neighbour in the graph's order; None where it is decided at sending."""

_ROW_TOLERANCE = 1e-6


def weight_rows(rule: str, graph: Graph) -> Rows:
    """`rule` is "uniform", "delivered", or the path of a file that holds the matrix."""
    if rule == "delivered":
        return [None] * graph.users
    if rule == "uniform":
        degrees = [len(receivers) for receivers in graph.successors]
        rows = {
            degree: (1.0 / degree,) * degree if degree else () for degree in set(degrees)
        }  # shared, as they are few
        return [rows[degree] for degree in degrees]
    return _rows_of_matrix(_read_matrix(Path(rule)), graph, rule)


def _read_matrix(path: Path) -> npt.NDArray[np.float64]:
    try:
        if path.suffix == ".npy":
            loaded = np.load(path, allow_pickle=False)
            if loaded.dtype.kind not in "biuf":
                raise ValueError(f"its entries are of type {loaded.dtype}")
            return np.asarray(loaded, dtype=np.float64)
        text = path.read_text()
        if not text.strip():
            raise ValueError("it is empty")
        return np.loadtxt(text.splitlines(), delimiter="," if "," in text else None, ndmin=2)
    except OSError as error:
        raise DataError(
            f'method.weights = "{path}": {error.strerror or error}; give "uniform", "delivered" or a readable file'
        ) from None
    except (ValueError, EOFError) as error:
        raise DataError(f'method.weights = "{path}" is not a matrix of numbers: {error}') from None


def _rows_of_matrix(matrix: npt.NDArray[np.float64], graph: Graph, rule: str) -> Rows:
    users = graph.users
    if matrix.shape != (users, users):
        raise ConfigError(
            f'method.weights = "{rule}" holds a {matrix.shape} matrix; {users} users need ({users}, {users})'
        )
    problems = []
    for sender, row in enumerate(matrix):
        named = set(np.flatnonzero(row).tolist())
        strangers = sorted(named - set(graph.successors[sender]))
        if strangers:
            problems.append(
                f'method.weights = "{rule}": row {sender} weighs {strangers[:5]}, no out-neighbours of user {sender} '
                "(its own share is method.own_weight, not the diagonal)"
            )
        if not np.isfinite(row).all() or (row < 0).any():
            problems.append(f'method.weights = "{rule}": row {sender} has an entry that is negative or not a number')
        elif graph.successors[sender] and abs(row.sum() - 1.0) > _ROW_TOLERANCE:
            problems.append(f'method.weights = "{rule}": row {sender} sums to {row.sum():.9g}; every row must sum to 1')
    if problems:
        raise ConfigError(problems)
    return [tuple(matrix[sender, list(receivers)].tolist()) for sender, receivers in enumerate(graph.successors)]
