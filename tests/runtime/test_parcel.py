"""What waits for a neighbour: sums conserve, nothing is thrown away, and there is never more than there is room for."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dracofl.protocol.headers import Header, Kind, decode, shape_of
from dracofl.runtime.parcel import Outbox, Parcel

SHAPE = shape_of("a model")


def parcel(number: int, kind: Kind = Kind.UPDATE, updates: int = 1, at_s: float = 0.0, value: float = 1.0) -> Parcel:
    length = 0 if kind == Kind.ASK else 2
    header = Header(kind, 1, 2, 30, 40, number, updates, 1, 0.25, at_s, at_s, math.nan, length, SHAPE)
    return Parcel(header, np.full(length, value, np.float32), (number,), at_s + 10.0)


def everything_in(outbox: Outbox) -> list[Parcel]:
    return [outbox.take() for _ in range(len(outbox))]


updates = st.lists(st.tuples(st.integers(1, 9), st.floats(0, 1e4), st.integers(-1000, 1000)), min_size=1, max_size=30)


@given(updates, st.integers(1, 5))
def test_whatever_waits_the_sums_are_conserved(given_updates: list[tuple[int, float, int]], capacity: int) -> None:
    outbox = Outbox(capacity)
    for number, (count, at_s, value) in enumerate(given_updates):
        outbox.put(parcel(number, updates=count, at_s=at_s, value=value))
        assert len(outbox) <= capacity
    found = everything_in(outbox)
    total = sum(count for count, _, _ in given_updates)
    assert sum(one.header.updates for one in found) == total
    assert sum(one.payload.sum() for one in found) == 2 * sum(value for _, _, value in given_updates)
    assert [number for one in found for number in one.numbers] == list(range(len(given_updates)))
    # The mean time of their updates is the mean of all.
    mean_s = sum(one.header.updates * one.header.finished_s for one in found) / total
    assert mean_s == pytest.approx(sum(count * at_s for count, at_s, _ in given_updates) / total)


@given(updates, st.integers(1, 5), st.lists(st.booleans(), max_size=60))
def test_every_update_is_put_once_and_taken_once_in_order(
    given_updates: list[tuple[int, float, int]], capacity: int, takes: list[bool]
) -> None:
    outbox, merged, taken = Outbox(capacity), [], []
    for number, (count, at_s, value) in enumerate(given_updates):
        if takes and takes.pop() and len(outbox):
            taken.append(outbox.take())
        said = outbox.put(parcel(number, updates=count, at_s=at_s, value=value))
        if said is not None:
            merged.append(said)
    taken += everything_in(outbox)
    assert [number for one in taken for number in one.numbers] == list(range(len(given_updates)))
    # What was told of merging is what is in the parcels.
    assert merged == [(one.numbers[0], number) for one in taken for number in one.numbers[1:]]
    assert all(one.header.number == one.numbers[0] for one in taken)


def test_a_sum_lives_as_long_as_its_youngest_part_and_goes_to_the_receiver_as_it_is_now() -> None:
    older = parcel(1, at_s=0.0)
    newer = Parcel(
        older.header._replace(number=2, to_epoch=41, offset_s=3.0, finished_s=6.0), older.payload, (2,), 16.0
    )
    joined = older.joined_by(newer)
    assert (joined.header.number, joined.header.to_epoch, joined.header.offset_s) == (1, 41, 3.0)
    assert (joined.expires_s, joined.header.finished_s) == (16.0, 3.0)
    np.testing.assert_array_equal(older.payload, [1.0, 1.0])  # others may hold it too


def test_a_newer_model_takes_the_place_of_an_older_one_whatever_the_order() -> None:
    for order in ((3, 4), (4, 3)):
        outbox = Outbox(2)
        for period in order:
            outbox.put(parcel(period, Kind.MODEL))
        assert [one.header.number for one in everything_in(outbox)] == [4]


def test_of_two_models_of_a_period_the_later_one_goes_as_its_hub_ranks_before() -> None:
    outbox = Outbox(2)
    outbox.put(parcel(4, Kind.MODEL, value=1.0))
    outbox.put(parcel(4, Kind.MODEL, value=2.0))
    (found,) = everything_in(outbox)
    assert found.payload[0] == 2.0


def test_one_question_waits_and_it_is_the_last() -> None:
    outbox = Outbox(2)
    outbox.put(parcel(1, Kind.ASK))
    outbox.put(parcel(2, Kind.ASK))
    assert [one.header.number for one in everything_in(outbox)] == [2]


def test_questions_and_models_go_before_updates_and_take_no_room_from_them() -> None:
    outbox = Outbox(1)
    outbox.put(parcel(1))
    outbox.put(parcel(2, Kind.MODEL))
    outbox.put(parcel(3, Kind.ASK))
    assert len(outbox) == 3
    assert [one.header.kind for one in everything_in(outbox)] == [Kind.ASK, Kind.MODEL, Kind.UPDATE]


@given(st.lists(st.sampled_from(Kind), max_size=60), st.integers(1, 4))
def test_an_outbox_never_holds_more_than_its_capacity_one_model_and_one_question(
    kinds: list[Kind], capacity: int
) -> None:
    outbox = Outbox(capacity)
    for number, kind in enumerate(kinds):
        outbox.put(parcel(number, kind))
        assert len(outbox) <= capacity + 2


def test_on_the_wire_numbers_are_little_endian_singles_whatever_they_were() -> None:
    sent = parcel(1)
    odd = Parcel(sent.header, np.array([1.5, -2.0], dtype=">f8"), (1,), 0.0)
    header, numbers = odd.on_the_wire()
    assert isinstance(decode(header, numbers.nbytes, SHAPE, 2), Header)
    np.testing.assert_array_equal(np.frombuffer(numbers.tobytes(), "<f4"), [1.5, -2.0])


def test_numbers_in_order_are_not_copied_for_the_wire() -> None:
    """The transport knows by that whether it has sent them before."""
    sent = parcel(1)
    assert sent.on_the_wire()[1] is sent.payload
