"""Instants that recur: the k-th multiple of a time, exact in decimals.

3 * 33.3 is 99.89999999999999 in binary floats, a hair before 99.9. A period that ends there would come before an
evaluation, or the end of the run, that it is to coincide with.
"""

from __future__ import annotations

import functools
from fractions import Fraction


@functools.lru_cache(maxsize=256)  # asked at every event when the next evaluation is due
def multiple(count: int, step_s: float) -> float:
    """The float nearest to count times step_s, with step_s taken as the decimal that it is written as."""
    return float(count * Fraction(repr(step_s)))
