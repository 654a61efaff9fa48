"""Every method goes through this table: over every topology and channel, the same laws; then each its own."""

from __future__ import annotations

import itertools
import json
import math
from collections import Counter, defaultdict
from dataclasses import asdict
from typing import Any

import numpy as np
import pytest
from method_table import CHANNELS, DIRECTED, EVERYWHERE, SYMMETRIC, TABLE
from pydantic import TypeAdapter
from timelines import Timeline, contents, play

from dracofl.build import METHODS, build_simulator, build_world
from dracofl.compute.reference import ReferenceExecutor
from dracofl.config.load import load_config
from dracofl.config.schema import Config
from dracofl.errors import ConfigError
from dracofl.methods.sync_symm import LINK_RESTED
from dracofl.tape import Combine, Copy, Evaluate, Free, Train
from dracofl.trace import EventKind
from dracofl.types import Fate


def configure(method: str, *overrides: str) -> Config:
    base = ["task.kind=quadratic", "users=7", "duration_s=120", "evaluate.every_s=30", f"method.kind={method}"]
    return load_config("tiny", [*base, *TABLE[method][0], *overrides])


def test_every_method_is_in_the_table() -> None:
    assert set(TABLE) == set(METHODS)


@pytest.mark.parametrize(("method", "topology", "channel"), EVERYWHERE)
def test_a_method_keeps_the_common_laws(method: str, topology: str, channel: str) -> None:
    config = configure(method, f"topology.kind={topology}", *CHANNELS[channel])
    timeline = play(config)
    sent = Counter()
    for row in timeline.messages:
        sent[row.sender, row.number, row.receiver] += 1
        assert row.fate in Fate
        if row.fate is Fate.APPLIED:
            assert row.sent_s <= row.arrived_s <= row.settled_s
    # Every message ends once, and transmissions account for all messages.
    assert all(count == 1 for count in sent.values())
    transmissions = sum(event.kind is EventKind.SENT for event in timeline.events)
    assert (transmissions == 0) == (not timeline.messages)
    received = sum(event.kind is EventKind.RECEIVED for event in timeline.events)
    assert received == sum(not math.isnan(row.arrived_s) for row in timeline.messages)
    # Training happens once an update, numbered without gaps.
    finished = defaultdict(list)
    for event in timeline.events:
        if event.kind is EventKind.FINISHED:
            finished[event.user].append(event.number)
    assert all(numbers == list(range(len(numbers))) for numbers in finished.values())
    assert len(finished) == 7
    # Vectors are freed after their last reader, and never read after.
    alive = set(contents(timeline).vectors)
    links = sum(map(len, build_world(config).graph.successors))
    permanent = 7 + {"sync-symm": 2 * links, "async-push": 2 + 7 * 2}.get(method, 0)
    assert alive == set(range(permanent)) | set(timeline.simulator.network.vectors.state.references)


@pytest.mark.parametrize("method", TABLE)
def test_the_same_configuration_gives_the_same_trace_and_evaluations_leave_no_mark(method: str) -> None:
    hashes = {
        play(configure(method, *CHANNELS["lossy"], change)).simulator.trace.hexdigest()
        for change in ("evaluate.every_s=30", "evaluate.every_s=1", "evaluate.every_events=7")
    }
    assert len(hashes) == 1
    assert play(configure(method, *CHANNELS["lossy"], "seed=2")).simulator.trace.hexdigest() not in hashes


@pytest.mark.parametrize("method", TABLE)
def test_a_users_first_update_takes_as_long_under_every_method_and_no_later_one_less(method: str) -> None:
    alone = computing_times(configure("local"))
    for user, times in computing_times(configure(method)).items():
        assert times[0] == alone[user][0]
        needed = np.diff(alone[user])
        taken = np.diff(times)
        compared = min(len(needed), len(taken))
        assert (taken[:compared] >= needed[:compared] - 1e-9).all()  # more where a method waits, as rounds do


