"""Peers keep the laws whatever the network does to them, and the laws would notice if they did not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from faults.run import first_broken, judge
from faults.schedule import Kind, draw_schedule

from dracofl.protocol.commands import Command
from dracofl.protocol.headers import Header, Verdict
from dracofl.protocol.messages import Message
from dracofl.protocol.node import NodeCore
from dracofl.protocol.peer import Heard, PeerCore
from dracofl.protocol.vectors import Vectors
from dracofl.runtime.offsets import Offsets
from dracofl.runtime.parcel import Parcel

SEEDS_IN_A_TEST = 30


@pytest.mark.parametrize("first", range(0, 300, SEEDS_IN_A_TEST))
def test_peers_keep_the_laws_whatever_happens(first: int) -> None:
    for seed in range(first, first + SEEDS_IN_A_TEST):
        verdict = judge(seed)
        assert verdict.summary is not None, f"seed {seed} (python -m faults --replay {seed}): {verdict.text}"
        assert verdict.summary.peers >= 5
        assert verdict.summary.events >= 300
        assert verdict.summary.unifications >= 2


def test_an_answer_from_before_a_restart_says_nothing_of_the_clock_after_it() -> None:
    """Here it comes when the neighbour is known to have been started again, and the next answer is lost."""
    assert judge(10632).text == ""


def test_a_seed_is_one_schedule_and_takes_one_course() -> None:
    stories: list[list[str]] = [[], []]
    for story in stories:
        judge(7, story.append)
    assert len(stories[0]) > 300
    assert stories[0] == stories[1]


def test_everything_that_can_go_wrong_does() -> None:
    schedules = [draw_schedule(seed) for seed in range(300)]
    faults = [fault for schedule in schedules for fault in schedule.faults]
    assert {fault.kind for fault in faults} == set(Kind)
    assert {fault.one_way for fault in faults if fault.kind == Kind.CUT} == {False, True}
    assert {None, 0, 1} <= {fault.posts for fault in faults if fault.kind == Kind.CRASH}
    assert all(schedule.weather.duplicate > 0.0 and schedule.weather.loss > 0.0 for schedule in schedules)


# With one rule of the peers removed, a law is seen to be broken after a few schedules.


def without_duplicate_check(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        Heard, "verdict", lambda heard, epoch, _: [Verdict.ACCEPTED, Verdict.EARLIER_SENDER][epoch < heard.epoch]
    )


def without_senders_epoch(patch: pytest.MonkeyPatch) -> None:
    """Numbers that begin again look like those of before."""
    verdict, note, came = Heard.verdict, Heard.note, PeerCore.member_came

    def came_and_nothing_is_forgotten(core: PeerCore, user: int, *news: Any) -> list[Command]:
        heard = core.state.heard.get(user)
        commands = came(core, user, *news)
        if heard is not None:
            core.state.heard[user] = heard
        return commands

    patch.setattr(Heard, "verdict", lambda heard, _, number: verdict(heard, heard.epoch, number))
    patch.setattr(Heard, "note", lambda heard, _, number: note(heard, heard.epoch, number))
    patch.setattr(PeerCore, "member_came", came_and_nothing_is_forgotten)


def without_receivers_epoch(patch: pytest.MonkeyPatch) -> None:
    judge_header = PeerCore.judge

    def judge_as_if_for_me(core: PeerCore, header: Header) -> Verdict:
        return judge_header(core, header._replace(to_epoch=core.state.epoch))

    patch.setattr(PeerCore, "judge", judge_as_if_for_me)


def without_hub_ranking(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(NodeCore, "is_newer", lambda node, period, _: period > node.state.unified_period)


def with_every_hub_taken(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(NodeCore, "is_newer", lambda node, period, _: period >= node.state.unified_period)


def without_budget(patch: pytest.MonkeyPatch) -> None:
    received = NodeCore.received

    def received_first(node: NodeCore, *arrival: Any) -> list[Command]:
        node.state.accepted = 0
        return received(node, *arrival)

    patch.setattr(NodeCore, "received", received_first)


def with_full_outboxes_forgetting(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Parcel, "joined_by", lambda parcel, _: parcel)


def without_freeing(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Vectors, "release", lambda vectors, _: False)


def with_clocks_remembered(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Offsets, "forget", lambda offsets, _: None)


def with_late_hubs(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(PeerCore, "_may_unify", lambda core, *_: True)


def without_handing_on(patch: pytest.MonkeyPatch) -> None:
    def kept(core: PeerCore, header: Header, message: Message, now_s: float) -> list[Command]:
        out: list[Command] = []
        core.state.is_up_to_date = True
        core._catch_up(header.number, now_s, out)
        return out + core.node.model_received(message, now_s, core._rank(header.number, header.hub))

    patch.setattr(PeerCore, "model_arrived", kept)


def without_takeovers(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(PeerCore, "hub_overdue", lambda core, _: [])


REMOVED: dict[Callable[[pytest.MonkeyPatch], None], set[str]] = {
    without_duplicate_check: {"NothingIsTakenTwice"},
    without_senders_epoch: {"NewsIsTaken"},
    without_receivers_epoch: {"NothingIsTakenTwice", "NewsIsTaken", "BestHubIsInPlace"},
    without_hub_ranking: {"BestHubIsInPlace"},
    with_every_hub_taken: {"BestHubIsInPlace", "ModelsAreHandedOnOnce"},
    without_budget: {"BudgetIsKept"},
    with_full_outboxes_forgetting: {"UpdatesAreConserved"},
    without_freeing: {"NothingLeaks"},
    with_clocks_remembered: {"ClockOffsetsAreRight"},
    with_late_hubs: {"NobodyIsHubTooLate"},
    without_handing_on: {"NetworkComesTogether"},
    without_takeovers: {"HubsAreReplaced"},
}


@pytest.mark.parametrize("remove", REMOVED, ids=lambda remove: remove.__name__)
def test_a_removed_rule_is_noticed(
    remove: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    remove(monkeypatch)
    broken = first_broken(range(SEEDS_IN_A_TEST))
    assert broken is not None
    assert broken.law in REMOVED[remove], broken.text
