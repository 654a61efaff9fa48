"""Memory that was needed for a while and is not any more, given back to the operating system."""

from __future__ import annotations

import ctypes
import gc


def give_back() -> None:
    """After compiling, say: a peer runs for days beside others. Where the C library is not GNU's, nothing happens."""
    gc.collect()
    try:
        trim = ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError):
        return
    trim(0)
