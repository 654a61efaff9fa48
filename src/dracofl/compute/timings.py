"""Where the time went: seconds under a heading. Work of several threads overlaps, so headings add up to more than the
time on the clock."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager


class Timings:
    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._lock = threading.Lock()

    @contextmanager
    def under(self, heading: str) -> Iterator[None]:
        began = time.perf_counter()
        try:
            yield
        finally:
            self.add(heading, time.perf_counter() - began)

    def add(self, heading: str, seconds: float) -> None:
        with self._lock:
            self.seconds[heading] = self.seconds.get(heading, 0.0) + seconds
