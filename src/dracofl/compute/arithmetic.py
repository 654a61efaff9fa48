"""What the tape asks of vectors beside training, in NumPy and float32: in place, and without a dispatch a message.

The bits of these are the bits of DRACO: the compiled executor is held against them, and real peers use them.
"""

from __future__ import annotations

import math

import numpy as np

from dracofl.tape import Combine, Copy, Free

PLAIN = (Combine, Copy, Free)
"""What `play` plays."""
_ROW = 8192  # numbers: too few for a BLAS to use several threads, whose number would change the last bits


def play(vectors: dict[int, np.ndarray], operation: Combine | Copy | Free) -> None:
    if isinstance(operation, Combine):
        _combine(vectors, operation)
    elif isinstance(operation, Copy):
        vectors[operation.destination] = vectors[operation.source].copy()
    else:
        del vectors[operation.vector]


def _combine(vectors: dict[int, np.ndarray], operation: Combine) -> None:
    destination, terms = operation.destination, operation.terms
    first, first_weight = terms[0]
    others = terms[1:]
    if first == destination and first_weight == 1.0 and destination not in [source for source, _ in others]:
        total = vectors[destination]
        if not total.flags.writeable:  # straight from JAX, or from the network
            total = vectors[destination] = total.copy()
    else:
        total = np.float32(first_weight) * vectors[first]
    for source, weight in others:
        total += np.float32(weight) * vectors[source]
    vectors[destination] = total


def sum_of_squares(numbers: np.ndarray) -> float:
    """In one pass and in float32: not finite if one of the numbers is not, or if they are very large."""
    flat = numbers.reshape(-1)
    whole = len(flat) // _ROW * _ROW
    rows, rest = flat[:whole].reshape(-1, _ROW), flat[whole:]
    with np.errstate(over="ignore", invalid="ignore"):
        return float(np.add.reduce(np.vecdot(rows, rows)) + np.vecdot(rest, rest))


def are_finite(numbers: np.ndarray) -> bool:
    # The sum of squares suspects; the exact test runs only then, as large finite numbers overflow it.
    return math.isfinite(sum_of_squares(numbers)) or bool(np.isfinite(numbers).all())
