"""What stands before the numbers: what is written is read, and what is wrong is refused for its first wrong thing."""

from __future__ import annotations

import math
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dracofl.protocol.headers import (
    HEADER_BYTES,
    LATEST_EPOCH,
    Answer,
    Header,
    Kind,
    Verdict,
    decode,
    decode_answer,
    encode,
    encode_answer,
    numbers_of_answer,
    shape_of,
)

LENGTH = 3
SHAPE = shape_of("a model")
NUMBERS = struct.pack("<3f", 1.0, -2.0, 0.5)
GOOD = Header(Kind.UPDATE, 1, 2, 30, 40, 5, 6, 1, 0.25, 7.0, 8.0, math.nan, LENGTH, SHAPE)

u32, u64 = st.integers(0, 2**32 - 1), st.integers(0, 2**64 - 1)
epochs, counts = st.integers(0, LATEST_EPOCH), st.integers(0, 2**40 - 1)
finite = st.floats(allow_nan=False, allow_infinity=False)
times = st.floats(-1e13, 1e13)


@st.composite
def headers(draw: st.DrawFn) -> Header:
    kind = draw(st.sampled_from(Kind))
    is_update = kind == Kind.UPDATE
    return Header(
        kind,
        sender=draw(u32),
        receiver=draw(u32),
        epoch=draw(epochs),
        to_epoch=draw(u64),
        number=draw(u64 if kind == Kind.ASK else counts),
        updates=draw(st.integers(1, 2**31 - 1) if is_update else u32),
        hub=draw(u32),
        weight=draw(st.floats(0.0, 1.0, exclude_min=True) if is_update else finite),
        finished_s=draw(times),
        sent_s=draw(times),
        offset_s=draw(st.one_of(times, st.just(math.nan))),
        length=0 if kind == Kind.ASK else LENGTH,
        shape=SHAPE,
    )


def message(header: Header, numbers: bytes | None = None) -> bytes:
    if numbers is None:
        numbers = b"" if header.kind == Kind.ASK else NUMBERS
    return encode(header) + numbers


def verdict(data: bytes) -> Header | Verdict:
    return decode(data[:HEADER_BYTES], max(0, len(data) - HEADER_BYTES), SHAPE, LENGTH)


@given(headers())
def test_a_header_comes_out_as_it_went_in(header: Header) -> None:
    found = verdict(message(header))
    assert isinstance(found, Header)
    assert str(found) == str(header)  # as texts, for what is not a number


@given(headers())
def test_a_header_is_of_one_length(header: Header) -> None:
    assert len(encode(header)) == HEADER_BYTES


@given(headers(), st.integers(1, 200))
def test_a_message_that_was_cut_or_lengthened_is_refused(header: Header, by: int) -> None:
    whole = message(header)
    assert verdict(whole[:-by]) == Verdict.SIZE
    assert verdict(whole + bytes(by)) == Verdict.SIZE


@given(headers(), st.integers(1, 200))
def test_a_header_that_is_too_long_is_refused(header: Header, by: int) -> None:
    assert decode(encode(header) + bytes(by), 4 * header.length, SHAPE, LENGTH) == Verdict.SIZE


@given(st.binary(max_size=300))
def test_any_bytes_have_a_verdict(data: bytes) -> None:
    assert isinstance(verdict(data), Verdict)


