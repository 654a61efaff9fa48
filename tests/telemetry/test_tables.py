"""The tables of a run: rows in, the same rows out; and the tables of a run that ended early."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_type_hints

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dracofl.telemetry.folder import RunFolder
from dracofl.telemetry.recorder import Recorder
from dracofl.telemetry.tables import SCHEMAS, MetricRow, concatenate, cut_at, to_table
from dracofl.trace import EventKind, EventRow, MessageRow
from dracofl.types import Fate

END_S = 100.0
times = st.floats(0.0, END_S, exclude_max=True)
numbers = st.floats(allow_nan=True, allow_infinity=True)
small = st.integers(0, 2**31 - 1)
large = st.integers(0, 2**63 - 1)

event_rows = st.builds(
    EventRow, times, st.sampled_from(EventKind), small, st.integers(-1, 9), large, large, st.floats(0, 1e3)
)
metric_rows = st.builds(MetricRow, times, large, small, st.booleans(), small, *[numbers] * 7)


@st.composite
def message_rows(draw: st.DrawFn) -> MessageRow:
    """As the simulator writes them: what is late or lost is settled when sent, the rest on arrival or later."""
    fate = draw(st.sampled_from(Fate))
    sent_s = draw(times)
    arrived_s = draw(st.floats(sent_s, END_S))
    settled_s = draw(st.floats(arrived_s, END_S))
    reason, age_s = "", math.nan
    if fate in (Fate.LATE, Fate.LOST):
        arrived_s, settled_s, reason = math.nan, sent_s, draw(st.sampled_from(["", "random loss"]))
    elif fate is Fate.APPLIED:
        age_s = settled_s - sent_s
    elif fate is Fate.OVER_BUDGET:
        settled_s = arrived_s
    else:
        arrived_s, settled_s = draw(st.sampled_from([math.nan, arrived_s])), END_S
    link = draw(st.tuples(small, small, large, small))
    return MessageRow(*link, draw(st.floats(0, 1)), draw(large), sent_s, arrived_s, settled_s, fate, reason, age_s)


rows_of_a_run = st.fixed_dictionaries(
    {
        "events": st.lists(event_rows, max_size=8),
        "messages": st.lists(message_rows(), max_size=8),
        "metrics": st.lists(metric_rows, max_size=8),
    }
)


def rows_of(table: pa.Table) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in table.to_pylist()]


def same(left: Sequence[tuple[Any, ...]], right: Sequence[tuple[Any, ...]]) -> bool:
    """Equal, where not-a-number equals itself."""
    return list(map(repr, map(plain, left))) == list(map(repr, map(plain, right)))


def plain(row: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(str(value) if isinstance(value, str) else value for value in row)


def tables_of(rows: dict[str, list[tuple[Any, ...]]]) -> dict[str, pa.Table]:
    return {name: to_table(name, of_one) for name, of_one in rows.items()}


@pytest.mark.parametrize(("name", "row"), [("events", EventRow), ("messages", MessageRow), ("metrics", MetricRow)])
def test_the_columns_are_the_fields_of_a_row(name: str, row: Any) -> None:
    assert SCHEMAS[name].names == list(row._fields)
    for field, kind in get_type_hints(row).items():
        column = SCHEMAS[name].field(field).type
        expected = {float: pa.types.is_float64, int: pa.types.is_integer, bool: pa.types.is_boolean}
        assert expected.get(kind, pa.types.is_dictionary)(column), field


@given(rows_of_a_run)
def test_rows_survive_a_table(rows: dict[str, list[tuple[Any, ...]]]) -> None:
    for name, table in tables_of(rows).items():
        assert table.schema == SCHEMAS[name]
        assert same(rows_of(table), rows[name])


@given(rows_of_a_run, st.integers(1, 4))
def test_how_rows_were_taken_in_pieces_leaves_no_mark(rows: dict[str, list[tuple[Any, ...]]], piece: int) -> None:
    recorder, taken = Recorder(), []
    for name, of_one in rows.items():
        for start in range(0, len(of_one), piece):
            recorder.add(name, of_one[start : start + piece])
        taken.append(recorder.take())
    for name in rows:
        whole = concatenate(name, [part[name] for part in taken])
        assert same(rows_of(whole), rows[name])
        assert whole.schema == SCHEMAS[name]


def test_a_recorder_packs_many_rows_and_loses_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dracofl.telemetry.recorder._ROWS_BEFORE_PACKING", 10)
    recorder = Recorder()
    rows = [EventRow(float(n), EventKind.SENT, n, -1, n, 4, 0.5) for n in range(37)]
    for row in rows:
        recorder.add("events", [row])
    assert same(rows_of(recorder.take()["events"]), rows)
    assert len(recorder.take()["events"]) == 0


def test_tables_survive_the_disk_in_parts(tmp_path: Path) -> None:
    rows = [EventRow(n / 3, kind, n, -1, n, 4, 0.1 * n) for n, kind in enumerate(EventKind)]
    folder = RunFolder.create(tmp_path / "run", "")
    halves = [{name: to_table(name, []) for name in SCHEMAS} for _ in range(2)]
    halves[0]["events"], halves[1]["events"] = to_table("events", rows[:2]), to_table("events", rows[2:])
    for number, half in enumerate(halves):
        folder.write_part(number, half)
    assert same(rows_of(folder.read_parts(2)["events"]), rows)
    assert same(rows_of(folder.read_parts(1)["events"]), rows[:2])
    assert [len(table) for table in folder.read_parts(0).values()] == [0, 0, 0]
    folder.write_tables(folder.read_parts(2))
    assert same(rows_of(folder.read_table("events")), rows)
    assert folder.read_table("messages").schema == SCHEMAS["messages"]


def cut_by_hand(row: MessageRow, time_s: float) -> MessageRow:
    """A message as it stood right after this instant, the slow way."""
    if row.arrived_s > time_s:
        row = row._replace(arrived_s=math.nan)
    if row.settled_s > time_s:
        row = row._replace(fate=Fate.PENDING, age_s=math.nan, settled_s=time_s)
    return row


@given(rows_of_a_run, times)
def test_a_cut_leaves_what_was_known_at_that_instant(rows: dict[str, list[Any]], time_s: float) -> None:
    cut = cut_at(tables_of(rows), time_s)
    assert same(rows_of(cut["events"]), [row for row in rows["events"] if row.time_s <= time_s])
    assert same(rows_of(cut["metrics"]), [row for row in rows["metrics"] if row.time_s <= time_s])
    messages = [cut_by_hand(row, time_s) for row in rows["messages"] if row.sent_s <= time_s]
    assert same(rows_of(cut["messages"]), messages)
    for name, table in cut.items():
        assert table.schema == SCHEMAS[name]


@given(rows_of_a_run, times, times)
def test_a_later_cut_before_it_makes_no_difference(rows: dict[str, list[Any]], one_s: float, other_s: float) -> None:
    tables = tables_of(rows)
    early_s, late_s = sorted([one_s, other_s])
    twice, once = cut_at(cut_at(tables, late_s), early_s), cut_at(tables, early_s)
    for name in SCHEMAS:
        assert same(rows_of(twice[name]), rows_of(once[name]))


@given(rows_of_a_run)
def test_a_cut_at_the_end_changes_nothing(rows: dict[str, list[Any]]) -> None:
    for name, table in cut_at(tables_of(rows), END_S).items():
        assert same(rows_of(table), rows[name])


def test_what_happens_at_the_instant_of_the_cut_is_kept() -> None:
    applied = MessageRow(0, 1, 0, 1, 0.5, 4, 1.0, 2.0, 3.0, Fate.APPLIED, "", 2.0)
    tables = {
        "events": to_table("events", [EventRow(3.0, EventKind.SENT, 0, -1, 0, 4, 0.0)]),
        "messages": to_table("messages", [applied]),
        "metrics": to_table("metrics", []),
    }
    cut = cut_at(tables, 3.0)
    assert len(cut["events"]) == 1
    assert same(rows_of(cut["messages"]), [applied])
    just_before = math.nextafter(3.0, 0.0)
    (row,) = rows_of(cut_at(tables, just_before)["messages"])
    assert MessageRow(*row).fate == "pending"
    assert (MessageRow(*row).arrived_s, MessageRow(*row).settled_s) == (2.0, just_before)