def computing_times(config: Config) -> dict[int, list[float]]:
    times = defaultdict(list)
    for event in play(config).events:
        if event.kind is EventKind.FINISHED:
            times[event.user].append(event.time_s)
    return times


@pytest.mark.parametrize("method", TABLE)
def test_a_method_cut_anywhere_goes_on_as_if_it_had_not_been(method: str) -> None:
    config = configure(method, *CHANNELS["exponential"])
    whole = play(config)
    simulator = build_simulator(config, build_world(config), 10)
    simulator.start()
    operations, cuts = [], 0
    while not simulator.state.done:
        simulator.stretch_trainings = 3
        operations += simulator.next_stretch().operations
        cuts += 1
        # Write everything down, and go on with a new simulator that has read it.
        parts = (simulator.state, simulator.trace.state, simulator.network.state, simulator.medium.state)
        state, trace, network, medium = [
            TypeAdapter(type(part)).validate_python(json.loads(json.dumps(asdict(part)))) for part in parts
        ]
        simulator = build_simulator(config, build_world(config), 10)
        simulator.state, simulator.trace.state, simulator.medium.state = state, trace, medium
        simulator.network.restore(network)
    assert cuts > 5
    assert operations == whole.operations
    assert simulator.trace.hexdigest() == whole.simulator.trace.hexdigest()


@pytest.mark.parametrize("topology", DIRECTED)
@pytest.mark.parametrize("method", [name for name, (_, directed) in TABLE.items() if not directed])
def test_a_method_for_links_both_ways_refuses_a_directed_graph_before_it_starts(method: str, topology: str) -> None:
    config = configure(method, f"topology.kind={topology}")
    with pytest.raises(ConfigError, match=f'method.kind = "{method}" needs links that go both ways'):
        build_simulator(config, build_world(config), 10)


class Numbers:
    """Random updates, so that laws about vectors can be checked on numbers."""

    parameter_count, local_steps = 10, 1

    def __init__(self, scale: float = 1.0) -> None:
        self._scale = scale

    def init(self) -> np.ndarray:
        return np.linspace(-1, 1, 10).astype(np.float32)

    def local_update(self, model: np.ndarray, user: int, number: int) -> np.ndarray:
        return (self._scale * np.random.default_rng([user, number]).standard_normal(10)).astype(np.float32)


def played_numbers(timeline: Timeline, scale: float = 1.0) -> tuple[ReferenceExecutor, list[Any]]:
    """The tape played on numbers."""
    executor = ReferenceExecutor(Numbers(scale), timeline.config.users)
    operations = [operation for operation in timeline.operations if not isinstance(operation, Evaluate)]
    executor.play(operations)
    return executor, operations


@pytest.mark.parametrize("compressor", ["identity", "top-k", "random-k", "qsgd"])
@pytest.mark.parametrize("channel", CHANNELS)
def test_sync_symm_copies_at_both_ends_stay_equal_whatever_is_lost(compressor: str, channel: str) -> None:
    changes = [f"method.compressor={compressor}", "method.gamma=0.5", "method.keep=0.2", "topology.kind=torus"]
    timeline = play(configure("sync-symm", "users=9", "duration_s=300", *changes, *CHANNELS[channel]))
    executor, _ = played_numbers(timeline)
    mixing = timeline.simulator.network._mixing
    assert len(mixing.senders_copy) == 36
    moved = 0
    for link in mixing.senders_copy:
        mine, theirs = executor.vectors[mixing.senders_copy[link]], executor.vectors[mixing.receivers_copy[link]]
        assert mine.tobytes() == theirs.tobytes()
        moved += mine.tobytes() != Numbers().init().tobytes()
    assert moved > 18
    if channel in ("lossy", "exponential"):
        assert any(row.reason == LINK_RESTED for row in timeline.messages)


