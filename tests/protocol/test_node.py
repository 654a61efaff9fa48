"""What one user decides, event by event."""

from __future__ import annotations

from typing import Any

import pytest

from dracofl.protocol.commands import Command, Happening, RecordFinish, SendModel, SendUpdate, SetTimer, Settle
from dracofl.protocol.messages import Message
from dracofl.protocol.node import NONE, NodeCore, NodeRules
from dracofl.protocol.vectors import Vectors
from dracofl.tape import Combine, Copy, Free, Train
from dracofl.types import Fate

USERS = 4
ME = 2


def make_node(**changes: Any) -> tuple[NodeCore, Vectors]:
    rules: dict[str, Any] = {
        "snapshot": "finish",
        "when": "on-update",
        "backlog": "sum",
        "psi": None,
        "own_weight": 1.0,
        "window_s": 0.0,
        "payload_bytes": 40,
    }
    vectors = Vectors(models=USERS)
    return NodeCore(ME, NodeRules(**{**rules, **changes}), 0.1, 0.1, (0, 1), (0.5, 0.5), 7, vectors), vectors


def message(vectors: Vectors, number: int = 0, arrived_s: float = 1.0, weight: float = 0.25) -> Message:
    return Message(0, ME, number, 1, weight, vectors.new(), 40, arrived_s - 0.5, arrived_s - 0.5, arrived_s)


def only(commands: list[Command], kind: type) -> Any:
    (found,) = [command for command in commands if isinstance(command, kind)]
    return found


def due_in(commands: list[Command], happening: Happening) -> float:
    (found,) = [one for one in commands if isinstance(one, SetTimer) and one.happening == happening]
    return found.at_s


def kinds(commands: list[Command]) -> list[type]:
    return [type(command) for command in commands]


def test_a_user_starts_computing_at_once() -> None:
    node, _ = make_node()
    timer = only(node.start(0.0), SetTimer)
    assert timer.happening is Happening.UPDATE_DUE
    assert timer.at_s > 0.0


def test_a_finished_update_is_trained_applied_sent_and_followed_by_the_next() -> None:
    node, _ = make_node()
    due_s = due_in(node.start(0.0), Happening.UPDATE_DUE)
    commands = node.update_due(due_s)
    assert kinds(commands) == [Train, Combine, RecordFinish, SendUpdate, SetTimer]
    train, combine, _, send, timer = commands
    assert train == Train(due_s, ME, 0, source=ME, destination=USERS)
    assert combine.terms == ((ME, 1.0), (USERS, 1.0))
    assert (send.vector, send.receivers, send.weights, send.number, send.updates) == (USERS, (0, 1), (0.5, 0.5), 0, 1)
    assert timer.at_s > due_s
    assert only(node.update_due(timer.at_s), SendUpdate).number == 1


def test_with_snapshot_start_the_update_is_trained_on_the_model_when_it_began() -> None:
    node, _ = make_node(snapshot="start")
    first = only(node.start(0.0), Train)
    assert (first.at_s, first.number, first.source) == (0.0, 0, ME)
    commands = node.update_due(5.0)
    assert only(commands, SendUpdate).vector == first.destination
    following = only(commands, Train)
    assert (following.at_s, following.number) == (5.0, 1)
    # The next one begins after this one was applied.
    assert kinds(commands).index(Combine) < kinds(commands).index(Train)


def test_with_own_weight_zero_nothing_is_applied_to_oneself() -> None:
    node, _ = make_node(own_weight=0.0)
    assert Combine not in kinds(node.update_due(5.0))


def test_the_budget_admits_the_first_psi_messages_and_refuses_the_rest() -> None:
    node, vectors = make_node(psi=2)
    fates = [only(node.received(message(vectors, number), 1.0), Settle).fate for number in range(4)]
    assert fates == [Fate.APPLIED, Fate.APPLIED, Fate.OVER_BUDGET, Fate.OVER_BUDGET]


def test_a_refused_message_is_freed_and_not_applied() -> None:
    node, vectors = make_node(psi=1)
    node.received(message(vectors), 1.0)
    assert kinds(node.received(message(vectors), 2.0)) == [Settle, Free]


def test_the_end_of_a_period_restarts_the_budget() -> None:
    node, vectors = make_node(psi=1)
    node.received(message(vectors), 1.0)
    node.period_ended(1, hub=None, everybody_else=(), reliable=True, now_s=10.0)
    assert only(node.received(message(vectors), 11.0), Settle).fate is Fate.APPLIED


def test_without_a_window_a_message_is_applied_on_arrival_with_its_weight() -> None:
    node, vectors = make_node()
    heard = message(vectors)
    commands = node.received(heard, 1.0)
    assert kinds(commands) == [Combine, Settle, Free]
    assert commands[0] == Combine(1.0, ME, ME, ((ME, 1.0), (heard.vector, 0.25)))


def test_a_window_is_opened_by_the_first_message_and_applies_all_in_order_when_it_closes() -> None:
    node, vectors = make_node(window_s=3.0)
    heard = [message(vectors, number) for number in range(3)]
    opened = node.received(heard[0], 1.0)
    assert opened == [SetTimer(Happening.WINDOW_CLOSED, ME, 4.0)]
    assert node.received(heard[1], 2.0) == []
    assert node.received(heard[2], 3.5) == []
    commands = node.window_closed(4.0)
    assert commands[0].terms == ((ME, 1.0), *((one.vector, 0.25) for one in heard))
    assert [command.message for command in commands if isinstance(command, Settle)] == heard
    assert node.state.window == ()
    # And the next one opens a new window.
    assert only(node.received(message(vectors, 3), 9.0), SetTimer).at_s == 12.0


