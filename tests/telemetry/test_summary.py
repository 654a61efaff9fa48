"""Every number of a summary, worked out again from the rows in plain Python."""

from __future__ import annotations

import math
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dracofl.telemetry.summary import summarise
from dracofl.telemetry.tables import MetricRow, to_table
from dracofl.trace import EventKind, EventRow, MessageRow
from dracofl.types import Fate

scores = st.floats(-1e6, 1e6)
event_rows = st.builds(
    EventRow,
    st.floats(0, 100),
    st.sampled_from(EventKind),
    st.integers(0, 9),
    st.just(-1),
    st.integers(0, 99),
    st.integers(0, 10**9),
    st.floats(0, 10),
)


@st.composite
def message_rows(draw: st.DrawFn) -> MessageRow:
    fate = draw(st.sampled_from(Fate))
    arrived = fate in (Fate.APPLIED, Fate.OVER_BUDGET) or (fate is Fate.PENDING and draw(st.booleans()))
    age_s = draw(st.floats(0, 50)) if fate is Fate.APPLIED else math.nan
    return MessageRow(0, 1, 0, 1, 1.0, 4, 1.0, 2.0 if arrived else math.nan, 3.0, fate, "", age_s)


@st.composite
def evaluations(draw: st.DrawFn) -> list[MetricRow]:
    users, times = draw(st.integers(1, 4)), draw(st.lists(st.floats(0, 100), max_size=4))
    return [
        MetricRow(time_s, 0, 5, False, user, *(draw(scores) for _ in range(4)), *mean)
        for time_s in sorted(times)
        for mean in [draw(st.tuples(scores, scores, scores))]
        for user in range(users)
    ]


def summary_of(events: list[Any], messages: list[Any], metrics: list[Any]) -> dict[str, Any]:
    tables: dict[str, pa.Table] = {
        "events": to_table("events", events),
        "messages": to_table("messages", messages),
        "metrics": to_table("metrics", metrics),
    }
    return summarise(tables, users=5)


def percentile(values: list[float], share: float) -> float:
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])


def spread(values: list[float]) -> dict[str, float]:
    mean = math.fsum(values) / len(values)
    deviation = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / len(values))
    return {"mean": mean, "std": deviation, "min": min(values), "max": max(values)}


@given(st.lists(event_rows, max_size=20), st.lists(message_rows(), max_size=20))
def test_the_counters(events: list[EventRow], messages: list[MessageRow]) -> None:
    summary = summary_of(events, messages, [])
    count = {kind: sum(row.kind is kind for row in events) for kind in EventKind}
    assert summary["events"] == len(events)
    assert summary["local_updates"] == count[EventKind.FINISHED]
    assert summary["transmissions"] == count[EventKind.SENT]
    assert summary["unifications"] == count[EventKind.UNIFIED]
    assert summary["bytes_sent"] == sum(row.bytes for row in events)
    assert summary["airtime_s"] == pytest.approx(math.fsum(row.airtime_s for row in events))
    fates = {str(fate): sum(row.fate is fate for row in messages) for fate in Fate}
    assert summary["messages"] == {
        "sent": len(messages),
        "delivered": sum(not math.isnan(row.arrived_s) for row in messages),
        **fates,
    }
    assert sum(fates.values()) == summary["messages"]["sent"]


@given(st.lists(message_rows(), max_size=20))
def test_the_age_is_of_what_was_applied(messages: list[MessageRow]) -> None:
    ages = [row.age_s for row in messages if row.fate is Fate.APPLIED]
    found = summary_of([], messages, [])["age_s"]
    if not ages:
        assert found == {"mean": None, "p95": None}
    else:
        assert found["mean"] == pytest.approx(math.fsum(ages) / len(ages))
        assert found["p95"] == pytest.approx(percentile(ages, 0.95))


@given(evaluations())
def test_the_scores_are_those_of_the_last_evaluation(metrics: list[MetricRow]) -> None:
    summary = summary_of([], [], metrics)
    users = 1 + max((row.user for row in metrics), default=0)
    last = metrics[-users:]
    assert summary["evaluations"] == len(metrics) // users
    for name in ("accuracy", "f1", "loss"):
        if not last:
            assert set(summary[name].values()) == {None}
            assert summary["mean_model"][name] is None
        else:
            assert summary[name] == pytest.approx(spread([getattr(row, name) for row in last]), abs=1e-6)
            assert summary["mean_model"][name] == getattr(last[0], f"mean_model_{name}")
    if last:
        mean = math.fsum(row.distance_to_mean for row in last) / users
        assert summary["consensus_distance"] == pytest.approx(mean, abs=1e-6)
    else:
        assert summary["consensus_distance"] is None


@pytest.mark.parametrize("odd", [math.nan, math.inf, -math.inf])
def test_a_number_that_does_not_exist_is_none(odd: float) -> None:
    metrics = [MetricRow(0.0, 0, 0, True, user, odd, odd, odd, odd, odd, odd, odd) for user in range(3)]
    summary = summary_of([], [], metrics)
    assert set(summary["accuracy"].values()) == {None}
    assert summary["mean_model"] == {"accuracy": None, "f1": None, "loss": None}
    assert summary["consensus_distance"] is None


def test_two_evaluations_at_one_instant_are_two() -> None:
    # As happens by events: with the ideal channel all receptions of an update share their instant.
    metrics = [MetricRow(1.0, events, 5, False, user, *[0.5] * 7) for events in (10, 11) for user in range(2)]
    assert summary_of([], [], metrics)["evaluations"] == 2
