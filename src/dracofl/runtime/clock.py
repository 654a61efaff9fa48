"""A peer's own clock, in seconds of the configuration."""

from __future__ import annotations

import time


class PeerClock:
    """Second 0 is at `starts_at` (Unix time), and `time_scale` seconds pass in a real one.

    The machine's wall clock is read once. After that only the steady one counts: a wall clock that is set while the
    peer runs must not move its timers.
    """

    def __init__(self, starts_at: float, time_scale: float) -> None:
        self.time_scale = time_scale
        self._origin = time.monotonic() - (time.time() - starts_at)

    def now_s(self) -> float:
        return (time.monotonic() - self._origin) * self.time_scale

    def real_s(self, duration_s: float) -> float:
        """How long that is by a watch."""
        return duration_s / self.time_scale