def test_sync_symm_mixing_leaves_the_mean_model_where_it_was() -> None:
    timeline = play(configure("sync-symm", "topology.kind=cycle", *CHANNELS["lossy"]))
    executor, operations = played_numbers(timeline, scale=1.0)
    trained = sum(
        Numbers().local_update(None, op.user, op.number).astype(np.float64)
        for op in operations
        if isinstance(op, Train)
    )
    mean = executor.models().mean(axis=0, dtype=np.float64)
    np.testing.assert_allclose(mean, Numbers().init() + trained / 7, atol=1e-4)


def test_sync_symm_pays_in_proportion_where_a_message_is_said_to_have_another_size() -> None:
    changes = ["method.compressor=top-k", "method.keep=0.2", "channel.message_bytes=4000", "channel.kind=ideal"]
    timeline = play(configure("sync-symm", *changes, "channel.message_bytes=4000"))
    assert {event.bytes for event in timeline.events if event.kind is EventKind.SENT} == {2 * 8 * 100}


@pytest.mark.parametrize(("compressor", "expected"), [("top-k", 2 * 8), ("random-k", 2 * 4 + 8), ("qsgd", 4 + 7)])
def test_sync_symm_pays_for_what_a_compressed_message_holds(compressor: str, expected: int) -> None:
    changes = [f"method.compressor={compressor}", "method.keep=0.2", "method.levels=15"]
    timeline = play(configure("sync-symm", "topology.kind=cycle", *changes, "channel.kind=ideal"))
    assert {event.bytes for event in timeline.events if event.kind is EventKind.SENT} == {expected}
    # A message a link, and not one for all.
    rounds = min(sum(e.kind is EventKind.FINISHED and e.user == u for e in timeline.events) for u in range(7))
    assert sum(event.kind is EventKind.SENT for event in timeline.events) >= 2 * 7 * rounds


@pytest.mark.parametrize("topology", ["complete", "directed-cycle", "k-out", "exponential"])
@pytest.mark.parametrize("channel", ["lossy", "wireless", "exponential"])
def test_sync_push_conserves_the_sum_of_w_and_of_w_z(topology: str, channel: str) -> None:
    config = configure("sync-push", f"topology.kind={topology}", "duration_s=200", *CHANNELS[channel])
    simulator = build_simulator(config, build_world(config), 10)
    executor = ReferenceExecutor(Numbers(), 7)
    simulator.start()
    while not simulator.state.done:
        operations = simulator.next_stretch().operations
        executor.play([one for one in operations if not isinstance(one, Evaluate)])
    assert simulator.network.state.number > 3  # rounds
    weights = np.array(simulator.network.state.numbers)
    assert weights.sum() == pytest.approx(7.0, abs=1e-9)
    # The sum changes by w(i) times each local update, and never by mixing.
    expected = replay_of_sums(config)
    found = (weights[:, None] * executor.models().astype(np.float64)).sum(axis=0)
    np.testing.assert_allclose(found, expected, atol=1e-5 * max(1.0, abs(expected).max()))


def replay_of_sums(config: Config) -> np.ndarray:
    """sum of w z = sum of x0 + sum over updates of w(user) at its time * update, from the trace alone."""
    timeline = play(config)
    graph = build_world(config).graph
    weights = np.ones(config.users)
    total = config.users * Numbers().init().astype(np.float64)
    shares: dict[int, list[Any]] = defaultdict(list)
    for row in timeline.messages:
        shares[row.number].append(row)
    finished = [event for event in timeline.events if event.kind is EventKind.FINISHED]
    for number in range(max(event.number for event in finished) + 1):
        for event in finished:
            if event.number == number:
                total += weights[event.user] * Numbers().local_update(None, event.user, number)
        applied = [row for row in shares[number] if row.fate is Fate.APPLIED]
        ended = len(shares[number]) == sum(map(len, graph.successors)) and all(
            row.fate is not Fate.PENDING for row in shares[number]
        )
        if ended:
            following = weights.copy()
            for row in applied:
                share = weights[row.sender] / (1 + len(graph.successors[row.sender]))
                following[row.sender] -= share
                following[row.receiver] += share
            weights = following
    return total


