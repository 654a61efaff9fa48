"""From journals to the fate of every message: settled if all are at hand, unknown if only a receiver could tell."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dracofl.runtime.journal import Line
from dracofl.runtime.records import Merged, Records, records_of
from dracofl.trace import EventKind
from dracofl.types import Fate

EPOCHS = {0: 100, 1: 200, 2: 300}


def start(user: int, now_s: float = 0.0, epoch: int = 0) -> Line:
    return ["start", now_s, {"epoch": epoch or EPOCHS[user]}]


def sent(now_s: float, number: int, *receivers: int, fate: str = "", reason: str = "", updates: int = 1) -> Line:
    outcomes = [[receiver, 0.5, EPOCHS[receiver], fate, reason] for receiver in receivers]
    return ["sent", now_s, number, updates, now_s, 40, 0.25, outcomes]


def answered(now_s: float, receiver: int, number: int, outcome: str) -> Line:
    return ["answered", now_s, "UPDATE", receiver, EPOCHS[receiver], [number], outcome, None]


def message(sender: int, receiver: int, number: int, now_s: float) -> list[Any]:
    return [sender, receiver, number, 1, 0.5, 9, 40, now_s - 0.5, now_s - 0.25, now_s]


def update(now_s: float, sender: int, receiver: int, number: int, epoch: int = 0) -> Line:
    epoch = epoch or EPOCHS[sender]
    header = [sender, receiver, epoch, EPOCHS[receiver], number, 1, sender, 0.5, 0.0, 0.0, math.nan, 10]
    return ["update", now_s, header, message(sender, receiver, number, now_s), "digest", "commands"]


def settled(now_s: float, sender: int, receiver: int, number: int, fate: str = "applied", epoch: int = 0) -> Line:
    return ["settled", now_s, epoch or EPOCHS[sender], message(sender, receiver, number, now_s), fate, ""]


def refused(now_s: float, verdict: str, sender: int, number: int, kind: str = "UPDATE") -> Line:
    return ["refused", now_s, verdict, kind, sender, EPOCHS[sender], number, 40]


def records(journals: dict[int, list[Line]], everybody: bool = True) -> Records:
    return records_of(Merged(journals), everybody)


def fates(found: Records) -> dict[tuple[int, int, int], tuple[Fate, str]]:
    return {(row.sender, row.receiver, row.number): (row.fate, row.reason) for row in found.messages}


# Two peers: 0 sends number 0 to 1.

SENDER = [start(0), sent(1.0, 0, 1)]


def with_answer(outcome: str) -> list[Line]:
    return [*SENDER, answered(3.0, 1, 0, outcome)]


def test_a_message_that_was_applied_has_a_row_with_its_times_and_its_age() -> None:
    receiver = [start(1), update(2.0, 0, 1, 0), settled(2.0, 0, 1, 0)]
    found = records({0: with_answer("ACCEPTED"), 1: receiver})
    (row,) = found.messages
    assert (row.fate, row.updates, row.weight, row.bytes) == (Fate.APPLIED, 1, 0.5, 40)
    assert (row.sent_s, row.arrived_s, row.settled_s, row.age_s) == (1.75, 2.0, 2.0, 0.5)
    assert [event.kind for event in found.events] == [EventKind.SENT, EventKind.RECEIVED]
    assert (found.contradictions, found.unsettled) == ([], 0)


ALONE = {
    "ACCEPTED": (Fate.APPLIED, ""),
    "OVER_BUDGET": (Fate.OVER_BUDGET, ""),
    "late": (Fate.LATE, ""),
    "unreachable": (Fate.LOST, "unreachable"),
    "timeout": (Fate.PENDING, "unknown"),
    "NOT_FINITE": (Fate.LOST, "not_finite"),
    "EARLIER_SELF": (Fate.LOST, "earlier_self"),
}


@pytest.mark.parametrize(("outcome", "expected"), ALONE.items(), ids=ALONE)
def test_with_the_senders_journal_alone_the_answer_is_what_is_known(outcome: str, expected: tuple[Fate, str]) -> None:
    found = records({0: with_answer(outcome)}, everybody=False)
    assert fates(found) == {(0, 1, 0): expected}
    assert found.unsettled == (outcome == "timeout")


def test_an_answer_that_did_not_come_is_settled_by_the_receivers_journal() -> None:
    timed_out = with_answer("timeout")
    cases: dict[tuple[Fate, str], list[Line]] = {
        (Fate.LOST, "never arrived"): [],
        (Fate.APPLIED, ""): [update(2.0, 0, 1, 0), settled(2.0, 0, 1, 0)],
        (Fate.OVER_BUDGET, ""): [update(2.0, 0, 1, 0), settled(2.0, 0, 1, 0, "over_budget")],
        (Fate.LOST, "too_large"): [refused(2.0, "TOO_LARGE", 0, 0)],
        (Fate.PENDING, ""): [update(2.0, 0, 1, 0)],  # it is held in a window
    }
    for expected, lines in cases.items():
        found = records({0: timed_out, 1: [start(1), *lines]})
        assert fates(found) == {(0, 1, 0): expected}
        assert (found.unsettled, found.contradictions) == (0, [])


def test_a_message_that_nobody_asked_about_yet_is_pending() -> None:
    assert fates(records({0: SENDER, 1: [start(1)]})) == {(0, 1, 0): (Fate.PENDING, "")}


def test_what_the_radio_in_software_did_not_let_through_is_settled_when_it_is_sent() -> None:
    found = records({0: [start(0), sent(1.0, 0, 1, fate="lost", reason="channel")], 1: [start(1)]})
    (row,) = found.messages
    assert (row.fate, row.reason, row.settled_s) == (Fate.LOST, "channel", 1.0)


def test_a_repetition_is_counted_apart_and_has_no_row() -> None:
    receiver = [start(1), update(2.0, 0, 1, 0), settled(2.0, 0, 1, 0), refused(2.5, "DUPLICATE", 0, 0)]
    found = records({0: with_answer("DUPLICATE"), 1: receiver})
    assert fates(found) == {(0, 1, 0): (Fate.APPLIED, "")}
    assert found.refused == {"duplicate": 1}
    assert found.contradictions == []


def test_refusals_are_counted_by_reason_whoever_sent_them() -> None:
    lines = [start(1), refused(1.0, "STRANGER", 0, 7, kind=""), refused(2.0, "STRANGER", 0, 8, kind="ASK")]
    assert records({1: lines}, everybody=False).refused == {"stranger": 2}


def test_with_the_receivers_journal_alone_what_arrived_is_known_from_the_message() -> None:
    found = records({1: [start(1), update(2.0, 0, 1, 0), settled(2.0, 0, 1, 0)]}, everybody=False)
    (row,) = found.messages
    assert (row.sender, row.fate, row.weight, row.sent_s) == (0, Fate.APPLIED, 0.5, 1.75)
    assert found.contradictions == []


# Several in one


MERGED = [start(0), sent(1.0, 0, 1, 2), sent(1.1, 1, 1, 2), ["merged", 1.1, 1, 0, 1], sent(1.2, 2, 1, 2)]


@pytest.mark.parametrize("outcome", ["ACCEPTED", "OVER_BUDGET", "late", "unreachable", "timeout"])
def test_messages_that_went_in_one_share_its_fate(outcome: str) -> None:
    found = fates(records({0: [*MERGED, answered(2.0, 1, 0, outcome)]}, everybody=False))
    assert found[0, 1, 0] == found[0, 1, 1] == ALONE[outcome]
    assert found[0, 1, 2] == found[0, 2, 1] == (Fate.PENDING, "")  # neither the next nor that to another receiver


def test_messages_that_went_in_one_are_settled_together_by_the_receiver() -> None:
    receiver = [start(1), update(2.0, 0, 1, 0), settled(2.0, 0, 1, 0)]
    found = records({0: [*MERGED, answered(2.5, 1, 0, "timeout")], 1: receiver, 2: [start(2)]})
    assert [row.number for row in found.messages if row.fate == Fate.APPLIED] == [0, 1]
    assert found.contradictions == []


# Restarts


def test_numbers_that_begin_again_with_a_new_epoch_are_other_messages() -> None:
    sender = [start(0), sent(1.0, 0, 1), answered(1.1, 1, 0, "timeout"), start(0, 5.0, 101), sent(6.0, 0, 1)]
    receiver = [
        start(1),
        update(2.0, 0, 1, 0),
        settled(2.0, 0, 1, 0),
        update(7.0, 0, 1, 0, epoch=101),
        settled(7.0, 0, 1, 0, epoch=101),
    ]
    found = records({0: sender, 1: receiver})
    assert [row.settled_s for row in found.messages] == [2.0, 7.0]
    assert found.contradictions == []


def test_lines_of_one_peer_keep_their_order_even_if_its_clock_was_set_back() -> None:
    lines = [start(0, 0.0), ["finished", 10.0, 0], ["finished", 4.0, 1], ["finished", 11.0, 2]]
    merged = Merged({0: lines, 1: [["finished", 5.0, 0], ["finished", 10.5, 1]]})
    assert [line for user, line in merged if user == 0] == lines
    assert [(user, line[1]) for user, line in merged] == [(0, 0.0), (1, 5.0), (0, 10.0), (0, 4.0), (1, 10.5), (0, 11.0)]


def test_what_arrives_before_it_was_sent_by_a_clock_that_is_ahead_is_settled_all_the_same() -> None:
    found = records({0: [start(0), sent(9.0, 0, 1)], 1: [start(1), update(2.0, 0, 1, 0), settled(2.0, 0, 1, 0)]})
    assert fates(found) == {(0, 1, 0): (Fate.APPLIED, "")}
    assert found.contradictions == []


def test_lines_after_the_end_do_not_count() -> None:
    found = records_of(Merged({0: [start(0), sent(1.0, 0, 1), sent(2.0, 1, 1)]}), everybody=False, end_s=2.0)
    assert [row.number for row in found.messages] == [0]


# Doctored journals


def test_a_message_that_was_applied_and_never_sent_is_a_contradiction() -> None:
    found = records({0: [start(0)], 1: [start(1), update(2.0, 0, 1, 0), settled(2.0, 0, 1, 0)]})
    (contradiction,) = found.contradictions
    assert "sender=0" in contradiction
    assert "never sent" in contradiction


def test_a_message_that_was_applied_twice_is_a_contradiction_and_has_one_row() -> None:
    receiver = [start(1), update(2.0, 0, 1, 0), settled(2.0, 0, 1, 0), update(3.0, 0, 1, 0), settled(3.0, 0, 1, 0)]
    found = records({0: SENDER, 1: receiver})
    assert len(found.messages) == 1
    assert len(found.contradictions) == 1
    assert "two fates" in found.contradictions[0]


# The law


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["ACCEPTED", "OVER_BUDGET", "timeout", "late", "unreachable", "none"]), st.booleans()
        ),
        max_size=12,
    )
)
def test_with_all_journals_every_message_meets_exactly_one_fate(story: list[tuple[str, bool]]) -> None:
    sender, receiver = [start(0)], [start(1)]
    for number, (outcome, was_there) in enumerate(story):
        at_s = 1.0 + number
        sender.append(sent(at_s, number, 1))
        arrives = outcome in ("ACCEPTED", "OVER_BUDGET") or (outcome == "timeout" and was_there)
        if arrives:
            fate = "over_budget" if outcome == "OVER_BUDGET" else "applied"
            receiver += [update(at_s + 0.1, 0, 1, number), settled(at_s + 0.1, 0, 1, number, fate)]
        if outcome != "none":
            sender.append(answered(at_s + 0.5, 1, number, outcome))
    found = records({0: sender, 1: receiver})
    assert sorted(row.number for row in found.messages) == list(range(len(story)))
    counts = Counter(row.fate for row in found.messages)
    assert counts[Fate.APPLIED] == sum(line[0] == "settled" and line[4] == "applied" for line in receiver)
    assert (found.contradictions, found.unsettled) == ([], 0)
