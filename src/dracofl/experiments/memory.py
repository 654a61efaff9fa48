"""What a peer tells GNU's C library about memory. With another C library nothing happens."""

from __future__ import annotations

import contextlib
import ctypes
import gc

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # of mallopt(3)
_KEPT_BYTES = 64 * 1024 * 1024


def give_back() -> None:
    """To the operating system, what was needed for a while: compiling takes much, and a peer runs for days."""
    gc.collect()
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def keep_blocks() -> None:
    """Vectors come and go with every message. Fetched anew from the operating system page by page, they take several
    times as long as everything that is done with them."""
    with contextlib.suppress(OSError, AttributeError):
        library = ctypes.CDLL(None)
        library.mallopt(_MMAP_THRESHOLD, _KEPT_BYTES)
        library.mallopt(_TRIM_THRESHOLD, _KEPT_BYTES)
