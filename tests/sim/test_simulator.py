"""The order of events, when evaluations happen, and whose luck depends on what."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from timelines import Timeline, configurations, play

from dracofl.build import build_simulator, build_world
from dracofl.config.load import load_config
from dracofl.config.schema import Config
from dracofl.tape import Copy, Evaluate, Train
from dracofl.trace import EventKind
from dracofl.types import Fate


def timeline(*overrides: str) -> Timeline:
    return play(load_config("tiny", ["task.kind=quadratic", *overrides]))


def evaluations(played: Timeline) -> list[Evaluate]:
    return [operation for operation in played.operations if isinstance(operation, Evaluate)]


@given(configurations())
@settings(max_examples=60)
def test_time_never_runs_backwards_and_nothing_happens_at_the_end(config: Config) -> None:
    played = play(config)
    times = [event.time_s for event in played.events]
    assert times == sorted(times)
    assert all(0.0 <= time_s < config.duration_s for time_s in times)
    stamps = [operation.at_s for operation in played.operations if hasattr(operation, "at_s")]
    assert stamps == sorted(stamps)
    assert evaluations(played)[-1] == Evaluate(config.duration_s, len(played.events), final=True)


def test_evaluations_are_taken_at_every_multiple_and_once_at_the_end() -> None:
    played = timeline("evaluate.every_s=50", "duration_s=200")
    assert [(one.at_s, one.final) for one in evaluations(played)] == [
        (0.0, False),
        (50.0, False),
        (100.0, False),
        (150.0, False),
        (200.0, True),
    ]


def test_an_evaluation_by_time_comes_before_a_unification_at_the_same_instant() -> None:
    played = timeline("evaluate.every_s=100", "method.period_s=100", "duration_s=250")
    kinds = [
        "evaluation" if isinstance(operation, Evaluate) else "unification"
        for operation in played.operations
        if isinstance(operation, Evaluate | Copy) and operation.at_s == 100.0
    ]
    assert kinds[0] == "evaluation"
    assert set(kinds[1:]) == {"unification"}


def test_evaluations_by_events_follow_every_so_many_events() -> None:
    played = timeline("evaluate.every_s=none", "evaluate.every_events=100", "method.period_s=none", "method.psi=none")
    counts = [one.events for one in evaluations(played)[1:-1]]
    # An update and its transmission happen at one instant and are not torn apart.
    assert [count // 100 for count in counts] == list(range(1, len(played.events) // 100 + 1))
    assert all(count % 100 in (0, 1) for count in counts)


def test_an_evaluation_by_events_that_falls_on_a_unification_is_taken_just_before_it() -> None:
    quiet = ("compute.rate=0.000001", "method.period_s=10", "duration_s=45", "evaluate.every_s=none")
    played = timeline(*quiet, "evaluate.every_events=1")
    first_copy = next(i for i, operation in enumerate(played.operations) if isinstance(operation, Copy))
    assert isinstance(played.operations[first_copy - 1], Evaluate)
    assert played.operations[first_copy - 1].at_s == 10.0
    assert len(evaluations(played)) == 1 + 4 + 1  # the start, four unifications, the end


def test_at_one_instant_a_unification_comes_before_everything_else() -> None:
    # Sent at t with a fixed delay, a message arrives exactly when some period ends.
    first_s = next(event.time_s for event in timeline("channel.kind=ideal").events)
    played = timeline(
        "channel.kind=lossy", "channel.loss=0", f"channel.delay_s={30.0 - first_s!r}", "method.period_s=30"
    )
    at_the_end = [event.kind for event in played.events if event.time_s == 30.0]
    assert at_the_end[0] is EventKind.UNIFIED
    assert EventKind.RECEIVED in at_the_end


def test_events_are_updates_transmissions_receptions_and_unifications() -> None:
    played = timeline("method.unification=radio", "channel.kind=lossy", "channel.loss=0.5")
    counts = {kind: sum(event.kind is kind for event in played.events) for kind in EventKind}
    assert counts[EventKind.FINISHED] == counts[EventKind.SENT] == played.simulator.state.updates
    assert counts[EventKind.RECEIVED] == sum(not math.isnan(row.arrived_s) for row in played.messages)
    assert counts[EventKind.UNIFIED] == 3
    assert 0 < counts[EventKind.MODEL_RECEIVED] < 3 * 7
    assert sum(counts.values()) == played.simulator.state.events == len(played.events)


def test_with_unification_off_the_period_only_paces_budgets() -> None:
    played = timeline("method.unification=off", "method.psi=5")
    assert not any(isinstance(operation, Copy) for operation in played.operations)
    assert not any(event.kind is EventKind.UNIFIED for event in played.events)
    applied = [row for row in played.messages if row.fate is Fate.APPLIED and row.receiver == 0]
    assert len(applied) == 5 * 4  # psi in each of the four periods


def test_a_broadcast_costs_its_bytes_and_airtime_once() -> None:
    played = timeline("channel.message_bytes=1000", "channel.kind=lossy", "channel.loss=0", "channel.delay_s=2")
    for event in played.events:
        paid = (event.bytes, event.airtime_s)
        assert paid == {EventKind.SENT: (1000, 2.0), EventKind.UNIFIED: (1000, 0.0)}.get(event.kind, (0, 0.0))


def test_the_age_of_an_update_counts_from_when_it_was_finished() -> None:
    played = timeline("channel.kind=lossy", "channel.loss=0", "channel.delay_s=2", "method.window_s=3")
    for row in played.messages:
        if row.fate is Fate.APPLIED:
            assert row.arrived_s - row.sent_s == pytest.approx(2.0)
            assert row.age_s == pytest.approx(row.settled_s - row.sent_s)
            assert 2.0 - 1e-9 <= row.age_s <= 5.0 + 1e-9


@pytest.mark.parametrize(("transmit_rate", "expected"), [(0.05, 0.05), (1.0, 1.0)])
def test_poisson_transmissions_have_their_own_rate(transmit_rate: float, expected: float) -> None:
    played = timeline(
        "transmit.when=poisson", f"transmit.rate={transmit_rate}", "transmit.backlog=latest", "compute.rate=10",
        "duration_s=300", "channel.kind=ideal", "users=20",
    )  # fmt: skip
    sent = sum(event.kind is EventKind.SENT for event in played.events)
    mean = expected * 300 * 20
    assert abs(sent - mean) < 4 * math.sqrt(mean)


def test_each_user_may_have_a_rate_of_transmissions_of_its_own() -> None:
    rates = [0.05, 0.5, 2.0]
    played = timeline(
        "users=3", "transmit.when=poisson", f"transmit.rate={rates}", "transmit.backlog=latest", "compute.rate=10",
        "duration_s=1000", "channel.kind=ideal",
    )  # fmt: skip
    sent = np.bincount([event.user for event in played.events if event.kind is EventKind.SENT])
    expected = np.array(rates) * 1000
    assert np.all(np.abs(sent - expected) < 4 * np.sqrt(expected))


def test_computing_is_poisson_at_each_users_own_rate() -> None:
    rates = [0.05, 0.1, 0.5, 2.0]
    played = timeline("users=4", f"compute.rate={rates}", "duration_s=2000", "channel.kind=ideal")
    finished = np.bincount([event.user for event in played.events if event.kind is EventKind.FINISHED])
    expected = np.array(rates) * 2000
    assert (abs(finished - expected) < 4 * np.sqrt(expected)).all()


def trace_hash(config: Config) -> str:
    return play(config).simulator.trace.hexdigest()


@given(configurations(), st.floats(1.0, 30.0), st.integers(1, 50))
@settings(max_examples=40)
def test_evaluating_more_often_changes_no_trace(config: Config, every_s: float, every_events: int) -> None:
    evaluate = config.evaluate.model_copy(update={"every_s": every_s, "every_events": every_events})
    assert trace_hash(config.model_copy(update={"evaluate": evaluate})) == trace_hash(config)


@given(configurations())
@settings(max_examples=30)
def test_the_same_seed_gives_the_same_trace_and_another_seed_another(config: Config) -> None:
    assert trace_hash(config) == trace_hash(config)
    other = config.model_copy(update={"seed": config.seed + 1, "duration_s": config.duration_s + 20.0})
    same = config.model_copy(update={"duration_s": config.duration_s + 20.0})
    assert trace_hash(other) != trace_hash(same)


def finish_times(played: Timeline, users: int) -> dict[int, list[float]]:
    return {
        user: [event.time_s for event in played.events if event.kind is EventKind.FINISHED and event.user == user]
        for user in range(users)
    }


def fates_on_links(played: Timeline, users: int) -> dict[tuple[int, int, int], Any]:
    return {
        (row.sender, row.receiver, row.number): (row.sent_s, row.arrived_s if row.fate is Fate.APPLIED else row.fate)
        for row in played.messages
        if max(row.sender, row.receiver) < users
    }


def test_adding_a_user_shifts_nobodys_luck() -> None:
    air = ("method.psi=none", "channel.interference=none", "channel.message_bytes=20000000", "method.hub=round-robin")
    few, many = timeline("users=6", *air), timeline("users=7", *air)
    assert finish_times(few, 6) == finish_times(many, 6)
    fates = fates_on_links(few, 6)
    assert any(fate is Fate.LATE for _, fate in fates.values())
    assert str(fates) == str({link: fates_on_links(many, 6)[link] for link in fates})


@pytest.mark.parametrize(
    "change",
    [
        "method.hub=random",
        "method.window_s=5",
        "method.own_weight=0",
        "method.psi=3",
        "method.unification=radio",
        "method.unification=off",
        "compute.snapshot=start",
    ],
)
def test_changing_the_method_leaves_times_and_fading_as_they_were(change: str) -> None:
    before, after = timeline("method.psi=none"), timeline("method.psi=none", change)
    assert finish_times(before, 8) == finish_times(after, 8)

    def arrivals(played: Timeline) -> dict[tuple[int, int, int], str]:
        return {(row.sender, row.receiver, row.number): repr(row.arrived_s) for row in played.messages}

    assert arrivals(before) == arrivals(after)


def test_a_radio_unification_reaches_whom_the_air_lets_it() -> None:
    air = ("channel.kind=lossy", "channel.loss=0.5", "channel.delay_s=1")
    played = timeline("method.unification=radio", "method.hub=round-robin", *air)
    models = [event for event in played.events if event.kind is EventKind.MODEL_RECEIVED]
    replaced = [o for o in played.operations if isinstance(o, Copy) and o.destination < 8]
    assert [(o.at_s, o.user) for o in replaced] == [(event.time_s, event.user) for event in models]
    assert {event.time_s for event in models} == {101.0, 201.0, 301.0}
    assert all(event.user != event.peer for event in models)


def test_an_older_unification_that_arrives_late_is_ignored() -> None:
    # Delays of 25 s on average and a period of 10 s: models overtake one another.
    air = ("channel.kind=exponential", "channel.rate=0.04")
    played = timeline("method.unification=radio", "method.period_s=10", "method.psi=none", *air)
    arrived = [event for event in played.events if event.kind is EventKind.MODEL_RECEIVED]
    replaced = [o for o in played.operations if isinstance(o, Copy) and o.destination < 8]
    assert 0 < len(replaced) < len(arrived)


def test_the_first_stretches_are_short_and_later_ones_as_long_as_the_configuration_lets_them_be() -> None:
    config = load_config("tiny", ["compute.rate=1", "duration_s=400"])
    simulator = build_simulator(config, build_world(config), parameter_count=100_000)
    simulator.start()
    lengths = []
    while not simulator.state.done:
        lengths.append(sum(isinstance(one, Train) for one in simulator.next_stretch().operations))
    assert simulator.stretch_trainings == 100
    assert lengths[:3] == [64, 64, 100]
    assert set(lengths[2:-1]) == {100}
