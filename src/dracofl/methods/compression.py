"""How many bytes a compressed model takes: fixed-width coding, so that the size never depends on the values."""

from __future__ import annotations

import math

from dracofl.tape import Compression

_INDEX_BYTES = _VALUE_BYTES = 4
_SEED_BYTES = 8


def compressed_bytes(compression: Compression, parameters: int, whole_bytes: int) -> int:
    """In proportion, where a whole model is said to take other than 4 bytes a parameter."""
    return math.ceil(_raw_bytes(compression, parameters) * whole_bytes / (_VALUE_BYTES * parameters))


def _raw_bytes(compression: Compression, parameters: int) -> int:
    match compression.kind:
        case "top-k":  # which entries, and their values
            return compression.amount * (_INDEX_BYTES + _VALUE_BYTES)
        case "random-k":  # the receiver draws the same entries from the seed
            return compression.amount * _VALUE_BYTES + _SEED_BYTES
        case "qsgd":  # the norm; a sign and a level for each entry
            bits = 1 + math.ceil(math.log2(compression.amount + 1))
            return _VALUE_BYTES + math.ceil(parameters * bits / 8)
