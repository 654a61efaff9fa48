"""What is told to those who look after memory: Python's collector, and GNU's C library (with another one, nothing)."""

from __future__ import annotations

import contextlib
import ctypes
import gc
from collections.abc import Iterator

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # of mallopt(3)
_KEPT_BYTES = 64 * 1024 * 1024


@contextlib.contextmanager
def few_collections(young_objects: int = 50_000) -> Iterator[None]:
    """What is there, a large network or all of JAX, is there to stay: the collector does not look through it again and
    again. And it looks less often, not after every 700 `young_objects`, as next to nothing of what comes is garbage
    that only it would find."""
    usual = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(young_objects, *usual[1:])
    try:
        yield
    finally:
        gc.set_threshold(*usual)
        gc.unfreeze()


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
