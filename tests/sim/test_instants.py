"""Instants that are to coincide do, whatever decimals they are written in."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from timelines import play

from dracofl.clock import multiple
from dracofl.config.load import load_config
from dracofl.tape import Copy, Evaluate


def test_three_times_33_3_is_99_9() -> None:
    assert 3 * 33.3 != 99.9
    assert multiple(3, 33.3) == 99.9


@given(st.integers(0, 10_000), st.integers(1, 100_000), st.integers(1, 1_000))
def test_multiples_of_decimals_meet(count: int, thousandths: int, factor: int) -> None:
    """k times (f d) and (k f) times d are the same instant."""
    step_s = thousandths / 1000
    assert multiple(count, multiple(factor, step_s)) == multiple(count * factor, step_s)


def test_no_unification_happens_at_the_end_of_a_run() -> None:
    played = play(load_config("tiny", ["task.kind=quadratic", "duration_s=99.9", "method.period_s=33.3"]))
    assert {o.at_s for o in played.operations if isinstance(o, Copy)} == {33.3, 66.6}


def test_evaluations_precede_unifications_that_fall_on_the_same_decimal() -> None:
    changes = ["duration_s=0.95", "method.period_s=0.3", "evaluate.every_s=0.1", "compute.rate=20.0"]
    played = play(load_config("tiny", ["task.kind=quadratic", *changes]))
    evaluated = {o.at_s: place for place, o in enumerate(played.operations) if isinstance(o, Evaluate)}
    unified = [(place, o.at_s) for place, o in enumerate(played.operations) if isinstance(o, Copy)]
    assert {at_s for _, at_s in unified} == {0.3, 0.6, 0.9}
    assert all(evaluated[at_s] < place for place, at_s in unified)