def test_sync_push_stays_finite_with_a_user_whom_nobody_reaches() -> None:
    rates = [[1e-9 if receiver == 3 else 10.0 for receiver in range(7)] for _ in range(7)]
    deaf = ["channel.kind=exponential", f"channel.rates={rates}", "channel.deadline_s=1"]
    timeline = play(configure("sync-push", "topology.kind=complete", "duration_s=20000", "compute.rate=1", *deaf))
    assert timeline.simulator.network._mixing.numbers[3] < 1e-300
    executor, _ = played_numbers(timeline, scale=1e-3)
    assert np.isfinite(executor.models()).all()
    assert sum(timeline.simulator.network._mixing.numbers) == pytest.approx(7.0)


@pytest.mark.parametrize("topology", SYMMETRIC)
@pytest.mark.parametrize("channel", CHANNELS)
def test_async_symm_mixes_with_a_symmetric_doubly_stochastic_matrix_in_every_iteration(
    topology: str, channel: str
) -> None:
    timeline = play(configure("async-symm", f"topology.kind={topology}", *CHANNELS[channel]))
    senders = {
        operation.destination: operation.user for operation in timeline.operations if type(operation).__name__ == "Copy"
    }
    matrices: dict[float, np.ndarray] = defaultdict(lambda: np.eye(7))
    for operation in timeline.operations:
        if isinstance(operation, Combine) and operation.terms[1][0] in senders:
            row = np.zeros(7)
            for vector, weight in operation.terms:
                row[senders.get(vector, operation.user)] += weight
            matrices[operation.at_s][operation.user] = row
    assert len(matrices) > 3
    partial = 0
    for matrix in matrices.values():
        np.testing.assert_allclose(matrix, matrix.T, atol=1e-12)
        np.testing.assert_allclose(matrix.sum(axis=1), 1.0, atol=1e-12)
        assert (matrix >= -1e-12).all()
        partial += (np.diag(matrix) == 1.0).any()
    if channel in ("lossy", "exponential"):
        assert partial > 0 or topology == "complete"


def test_async_symm_gradients_are_of_the_model_when_computing_began() -> None:
    timeline = play(configure("async-symm", "channel.kind=ideal", "compute.rate=0.05", "duration_s=300"))
    trained = {op.destination: op.at_s for op in timeline.operations if isinstance(op, Train)}
    applied = {
        op.terms[1][0]: op.at_s for op in timeline.operations if isinstance(op, Combine) and op.terms[1][0] in trained
    }
    staleness = [(applied[vector] - trained[vector]) / 4.0 for vector in applied]
    assert all(count == pytest.approx(round(count)) and count >= 1 for count in staleness)
    assert max(staleness) > 2


@pytest.mark.parametrize("delay_s", [4.0, 5.0])
def test_a_message_that_would_outlast_its_iteration_is_late_and_off_the_air(delay_s: float) -> None:
    slow = ["channel.kind=lossy", "channel.loss=0", f"channel.delay_s={delay_s}"]
    timeline = play(configure("async-symm", *slow))
    assert {row.fate for row in timeline.messages} == {Fate.LATE}
    assert {event.airtime_s for event in timeline.events if event.kind is EventKind.SENT} == {4.0}


def test_users_that_start_to_send_at_one_instant_disturb_one_another_whatever_their_number() -> None:
    air = ["channel.interference=concurrent", "channel.interference_radius_m=2000", "channel.message_bytes=2000000"]
    timeline = play(configure("async-symm", "users=12", "topology.kind=complete", "duration_s=2000", *air))
    late = np.bincount([row.sender for row in timeline.messages if row.fate is Fate.LATE], minlength=12)
    assert late.min() > 0.2 * late.max()


