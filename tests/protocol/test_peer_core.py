"""What a user decides where the network is real: who is there, what was here before, when periods end, who unifies."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dracofl.protocol.commands import AskForModel, Command, Happening, SendModel, SendUpdate, SetTimer, Settle
from dracofl.protocol.headers import Header, Kind, Verdict, shape_of
from dracofl.protocol.messages import Message
from dracofl.protocol.node import NodeCore, NodeRules
from dracofl.protocol.peer import _REMEMBERED, Heard, PeerCore, PeerRules, PeerState
from dracofl.protocol.vectors import Vectors
from dracofl.tape import Copy
from dracofl.types import Fate

USERS = 5
PERIOD_S = 100.0
TAKEOVER_S = 3.0
MY_EPOCH, EPOCH = 1000, 500


def make_peer(user: int = 2, everybody_is_there: bool = True, psi: int | None = None, **changes: Any) -> PeerCore:
    """Of five on the complete graph; hubs by turns: user 0 ends period 1, user 1 period 2."""
    others = tuple(other for other in range(USERS) if other != user)
    rules: dict[str, Any] = {
        "users": USERS,
        "seed": 1,
        "receivers": others,
        "senders": frozenset(others),
        "period_s": PERIOD_S,
        "hub": "round-robin",
        "unifies": True,
        "reliable": True,
        "takeover_s": TAKEOVER_S,
        **changes,
    }
    vectors = Vectors(models=USERS)
    node_rules = NodeRules("start", "on-update", "sum", psi, 1.0, 0.0, 40)
    node = NodeCore(user, node_rules, 0.1, 0.1, rules["receivers"], (0.25,) * len(rules["receivers"]), 1, vectors)
    peer = PeerCore(node, PeerRules(**rules), vectors, PeerState(MY_EPOCH))
    if everybody_is_there:
        for other in others:
            peer.member_came(other, EPOCH, 0.0)
            peer.no_newer_model()
    peer.start(0.0)
    return peer


def header(peer: PeerCore, kind: Kind = Kind.UPDATE, sender: int = 1, number: int = 0, **changes: Any) -> Header:
    made = Header(kind, sender, peer.user, EPOCH, MY_EPOCH, number, 1, sender, 0.25, 0.0, 0.0, 0.0, 10, shape_of())
    return made._replace(**changes)


def message(peer: PeerCore, head: Header) -> Message:
    return Message(head.sender, peer.user, head.number, 1, head.weight, peer.vectors.new(), 40, 0.0, 0.0, 0.0)


def hear_update(peer: PeerCore, number: int, sender: int = 1, now_s: float = 1.0, **changes: Any) -> list[Command]:
    head = header(peer, Kind.UPDATE, sender, number, **changes)
    assert peer.judge(head) == Verdict.ACCEPTED
    return peer.update_arrived(head, message(peer, head), now_s)


def hear_model(peer: PeerCore, period: int, hub: int, sender: int, now_s: float) -> list[Command]:
    head = header(peer, Kind.MODEL, sender, period, hub=hub)
    assert peer.judge(head) == Verdict.ACCEPTED
    return peer.model_arrived(head, message(peer, head), now_s)


def of_kind(commands: list[Command], kind: type) -> list[Any]:
    return [command for command in commands if isinstance(command, kind)]


def timers(commands: list[Command]) -> dict[Happening, float]:
    return {timer.happening: timer.at_s for timer in of_kind(commands, SetTimer)}


# What was here before


@given(st.lists(st.tuples(st.integers(1, 3), st.integers(0, 3000)), max_size=80))
def test_the_window_of_numbers_remembers_what_a_set_would(arrivals: list[tuple[int, int]]) -> None:
    heard, epoch, seen = Heard(1), 1, set()
    for its_epoch, number in arrivals:
        if its_epoch > epoch:
            expected = Verdict.ACCEPTED
        elif its_epoch < epoch:
            expected = Verdict.EARLIER_SENDER
        elif seen and number <= max(seen) - _REMEMBERED:
            expected = Verdict.TOO_OLD
        else:
            expected = Verdict.DUPLICATE if number in seen else Verdict.ACCEPTED
        assert heard.verdict(its_epoch, number) == expected
        if expected == Verdict.ACCEPTED:
            heard.note(its_epoch, number)
            seen = seen if its_epoch == epoch else set()
            epoch = its_epoch
            seen.add(number)
            assert heard.verdict(its_epoch, number) == Verdict.DUPLICATE


@given(st.permutations(range(30)))
def test_numbers_may_come_in_any_order_and_each_counts_once(numbers: list[int]) -> None:
    peer = make_peer()
    for number in numbers:
        hear_update(peer, number)
    assert {peer.judge(header(peer, number=number)) for number in numbers} == {Verdict.DUPLICATE}


def test_the_window_stays_small_however_far_numbers_jump() -> None:
    heard = Heard(1)
    for number in (0, 5, 2**60, 2**63):
        heard.note(1, number)
    assert heard.seen == 1
    assert heard.verdict(1, 2**63 - _REMEMBERED) == Verdict.TOO_OLD
    assert heard.verdict(1, 2**63 - _REMEMBERED + 1) == Verdict.ACCEPTED


def test_an_update_over_the_budget_was_here_too() -> None:
    peer = make_peer(psi=1)
    fates = [of_kind(hear_update(peer, number), Settle)[0].fate for number in (0, 1)]
    assert fates == [Fate.APPLIED, Fate.OVER_BUDGET]
    assert peer.judge(header(peer, number=1)) == Verdict.DUPLICATE


def test_judging_changes_nothing() -> None:
    peer = make_peer()
    for _ in range(2):
        assert peer.judge(header(peer, number=3)) == Verdict.ACCEPTED
    assert peer.state.heard == {}


# Who is there


def test_a_message_for_somebody_else_is_misdirected_whatever_else_it_is() -> None:
    peer = make_peer()
    assert peer.judge(header(peer, receiver=3, sender=99, to_epoch=1)) == Verdict.MISDIRECTED


@pytest.mark.parametrize("kind", Kind)
@pytest.mark.parametrize("sender", [2, USERS, 99])
def test_neither_this_peer_itself_nor_who_is_no_neighbour_is_listened_to(kind: Kind, sender: int) -> None:
    peer = make_peer()
    assert peer.judge(header(peer, kind, sender, 1)) == Verdict.STRANGER


def test_a_hub_that_does_not_exist_is_a_stranger() -> None:
    peer = make_peer()
    assert peer.judge(header(peer, Kind.MODEL, number=1, hub=USERS)) == Verdict.STRANGER


def test_where_links_have_a_direction_updates_come_from_senders_and_models_from_both() -> None:
    peer = make_peer(senders=frozenset({1}), receivers=(3,))
    assert peer.neighbours() == {1, 3}
    assert peer.judge(header(peer, sender=1)) == Verdict.ACCEPTED
    assert peer.judge(header(peer, sender=3)) == Verdict.STRANGER
    for kind in (Kind.MODEL, Kind.ASK):
        assert peer.judge(header(peer, kind, sender=3, number=1)) == Verdict.ACCEPTED


def test_what_was_meant_for_an_earlier_self_is_refused() -> None:
    peer = make_peer()
    for kind in Kind:
        assert peer.judge(header(peer, kind, number=1, to_epoch=MY_EPOCH - 1)) == Verdict.EARLIER_SELF
        assert peer.judge(header(peer, kind, number=1, to_epoch=0)) == Verdict.EARLIER_SELF


def test_what_an_earlier_self_of_the_sender_sent_is_refused_once_it_is_known_to_be_back() -> None:
    peer = make_peer()
    hear_update(peer, 7)
    peer.member_came(1, EPOCH + 1, 2.0)
    for kind in Kind:
        assert peer.judge(header(peer, kind, number=8)) == Verdict.EARLIER_SENDER
    hear_update(peer, 7, epoch=EPOCH + 1)  # the same number, by another self


def test_a_message_of_a_new_self_may_come_before_the_news_of_it() -> None:
    peer = make_peer()
    hear_update(peer, 7)
    hear_update(peer, 0, epoch=EPOCH + 1)
    assert peer.judge(header(peer, number=8)) == Verdict.EARLIER_SENDER
    peer.member_came(1, EPOCH + 1, 2.0)
    assert peer.judge(header(peer, number=0, epoch=EPOCH + 1)) == Verdict.DUPLICATE


def test_members_come_and_go_by_their_epochs() -> None:
    peer = make_peer(everybody_is_there=False)
    assert peer.reachable() == ()
    peer.member_came(1, 8, 0.0)
    peer.member_came(1, 7, 0.0)  # late news of an earlier self
    peer.member_left(1, 7)
    assert peer.state.members == {1: 8}
    assert peer.reachable() == (1,)
    peer.member_left(1, 8)
    peer.member_left(1, 8)
    assert peer.reachable() == ()


@pytest.mark.parametrize("user", [2, -1, USERS])
def test_neither_this_peer_itself_nor_nobody_is_a_member(user: int) -> None:
    peer = make_peer(everybody_is_there=False)
    assert peer.member_came(user, 1, 0.0) == []
    assert peer.state.members == {}


def test_who_is_no_neighbour_is_a_member_and_not_asked() -> None:
    peer = make_peer(everybody_is_there=False, senders=frozenset({1}), receivers=(1,))
    assert peer.member_came(4, 1, 0.0) == []
    assert peer.state.members == {4: 1}
    assert peer.reachable() == ()


# Catching up


def test_every_neighbour_that_comes_is_asked_for_a_newer_model() -> None:
    peer = make_peer(everybody_is_there=False)
    peer.node.state.unified_period = 4
    assert peer.member_came(1, 1, 0.0) == [AskForModel(1, 4)]
    assert peer.member_came(3, 1, 0.0) == [AskForModel(3, 4)]
    peer.node.state.unified_period = 6
    assert peer.member_came(3, 2, 0.0) == [AskForModel(3, 6)]  # it was started again


def test_a_model_that_was_given_takes_the_place_of_an_older_one_and_moves_the_periods() -> None:
    peer = make_peer()
    given_model = Message(1, 2, 6, 0, 1.0, peer.vectors.new(), 40, 30.0, 30.0, 30.0)
    commands = peer.model_given(given_model, 30.0)
    assert Copy(30.0, 2, given_model.vector, 2) in commands
    assert not of_kind(commands, SendModel)  # who asked hands nothing on
    assert peer.state.period == 6
    assert timers(commands) == {Happening.PERIOD_ENDED: 130.0}
    # Whatever is heard of that period's hubs themselves is at least as new.
    assert peer.judge(header(peer, Kind.MODEL, number=6, hub=4)) == Verdict.ACCEPTED


def test_a_model_that_was_given_too_late_is_let_go() -> None:
    peer = make_peer()
    hear_model(peer, 6, hub=0, sender=0, now_s=20.0)
    given_model = Message(1, 2, 6, 0, 1.0, peer.vectors.new(), 40, 30.0, 30.0, 30.0)
    commands = peer.model_given(given_model, 30.0)
    assert not of_kind(commands, Copy)
    assert given_model.vector not in peer.vectors.state.references


# Periods and hubs


def test_a_period_ends_by_the_peers_own_clock_and_restarts_the_budget() -> None:
    peer = make_peer(psi=1)
    hear_update(peer, 0)
    commands = peer.period_ended(PERIOD_S)
    assert timers(commands)[Happening.PERIOD_ENDED] == 2 * PERIOD_S
    assert of_kind(hear_update(peer, 1), Settle)[0].fate == Fate.APPLIED


def test_the_first_in_rank_unifies_at_once_and_the_others_wait_their_turn() -> None:
    sent = {user: make_peer(user).period_ended(PERIOD_S) for user in range(USERS)}
    (unification,) = of_kind(sent[0], SendModel)
    assert (unification.hub, unification.period, unification.receivers) == (0, 1, (1, 2, 3, 4))
    assert not any(of_kind(sent[user], SendModel) for user in range(1, USERS))
    waits = {user: timers(sent[user]).get(Happening.HUB_OVERDUE) for user in range(USERS)}
    assert waits == {0: None, 1: 103.0, 2: 106.0, 3: 109.0, 4: None}  # three may take over, and that is enough


def test_who_follows_a_hub_that_is_gone_takes_its_place_at_once() -> None:
    peer = make_peer(1)
    peer.member_left(0, EPOCH)
    assert of_kind(peer.period_ended(PERIOD_S), SendModel)


def test_those_who_are_gone_are_not_waited_for() -> None:
    peer = make_peer(3)
    peer.member_left(0, EPOCH)
    peer.member_left(2, EPOCH)
    assert timers(peer.period_ended(PERIOD_S))[Happening.HUB_OVERDUE] == PERIOD_S + TAKEOVER_S


def test_of_users_that_are_no_neighbours_nothing_is_known_so_they_are_waited_for() -> None:
    peer = make_peer(2, everybody_is_there=False, receivers=(1, 3), senders=frozenset({1, 3}))
    assert timers(peer.period_ended(PERIOD_S))[Happening.HUB_OVERDUE] == PERIOD_S + TAKEOVER_S  # for user 0


def test_an_overdue_hub_is_replaced_only_if_nobody_was_heard() -> None:
    waiting, informed = make_peer(1), make_peer(1)
    for peer in (waiting, informed):
        peer.period_ended(PERIOD_S)
    hear_model(informed, 1, hub=0, sender=3, now_s=101.0)
    assert informed.hub_overdue(103.0) == []
    (unification,) = of_kind(waiting.hub_overdue(103.0), SendModel)
    assert (unification.hub, unification.period) == (1, 1)


def test_of_two_hubs_of_one_period_the_first_in_rank_wins_whatever_came_first() -> None:
    peer = make_peer(4)
    peer.period_ended(PERIOD_S)
    assert of_kind(hear_model(peer, 1, hub=1, sender=1, now_s=104.0), Copy)
    assert peer.judge(header(peer, Kind.MODEL, 3, 1, hub=2)) == Verdict.NOT_NEWER
    assert of_kind(hear_model(peer, 1, hub=0, sender=3, now_s=105.0), Copy)
    for hub in range(USERS):
        assert peer.judge(header(peer, Kind.MODEL, 3, 1, hub=hub)) == Verdict.NOT_NEWER


def test_a_hub_that_took_over_gives_way_to_the_one_before_it() -> None:
    peer = make_peer(1)
    peer.member_left(0, EPOCH)
    peer.period_ended(PERIOD_S)
    peer.member_came(0, EPOCH + 1, 101.0)
    head = header(peer, Kind.MODEL, 0, 1, epoch=EPOCH + 1)
    assert peer.judge(head) == Verdict.ACCEPTED


def test_a_model_goes_on_once_and_not_back_to_where_it_came_from_or_was_made() -> None:
    peer = make_peer(2)
    (relayed,) = of_kind(hear_model(peer, 1, hub=0, sender=3, now_s=100.0), SendModel)
    assert (relayed.hub, relayed.period, relayed.receivers) == (0, 1, (1, 4))
    for sender in (0, 1, 3, 4):  # the same from everybody else
        assert peer.judge(header(peer, Kind.MODEL, sender, 1, hub=0)) == Verdict.NOT_NEWER


def test_at_the_end_of_a_line_a_model_goes_no_further() -> None:
    peer = make_peer(2, receivers=(1,), senders=frozenset({1}))
    commands = hear_model(peer, 1, hub=0, sender=1, now_s=100.0)
    assert not of_kind(commands, SendModel)
    assert len(peer.vectors.state.references) == 1  # that of the update in training: the model's own was freed


def test_a_model_of_a_later_period_ends_the_period_here_and_shifts_the_next_end() -> None:
    peer = make_peer(psi=1)
    hear_update(peer, 0)
    commands = hear_model(peer, 3, hub=2 + 1, sender=1, now_s=270.0)
    assert peer.state.period == 3
    assert timers(commands) == {Happening.PERIOD_ENDED: 370.0}
    assert of_kind(hear_update(peer, 1), Settle)[0].fate == Fate.APPLIED  # the budget restarted with it
    assert timers(peer.period_ended(370.0))[Happening.PERIOD_ENDED] == 470.0


def test_a_model_of_the_period_that_ended_here_already_shifts_nothing() -> None:
    peer = make_peer()
    peer.period_ended(PERIOD_S)
    assert timers(hear_model(peer, 1, hub=0, sender=0, now_s=101.0)) == {}
    assert peer.state.period_shift_s == 0.0


def test_a_hub_that_heard_of_its_own_period_already_does_not_unify_again() -> None:
    peer = make_peer(0)
    peer.state.period = 4  # periods 1 and 6 are user 0's
    peer.node.state.unified_period, peer.node.state.unified_rank = 6, 0
    commands = peer.period_ended(5 * PERIOD_S)
    assert not of_kind(commands, SendModel)
    peer = make_peer(0)
    peer.node.state.unified_period = 1
    assert not of_kind(peer.period_ended(PERIOD_S), SendModel)


def test_periods_before_the_first_and_far_in_the_future_are_nonsense() -> None:
    peer = make_peer()
    assert peer.judge(header(peer, Kind.MODEL, number=0)) == Verdict.NOT_NEWER
    assert peer.judge(header(peer, Kind.MODEL, number=10_000)) == Verdict.ACCEPTED
    assert peer.judge(header(peer, Kind.MODEL, number=10_001)) == Verdict.SENSELESS
    assert peer.judge(header(peer, Kind.MODEL, number=2**64 - 1)) == Verdict.SENSELESS


def test_without_unification_budgets_restart_and_models_of_others_are_not_taken() -> None:
    peer = make_peer(0, unifies=False)
    commands = peer.period_ended(PERIOD_S)
    assert set(timers(commands)) == {Happening.PERIOD_ENDED}
    assert not of_kind(commands, SendModel)
    assert peer.judge(header(peer, Kind.MODEL, number=1)) == Verdict.NOT_NEWER


def test_without_periods_there_is_no_end_to_wait_for() -> None:
    peer = make_peer(period_s=None, unifies=False)
    assert set(timers(peer.start(0.0))) == {Happening.UPDATE_DUE}
    peer.model_given(Message(1, 2, 6, 0, 1.0, peer.vectors.new(), 40, 30.0, 30.0, 30.0), 30.0)
    assert peer.state.period == 0


@given(st.sets(st.integers(0, USERS - 1), min_size=1), st.integers(1, 50), st.sampled_from(["round-robin", "random"]))
def test_of_those_who_see_the_same_members_exactly_one_unifies_at_once(
    there: set[int], period: int, policy: str
) -> None:
    unify = []
    for user in sorted(there):
        peer = make_peer(user, everybody_is_there=False, hub=policy)
        for other in there - {user}:
            peer.member_came(other, EPOCH, 0.0)
        peer.no_newer_model()
        peer.state.period = period - 1
        unify += [user] * len(of_kind(peer.period_ended(period * PERIOD_S), SendModel))
    assert len(unify) == 1


def test_who_has_not_heard_from_anybody_since_its_start_is_no_hub_and_asks_again() -> None:
    """Its model may be an old one, and would replace everybody's."""
    peer = make_peer(0, everybody_is_there=False)
    peer.member_came(1, EPOCH, 0.0)
    commands = peer.period_ended(PERIOD_S)
    assert not of_kind(commands, SendModel)
    assert of_kind(commands, AskForModel) == [AskForModel(1, 0)]


