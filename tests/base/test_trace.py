"""The hash of a trace: sensitive to every field of every row, blind to how the rows were handed over."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter

from dracofl.trace import EventKind, EventRow, MessageRow, Rows, TraceHash, TraceState
from dracofl.types import Fate

BLOCK = 1024
AROUND_BLOCKS = [0, 1, 2, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK - 1, 2 * BLOCK, 2 * BLOCK + 1]

KINDS, FATES = list(EventKind), list(Fate)


def event(number: int) -> EventRow:
    kind = KINDS[number % len(KINDS)]
    return EventRow(number / 7.0, kind, number % 25, number % 3 - 1, number, 51_640, number / 1000.0)


def message(number: int) -> MessageRow:
    fate = FATES[number % len(FATES)]
    arrived_s = math.nan if fate in (Fate.LATE, Fate.LOST) else number / 7.0 + 0.1
    reason = "random loss" if fate is Fate.LOST else ""
    age_s = 0.1 if fate is Fate.APPLIED else math.nan
    return MessageRow(
        number % 25, number % 24, number, 1, 1 / 24, 51_640, number / 7.0, arrived_s, number / 3.0, fate, reason, age_s
    )


def events(count: int) -> list[EventRow]:
    return [event(number) for number in range(count)]


def messages(count: int) -> list[MessageRow]:
    return [message(number) for number in range(count)]


def digest(event_rows: Iterable[EventRow], message_rows: Iterable[MessageRow]) -> str:
    trace = TraceHash()
    trace.add(event_rows, message_rows)
    return trace.hexdigest()


def saved_and_restored(trace: TraceHash) -> TraceHash:
    text = json.dumps(dataclasses.asdict(trace.state))
    restored = TraceHash()
    restored.state = TypeAdapter(TraceState).validate_python(json.loads(text))
    return restored


# How rows are handed over leaves no mark


@given(
    event_count=st.integers(0, 2 * BLOCK + 200),
    message_count=st.integers(0, 2 * BLOCK + 200),
    cuts=st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1), st.booleans()), max_size=4),
)
@settings(deadline=None, max_examples=30)
def test_any_way_of_handing_over_the_same_rows_gives_the_same_hash(
    event_count: int, message_count: int, cuts: list[tuple[float, float, bool]]
) -> None:
    event_rows, message_rows = events(event_count), messages(message_count)
    event_ends = [*sorted(int(share * event_count) for share, _, _ in cuts), event_count]
    message_ends = [*sorted(int(share * message_count) for _, share, _ in cuts), message_count]
    saves = [*(save for _, _, save in cuts), True]
    trace = TraceHash()
    event_start = message_start = 0
    for event_end, message_end, save in zip(event_ends, message_ends, saves, strict=True):
        trace.add(event_rows[event_start:event_end], message_rows[message_start:message_end])
        event_start, message_start = event_end, message_end
        if save:
            trace = saved_and_restored(trace)
    assert trace.hexdigest() == digest(event_rows, message_rows)


@pytest.mark.parametrize("count", AROUND_BLOCKS)
def test_rows_one_by_one_or_all_at_once_are_the_same(count: int) -> None:
    trace = TraceHash()
    for number in range(count):
        trace.add([event(number)], [])
    for number in range(count):
        trace.add([], [message(number)])
    assert trace.hexdigest() == digest(events(count), messages(count))


@pytest.mark.parametrize("count", AROUND_BLOCKS)
def test_saving_at_the_edge_of_a_block_leaves_no_mark(count: int) -> None:
    trace = TraceHash()
    trace.add(events(count), messages(count))
    trace = saved_and_restored(trace)
    trace.add([event(count)], [message(count)])
    assert trace.hexdigest() == digest(events(count + 1), messages(count + 1))


def test_asking_for_the_hash_does_not_change_it() -> None:
    trace = TraceHash()
    for number in range(10):
        assert trace.hexdigest() == trace.hexdigest()
        trace.add([event(number)], [message(number)])
    assert trace.hexdigest() == digest(events(10), messages(10))


def test_a_saved_state_is_never_longer_than_a_block() -> None:
    trace = TraceHash()
    for count in [3 * BLOCK + 5, BLOCK, 7]:
        trace.add(events(count), messages(count))
        assert len(Rows(EventRow, trace.state.events)) < BLOCK
        assert len(Rows(MessageRow, trace.state.messages)) < BLOCK


def test_a_restored_state_holds_the_same_rows() -> None:
    trace = TraceHash()
    trace.add(events(20), messages(20))
    state = saved_and_restored(trace).state
    # By text, for the entries that are not numbers.
    assert repr(list(Rows(EventRow, state.events))) == repr(events(20))
    assert repr(list(Rows(MessageRow, state.messages))) == repr(messages(20))


def test_rows_are_named_when_looked_at() -> None:
    flat = Rows(EventRow)
    for row in events(5):
        flat.flat.extend((row[0], str(row.kind), *row[2:]))
    assert len(flat) == 5
    assert list(flat) == events(5)
    assert all(type(row) is EventRow and type(row.kind) is EventKind for row in flat)
    assert digest(flat, Rows(MessageRow)) == digest(events(5), [])


def test_the_rows_handed_over_are_left_alone() -> None:
    event_rows, message_rows = events(BLOCK + 3), messages(BLOCK + 3)
    digest(event_rows, message_rows)
    assert (len(event_rows), len(message_rows)) == (BLOCK + 3, BLOCK + 3)


# Every field of every row matters


def changed(value: Any) -> list[Any]:
    """Values near this one, each of which is another."""
    if isinstance(value, EventKind | Fate):
        return [other for other in type(value) if other != value]
    if isinstance(value, str):
        return [value + "x", "y" + value]
    if isinstance(value, int):
        return [value + 1, value - 1, value + 2**40]
    if math.isnan(value):
        return [0.0, math.inf]
    return [math.nextafter(value, math.inf), -1.0 - value, math.nan]


@pytest.mark.parametrize("place", [0, 1, BLOCK - 1, BLOCK, BLOCK + 1, BLOCK + 6])
@pytest.mark.parametrize("field", EventRow._fields)
def test_any_change_to_an_event_changes_the_hash(field: str, place: int) -> None:
    rows = events(BLOCK + 7)
    before = digest(rows, messages(3))
    for value in changed(getattr(rows[place], field)):
        other = [*rows[:place], rows[place]._replace(**{field: value}), *rows[place + 1 :]]
        assert digest(other, messages(3)) != before


@pytest.mark.parametrize("place", [0, 1, BLOCK - 1, BLOCK, BLOCK + 1, BLOCK + 6])
@pytest.mark.parametrize("field", MessageRow._fields)
def test_any_change_to_a_message_changes_the_hash(field: str, place: int) -> None:
    rows = messages(BLOCK + 7)
    before = digest(events(3), rows)
    for value in changed(getattr(rows[place], field)):
        other = [*rows[:place], rows[place]._replace(**{field: value}), *rows[place + 1 :]]
        assert digest(events(3), other) != before


@pytest.mark.parametrize("place", [0, BLOCK - 2, BLOCK - 1, BLOCK, BLOCK + 5])
def test_the_order_of_rows_matters(place: int) -> None:
    event_rows, message_rows = events(BLOCK + 7), messages(BLOCK + 7)
    before = digest(event_rows, message_rows)
    for rows in (event_rows, message_rows):
        swapped: list[Any] = [*rows]
        swapped[place], swapped[place + 1] = swapped[place + 1], swapped[place]
        assert before != (digest(swapped, message_rows) if rows is event_rows else digest(event_rows, swapped))


def test_traces_of_different_length_have_different_hashes() -> None:
    counts = [0, 1, 2, 3, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK, 2 * BLOCK + 1]
    hashes = {digest(events(a), messages(b)) for a in counts for b in counts}
    assert len(hashes) == len(counts) ** 2


def test_a_repeated_row_changes_the_hash() -> None:
    for count in [1, BLOCK, BLOCK + 1]:
        assert digest([*events(count), event(count - 1)], []) != digest(events(count), [])
        assert digest([], [*messages(count), message(count - 1)]) != digest([], messages(count))