@pytest.mark.parametrize("streams", [1, 3])
@pytest.mark.parametrize("channel", CHANNELS)
def test_async_push_never_duplicates_or_loses_a_walking_model(streams: int, channel: str) -> None:
    config = configure(
        "async-push", f"method.streams={streams}", "topology.kind=k-out", "duration_s=800", *CHANNELS[channel]
    )
    simulator = build_simulator(config, build_world(config), 10)
    simulator.start()
    hops = 0
    while not simulator.state.done:
        simulator.next_stretch()
        state = simulator.network.state
        in_flight = sorted(state.walk_of.values())
        held = [walk for walk in range(streams) if state.holder[walk] >= 0]
        assert sorted(in_flight + held) == list(range(streams))
        hops = sum(state.hops)
    assert hops > 5
    timeline = play(config)
    moved = sum(row.fate is Fate.APPLIED for row in timeline.messages)
    failed = sum(row.fate in (Fate.LATE, Fate.LOST) for row in timeline.messages)
    assert moved + failed + sum(row.fate is Fate.PENDING for row in timeline.messages) == hops
    if channel == "lossy":
        assert failed > 0


def test_async_push_sends_again_when_it_can_know_that_its_model_was_lost() -> None:
    air = ["channel.kind=lossy", "channel.loss=0.6", "channel.delay_s=3", "method.streams=1"]
    timeline = play(configure("async-push", *air, "duration_s=600"))
    rows = sorted(timeline.messages, key=lambda row: row.sent_s)
    for row, following in itertools.pairwise(rows):
        if row.fate is Fate.LOST:
            assert following.sender == row.sender
            assert following.sent_s == pytest.approx(row.sent_s + 3.0)
        else:
            assert following.sender == row.receiver


def test_async_push_holders_make_exactly_h_updates_between_visits() -> None:
    timeline = play(configure("async-push", "channel.kind=ideal", "method.streams=1", "method.local_updates=3"))
    visits = [(row.receiver, row.settled_s) for row in timeline.messages if row.fate is Fate.APPLIED]
    departures = [(row.sender, row.sent_s) for row in timeline.messages][1:]
    for (holder, arrived_s), (sender, left_s) in zip(visits, departures, strict=False):
        assert holder == sender
        made = [
            event
            for event in timeline.events
            if event.kind is EventKind.FINISHED and event.user == holder and arrived_s < event.time_s <= left_s
        ]
        assert len(made) == 3


def test_fedavg_gives_everybody_the_mean_model_each_round() -> None:
    timeline = play(configure("fedavg", "duration_s=300"))
    executor = ReferenceExecutor(Numbers(), 7)
    expected, rounds = Numbers().init().astype(np.float64), 0
    operations = [one for one in timeline.operations if not isinstance(one, Evaluate)]
    for operation, following in itertools.pairwise(operations):
        executor.play([operation])
        if isinstance(operation, Copy) and operation.user == 6 and isinstance(following, Free):
            expected += sum(Numbers().local_update(None, user, rounds) for user in range(7)) / 7
            assert len({model.tobytes() for model in executor.models()}) == 1
            np.testing.assert_allclose(executor.models()[0], expected, atol=1e-4)
            rounds += 1
    assert rounds > 3
    assert all(row.fate in (Fate.APPLIED, Fate.PENDING) for row in timeline.messages)


def test_fedavg_pays_for_an_upload_from_everybody_else_and_a_broadcast_back() -> None:
    timeline = play(configure("fedavg", "duration_s=300"))
    rounds = sum(event.kind is EventKind.UNIFIED for event in timeline.events)
    uploads = sum(event.kind is EventKind.SENT for event in timeline.events)
    assert rounds > 3
    assert 6 * rounds <= uploads <= 6 * (rounds + 1)
    assert sum(event.bytes for event in timeline.events) == 40 * (uploads + rounds)


def test_local_users_send_nothing() -> None:
    timeline = play(configure("local"))
    assert timeline.messages == []
    assert {event.kind for event in timeline.events} == {EventKind.FINISHED}