def test_messages_in_a_window_have_spent_budget_already() -> None:
    node, vectors = make_node(window_s=3.0, psi=1)
    node.received(message(vectors), 1.0)
    assert only(node.received(message(vectors), 2.0), Settle).fate is Fate.OVER_BUDGET


def test_poisson_transmissions_sum_what_has_not_been_sent() -> None:
    node, _ = make_node(when="poisson")
    node.start(0.0)
    first = only(node.update_due(1.0), Train).destination
    commands = node.update_due(3.0)
    second = only(commands, Train).destination
    assert Combine(3.0, ME, first, ((first, 1.0), (second, 1.0))) in commands
    assert Free(second) in commands
    send = only(node.transmission_due(4.0), SendUpdate)
    assert (send.vector, send.updates, send.finished_s) == (first, 2, 2.0)


def test_with_nothing_new_a_poisson_transmission_sends_nothing() -> None:
    node, _ = make_node(when="poisson")
    assert kinds(node.transmission_due(1.0)) == [SetTimer]
    node.update_due(2.0)
    assert SendUpdate in kinds(node.transmission_due(3.0))
    assert kinds(node.transmission_due(4.0)) == [SetTimer]


TIMERS = {Happening.UPDATE_DUE: NodeCore.update_due, Happening.TRANSMISSION_DUE: NodeCore.transmission_due}


def times_due(happening: Happening, late_s: float, count: int = 200) -> list[float]:
    """Where every one happens so much later than it was due."""
    node, _ = make_node(when="poisson")
    due_s = [due_in(node.start(0.0), happening)]
    for _ in range(count):
        due_s.append(due_in(TIMERS[happening](node, due_s[-1] + late_s), happening))
    return due_s


@pytest.mark.parametrize("happening", TIMERS)
def test_a_clock_that_rings_a_little_late_makes_updates_and_transmissions_no_rarer(happening: Happening) -> None:
    assert times_due(happening, late_s=0.5) == times_due(happening, late_s=0.0)


@pytest.mark.parametrize("happening", TIMERS)
def test_who_slept_for_long_does_not_catch_up_on_all_that_time(happening: Happening) -> None:
    node, _ = make_node(when="poisson")
    node.start(0.0)
    mean_s = 10.0
    assert due_in(TIMERS[happening](node, 1000.0), happening) > 1000.0 - 16 * mean_s


def test_latest_sends_the_newest_update_even_again() -> None:
    node, vectors = make_node(when="poisson", backlog="latest")
    assert kinds(node.transmission_due(1.0)) == [SetTimer]
    first = only(node.update_due(2.0), Train).destination
    sent = [only(node.transmission_due(time_s), SendUpdate) for time_s in (3.0, 4.0)]
    assert [send.vector for send in sent] == [first, first]
    assert [send.number for send in sent] == [0, 1]
    assert vectors.state.references[first] == 3  # the core's own, and one with each command
    newer = only(node.update_due(5.0), Train).destination
    assert only(node.transmission_due(6.0), SendUpdate).vector == newer
    assert vectors.state.references[first] == 2


def test_the_hub_sends_a_copy_of_its_model_to_everybody_else() -> None:
    node, _ = make_node()
    copy, send = node.period_ended(3, hub=ME, everybody_else=(0, 1, 3), reliable=False, now_s=30.0)
    assert copy == Copy(30.0, ME, source=ME, destination=USERS)
    assert send == SendModel(ME, 3, USERS, 40, (0, 1, 3), reliable=False)


def test_who_is_not_the_hub_waits_and_replaces_its_model_when_the_hubs_arrives() -> None:
    node, vectors = make_node()
    assert node.period_ended(1, hub=0, everybody_else=(1, 2, 3), reliable=False, now_s=10.0) == []
    model = message(vectors, number=1)
    assert kinds(node.model_received(model, 11.0)) == [Copy, Free]


def test_a_hubs_model_that_comes_after_a_later_hubs_is_ignored() -> None:
    node, vectors = make_node()
    node.model_received(message(vectors, number=2), 21.0)
    assert kinds(node.model_received(message(vectors, number=1), 22.0)) == [Free]
    # The hub itself has its own model in place.
    hub, vectors = make_node()
    hub.period_ended(2, hub=ME, everybody_else=(0, 1, 3), reliable=False, now_s=20.0)
    assert kinds(hub.model_received(message(vectors, number=1), 22.0)) == [Free]


def test_windows_and_unsent_updates_outlive_a_unification() -> None:
    node, vectors = make_node(window_s=5.0, when="poisson")
    node.received(message(vectors), 9.0)
    node.update_due(9.5)
    node.period_ended(1, hub=0, everybody_else=(1, 2, 3), reliable=True, now_s=10.0)
    node.model_received(message(vectors, number=1), 10.0)
    assert len(node.state.window) == 1
    assert node.state.unsent != NONE
    assert Combine in kinds(node.window_closed(14.0))


def test_computing_times_do_not_depend_on_anything_but_the_count() -> None:
    one, _ = make_node()
    other, _ = make_node(when="poisson", psi=3, window_s=1.0, own_weight=0.0)
    times = [
        [only([c for c in commands if c[0] is Happening.UPDATE_DUE], SetTimer).at_s for commands in steps]
        for steps in ([node.start(0.0), node.update_due(0.0), node.update_due(0.0)] for node in (one, other))
    ]
    assert times[0] == times[1]
