"""How far a neighbour's clock is ahead: never wrong by more than half of the quickest answer's time."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from dracofl.runtime.offsets import Offsets

delays = st.floats(0, 10)


@given(
    st.floats(-1e4, 1e4),
    st.lists(st.tuples(st.floats(0, 1e4), delays, delays), min_size=1, max_size=40),
)
def test_an_offset_is_right_within_half_of_the_quickest_round_trip(
    ahead_s: float, exchanges: list[tuple[float, float, float]]
) -> None:
    offsets = Offsets()
    for asked_s, there_s, back_s in exchanges:
        offsets.note(7, asked_s, asked_s + there_s + back_s, asked_s + there_s + ahead_s)
    quickest_s = min(there_s + back_s for _, there_s, back_s in exchanges[-16:])
    assert abs(offsets.of(7) - ahead_s) <= quickest_s / 2 + 1e-9


@given(st.floats(-1e4, 1e4), delays)
def test_where_both_ways_take_as_long_the_offset_is_exact(ahead_s: float, delay_s: float) -> None:
    offsets = Offsets()
    offsets.note(7, 1.0, 1.0 + 2 * delay_s, 1.0 + delay_s + ahead_s)
    assert math.isclose(offsets.of(7), ahead_s, abs_tol=1e-9)


def test_of_who_never_answered_nothing_is_known() -> None:
    assert math.isnan(Offsets().of(7))


def test_a_clock_that_drifts_away_is_followed_as_old_answers_are_forgotten() -> None:
    offsets = Offsets()
    offsets.note(7, 0.0, 0.0, 5.0)  # the quickest there will ever be
    for second in range(1, 17):
        offsets.note(7, second, second + 0.2, second + 0.1 + 6.0)
    assert math.isclose(offsets.of(7), 6.0)


def test_neighbours_have_clocks_of_their_own_and_a_new_one_after_a_start() -> None:
    offsets = Offsets()
    offsets.note(7, 0.0, 0.0, 5.0)
    offsets.note(8, 0.0, 0.0, -2.0)
    assert (offsets.of(7), offsets.of(8)) == (5.0, -2.0)
    offsets.forget(7)
    offsets.forget(9)
    assert math.isnan(offsets.of(7))
    assert offsets.of(8) == -2.0