@given(headers(), st.data())
def test_a_flipped_bit_makes_another_header_or_none(header: Header, data: st.DataObject) -> None:
    whole = bytearray(message(header))
    whole[data.draw(st.integers(0, len(whole) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    assert isinstance(verdict(bytes(whole)), Header | Verdict)


def with_bytes(place: int, new: bytes) -> bytes:
    whole = bytearray(message(GOOD))
    whole[place : place + len(new)] = new
    return bytes(whole)


def test_the_good_one_is_good() -> None:
    assert isinstance(verdict(message(GOOD)), Header)


REFUSED = {
    "nothing": (b"", Verdict.SIZE),
    "half a header": (message(GOOD)[: HEADER_BYTES - 1], Verdict.SIZE),
    "another protocol": (with_bytes(0, b"HTTP"), Verdict.VERSION),
    "another version": (with_bytes(4, b"\x01"), Verdict.VERSION),
    "another kind": (with_bytes(6, b"\x09"), Verdict.SENSELESS),
    "another model": (message(GOOD._replace(shape=shape_of("another model"))), Verdict.SHAPE),
    "a model of another length": (message(GOOD._replace(length=2), NUMBERS[:8]), Verdict.SIZE),
    "a length that is a lie": (message(GOOD._replace(length=2)), Verdict.SIZE),
    "fewer numbers than it says": (message(GOOD, NUMBERS[:-4]), Verdict.SIZE),
    "a question with numbers": (message(GOOD._replace(kind=Kind.ASK)), Verdict.SIZE),
    "a question with numbers it does not tell of": (
        message(GOOD._replace(kind=Kind.ASK, length=0), b"1234"),
        Verdict.SIZE,
    ),
    "a weight that is not a number": (message(GOOD._replace(weight=math.nan)), Verdict.SENSELESS),
    "an endless weight": (message(GOOD._replace(weight=math.inf)), Verdict.SENSELESS),
    "no weight": (message(GOOD._replace(weight=0.0)), Verdict.SENSELESS),
    "a negative weight": (message(GOOD._replace(weight=-0.5)), Verdict.SENSELESS),
    "a weight above all": (message(GOOD._replace(weight=1.5)), Verdict.SENSELESS),
    "no updates": (message(GOOD._replace(updates=0)), Verdict.SENSELESS),
    "more updates than a table holds": (message(GOOD._replace(updates=2**31)), Verdict.SENSELESS),
    "an epoch of nobody": (message(GOOD._replace(epoch=LATEST_EPOCH + 1)), Verdict.SENSELESS),
    "a number nobody counts to": (message(GOOD._replace(number=2**40)), Verdict.SENSELESS),
    "a model of no weight at all": (message(GOOD._replace(kind=Kind.MODEL, weight=math.nan)), Verdict.SENSELESS),
    "clocks an age apart": (message(GOOD._replace(offset_s=-math.inf)), Verdict.SENSELESS),
    "finished at no time": (message(GOOD._replace(finished_s=math.nan)), Verdict.SENSELESS),
    "sent at the end of time": (message(GOOD._replace(sent_s=math.inf)), Verdict.SENSELESS),
}


@pytest.mark.parametrize(("data", "expected"), REFUSED.values(), ids=REFUSED)
def test_what_is_wrong_is_refused_for_what_it_is(data: bytes, expected: Verdict) -> None:
    assert verdict(data) == expected


def test_of_several_wrong_things_the_cheapest_to_find_is_told() -> None:
    worse = GOOD._replace(weight=math.nan)  # each one wrong in one more way than the one before
    assert verdict(message(worse)) == Verdict.SENSELESS
    assert verdict(message(worse, b"")) == Verdict.SIZE
    worse = worse._replace(shape=shape_of("another model"))
    assert verdict(message(worse, b"")) == Verdict.SHAPE
    broken = bytearray(message(worse, b""))
    broken[6] = 9
    assert verdict(bytes(broken)) == Verdict.SENSELESS
    broken[4] = 9
    assert verdict(bytes(broken)) == Verdict.VERSION
    assert verdict(bytes(broken[:-1])) == Verdict.SIZE


def test_the_weight_and_the_count_of_a_model_mean_nothing() -> None:
    assert isinstance(verdict(message(GOOD._replace(kind=Kind.MODEL, weight=7.0, updates=0))), Header)


def test_shapes_differ_by_every_part() -> None:
    shapes = {shape_of(3, "a"), shape_of(3, "b"), shape_of(4, "a"), shape_of("3", "a"), shape_of(3), shape_of()}
    assert len(shapes) == 6
    assert {len(shape) for shape in shapes} == {8}


# Answers


@given(st.sampled_from(Verdict), epochs, counts, times, st.booleans())
def test_an_answer_comes_out_as_it_went_in(
    said: Verdict, epoch: int, number: int, now_s: float, brings_model: bool
) -> None:
    answer = Answer(said, epoch, number, now_s, LENGTH if brings_model else 0)
    data = encode_answer(answer) + (NUMBERS if brings_model else b"")
    assert decode_answer(data, LENGTH) == answer
    assert bytes(numbers_of_answer(data)) == (NUMBERS if brings_model else b"")


@given(st.binary(max_size=80))
def test_any_bytes_are_an_answer_or_none(data: bytes) -> None:
    assert decode_answer(data, LENGTH) is None


ANSWER = encode_answer(Answer(Verdict.ACCEPTED, 1, 2, 3.0, LENGTH)) + NUMBERS
SENSELESS = {
    "cut in its head": ANSWER[:10],
    "cut in its numbers": ANSWER[:-1],
    "too long": ANSWER + b"1",
    "another protocol": b"HTTP" + ANSWER[4:],
    "another version": ANSWER[:4] + b"\x09" + ANSWER[5:],
    "a verdict that does not exist": ANSWER[:6] + bytes([len(Verdict)]) + ANSWER[7:],
    "a clock that is not a number": encode_answer(Answer(Verdict.ACCEPTED, 1, 2, math.nan, 0)),
    "an epoch of nobody": encode_answer(Answer(Verdict.ACCEPTED, LATEST_EPOCH + 1, 2, 3.0, 0)),
    "a model of a period nobody counts to": encode_answer(Answer(Verdict.ACCEPTED, 1, 2**40, 3.0, LENGTH)) + NUMBERS,
    "a model of another length": encode_answer(Answer(Verdict.ACCEPTED, 1, 2, 3.0, 2)) + NUMBERS[:8],
}


@pytest.mark.parametrize("data", SENSELESS.values(), ids=SENSELESS)
def test_an_answer_that_makes_no_sense_is_none(data: bytes) -> None:
    assert decode_answer(data, LENGTH) is None