def test_who_wakes_up_after_the_next_has_taken_its_place_is_no_hub() -> None:
    peer = make_peer(0)
    assert not of_kind(peer.period_ended(PERIOD_S + 1.01 * TAKEOVER_S), SendModel)


def test_periods_that_ended_while_a_peer_was_away_are_over() -> None:
    peer = make_peer(0)
    peer.node.state.accepted = 3
    commands = peer.start(3.5 * PERIOD_S)
    assert (peer.state.period, peer.node.state.accepted) == (3, 0)
    assert timers(commands)[Happening.PERIOD_ENDED] == 4 * PERIOD_S
    assert not of_kind(commands, SendModel)


@given(st.permutations(range(USERS)), st.sampled_from(["round-robin", "random"]))
def test_whatever_the_order_in_which_hubs_are_heard_all_end_with_the_same_one(order: list[int], policy: str) -> None:
    def best(order: list[int]) -> int:
        peer, winner = make_peer(2, hub=policy), -1
        for hub in order:
            head = header(peer, Kind.MODEL, 1, 7, hub=hub)
            if peer.judge(head) == Verdict.ACCEPTED:
                peer.model_arrived(head, message(peer, head), 700.0)
                winner = hub
        return winner

    assert best(order) == best(list(range(USERS)))


def test_a_peer_that_starts_sends_its_first_update_to_its_receivers() -> None:
    peer = make_peer()
    (sent,) = of_kind(peer.node.update_due(10.0), SendUpdate)
    assert sent.receivers == (0, 1, 3, 4)
