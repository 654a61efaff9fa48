"""How far the neighbours' clocks are ahead of ours, estimated from the times at which they answer.

The clocks of two machines are never compared as they are. Who asks at t0 and gets at t1 the answer "it is s here" knows
the other clock to be ahead by s - (t0 + t1) / 2, wrong by at most half of t1 - t0; so of the last answers the
quickest one is believed (Mills, RFC 5905, section 10).
"""

from __future__ import annotations

import math
from collections import deque

_KEPT = 16


class Offsets:
    def __init__(self) -> None:
        self._samples: dict[int, deque[tuple[float, float]]] = {}  # of each neighbour: time taken, offset

    def note(self, neighbour: int, asked_s: float, answered_s: float, their_now_s: float) -> None:
        samples = self._samples.setdefault(neighbour, deque(maxlen=_KEPT))
        samples.append((answered_s - asked_s, their_now_s - 0.5 * (asked_s + answered_s)))

    def forget(self, neighbour: int) -> None:
        """It was started again, and its clock with it."""
        self._samples.pop(neighbour, None)

    def of(self, neighbour: int) -> float:
        """Its clock minus ours; not a number if it never answered."""
        samples = self._samples.get(neighbour)
        return min(samples)[1] if samples else math.nan
