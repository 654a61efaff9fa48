"""A peer's saved state: what comes back after a stop, what does not after a kill, and what is never believed."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest

from dracofl.build import build_peer_core, build_world
from dracofl.config.load import load_config
from dracofl.errors import RunFolderError, StorageError
from dracofl.protocol.commands import AskForModel, Happening, SendModel, SetTimer
from dracofl.protocol.headers import Header, Kind, shape_of
from dracofl.protocol.messages import Message
from dracofl.protocol.node import NONE
from dracofl.protocol.peer import PeerCore, PeerState
from dracofl.runtime.journal import START, Line
from dracofl.runtime.save import Saved, control_state, load, new_epoch, prepare_save, restore_control, resume

ME = 1
CHANGES = [
    "users=3",
    "task.kind=quadratic",
    "compute.snapshot=start",
    "method.hub=round-robin",
    "transmit.when=poisson",
    "transmit.rate=0.05",
    "method.psi=4",
    "method.period_s=100",
    "method.window_s=5",
]


def new_core(epoch: int = 1) -> PeerCore:
    config = load_config("tiny", CHANGES)
    return build_peer_core(config, build_world(config), 4, ME, PeerState(epoch))


def vector(value: float) -> np.ndarray:
    return np.full(4, value, np.float32)


def lived_core() -> tuple[PeerCore, dict[int, np.ndarray]]:
    """In its second period, with an unsent update, another one in training, and a message in its window."""
    core = new_core()
    vectors = {ME: vector(1.0)}
    core.member_came(0, 50, 0.0)
    core.start(0.0)
    core.period_ended(100.0)
    core.node.update_due(110.0)
    vectors[core.node.state.unsent] = vector(2.0)
    header = Header(Kind.UPDATE, 0, ME, 50, 1, 7, 1, 0, 0.5, 0.0, 0.0, 0.0, 4, shape_of())
    message = Message(0, ME, 7, 1, 0.5, core.vectors.new(), 16, 110.0, 111.0, 112.0)
    vectors[message.vector] = vector(3.0)
    core.update_arrived(header, message, 112.0)
    core.node.state.accepted = 2
    return core, vectors


def next_end_s(core: PeerCore, now_s: float) -> float:
    """Of a period, for a core that is started now."""
    timers = [command for command in core.start(now_s) if isinstance(command, SetTimer)]
    (end_s,) = [timer.at_s for timer in timers if timer.happening == Happening.PERIOD_ENDED]
    return end_s


@pytest.fixture
def saved(tmp_path: Path) -> Saved:
    core, vectors = lived_core()
    prepare_save(tmp_path / "peer.npz", core, vectors, "this one", 1234.5, lines=3)()
    found = load(tmp_path / "peer.npz", "this one")
    assert found is not None
    return found


def test_what_is_saved_is_read(saved: Saved) -> None:
    core, vectors = lived_core()
    assert (saved.node, saved.peer) == (core.node.state, core.state)
    assert (saved.starts_at, saved.lines, saved.identity) == (1234.5, 3, "this one")
    assert {name: numbers[0] for name, numbers in saved.vectors.items()} == {
        ME: 1.0,
        core.node.state.unsent: 2.0,
        core.node.state.window[0].vector: 3.0,
    }
    assert set(saved.vectors) == set(vectors)  # the update in training is computed anew


def test_there_is_nothing_before_the_first_save(tmp_path: Path) -> None:
    assert load(tmp_path / "peer.npz", "this one") is None


# Going on


def test_an_unsent_update_that_was_not_sent_since_is_sent_later(saved: Saved) -> None:
    core = new_core(2)
    vectors = resume(core, saved, 2, [])
    state = core.node.state
    assert (state.unsent_updates, vectors[state.unsent][0]) == (1, 2.0)
    assert set(vectors) == {ME, state.unsent}
    assert set(core.vectors.state.references) == {state.unsent}
    assert core.vectors.new() > max(vectors)


def test_an_unsent_update_that_was_sent_since_is_not_sent_again(saved: Saved) -> None:
    core = new_core(2)
    since: list[Line] = [["timer", 120.0, "TRANSMISSION_DUE", "x"], ["sent", 120.0, 0, 1, 110.0, 16, 0.0, []]]
    vectors = resume(core, saved, 2, since)
    assert (core.node.state.unsent, core.node.state.unsent_updates) == (NONE, 0)
    assert set(vectors) == {ME}


def test_a_message_that_was_held_in_a_window_is_not_applied_again(saved: Saved) -> None:
    core = new_core(2)
    resume(core, saved, 2, [])
    assert core.node.state.window == ()


def test_the_update_in_training_is_begun_anew_under_its_own_number(saved: Saved) -> None:
    core = new_core(2)
    resume(core, saved, 2, [])
    assert (core.node.state.started, core.node.state.finished) == (1, 1)
    core.start(130.0)
    assert core.node.state.training in core.vectors.state.references


@pytest.mark.parametrize(("arrived", "expected"), [(0, 2), (1, 3), (2, 4), (9, 4)])
def test_the_budget_is_counted_on(saved: Saved, arrived: int, expected: int) -> None:
    core = new_core(2)
    resume(core, saved, 2, [["update", 113.0, [], [], "", ""]] * arrived)
    assert core.node.state.accepted == expected


def test_a_period_that_ended_since_is_over_and_its_budget_with_it(saved: Saved) -> None:
    core = new_core(2)
    since: list[Line] = [
        ["update", 113.0, [], [], "", ""],
        ["timer", 200.0, "PERIOD_ENDED", "x"],
        ["update", 201.0, [], [], "", ""],
    ]
    resume(core, saved, 2, since)
    assert (core.state.period, core.node.state.accepted) == (2, 1)
    assert next_end_s(core, 210.0) == 300.0


def test_periods_that_a_start_found_over_are_over_and_what_it_accepted_then_is_counted(saved: Saved) -> None:
    """Killed, started again in a later period, and killed once more before it saved: that period has one budget."""
    core = new_core(2)
    since: list[Line] = [
        ["start", 330.0, {"epoch": 1}],
        ["timer", 330.0, START, "x"],
        ["update", 331.0, [], [], "", ""],
    ]
    resume(core, saved, 2, since)
    assert (core.state.period, core.node.state.accepted) == (3, 1)
    core.start(340.0)
    assert (core.state.period, core.node.state.accepted) == (3, 1)


@pytest.mark.parametrize("kind", ["model", "given"])
def test_a_later_period_that_was_heard_of_since_is_kept_and_so_is_when_the_next_one_ends(
    saved: Saved, kind: str
) -> None:
    core = new_core(2)
    heard: Line = (
        ["model", 150.0, [0, ME, 50, 1, 6, 0, 0], [], "", ""]
        if kind == "model"
        else ["given", 150.0, 0, 50, 6, [], "", ""]
    )
    resume(core, saved, 2, [["update", 140.0, [], [], "", ""], heard])
    assert (core.state.period, core.node.state.accepted) == (6, 0)
    assert next_end_s(core, 160.0) == 250.0  # a whole period after it was heard, as before the kill


def test_a_model_of_an_earlier_period_and_an_empty_answer_change_no_period(saved: Saved) -> None:
    core = new_core(2)
    resume(core, saved, 2, [["model", 150.0, [0, ME, 50, 1, 1], [], "", ""]])
    assert (core.state.period, core.node.state.accepted) == (1, 2)


def test_a_peer_that_was_killed_as_a_hub_does_not_believe_to_have_unified(saved: Saved) -> None:
    """Its model of then is gone with it: it asks its neighbours, who have it."""
    core = new_core(2)
    resume(core, saved, 2, [["timer", 200.0, "PERIOD_ENDED", "x"], ["unified", 200.0, ME, 2, 16, 0.0]])
    assert core.node.state.unified_period == 0
    assert core.member_came(0, 60, 201.0) == [AskForModel(0, 0)]
    assert not any(isinstance(command, SendModel) for command in core.start(210.0))


def test_members_are_to_be_met_again(saved: Saved) -> None:
    core = new_core(2)
    resume(core, saved, 2, [])
    assert core.state.members == {}
    assert core.state.epoch == 2
    assert core.state.heard[0].epoch == 50  # what they sent before is remembered


# What is not believed


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: b"",
        lambda data: data[: len(data) // 2],
        lambda data: b"PK" + bytes(200),
        lambda data: data.replace(b'"node"', b'"nod3"'),
        lambda data: data.replace(b'"epoch"', b'"epohc"'),
    ],
    ids=["empty", "half", "zeros", "a word that is another", "a key that is another"],
)
def test_a_damaged_file_is_named_with_what_to_do(tmp_path: Path, damage: object) -> None:
    path = tmp_path / "peer.npz"
    core, vectors = lived_core()
    prepare_save(path, core, vectors, "this one", 0.0, 0)()
    path.write_bytes(damage(path.read_bytes()))  # type: ignore[operator]
    with pytest.raises(RunFolderError, match=r"peer\.npz is damaged: .*; remove it to begin again"):
        load(path, "this one")


def test_a_file_of_another_version_is_refused_with_both_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    core, vectors = lived_core()
    with monkeypatch.context() as patch:
        patch.setattr("dracofl.runtime.save.FORMAT", 9)
        prepare_save(tmp_path / "peer.npz", core, vectors, "this one", 0.0, 0)()
    with pytest.raises(RunFolderError, match="it has format 9, and this version writes 1"):
        load(tmp_path / "peer.npz", "this one")


def test_the_state_of_another_configuration_is_refused(tmp_path: Path) -> None:
    core, vectors = lived_core()
    prepare_save(tmp_path / "peer.npz", core, vectors, "another one", 0.0, 0)()
    with pytest.raises(RunFolderError, match="belongs to another configuration: put that back, or name another folder"):
        load(tmp_path / "peer.npz", "this one")


def test_a_state_that_cannot_be_written_leaves_the_one_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "peer.npz"
    core, vectors = lived_core()
    prepare_save(path, core, vectors, "this one", 0.0, 7)()

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "savez", full)
    with pytest.raises(StorageError, match="No space left on device"):
        prepare_save(path, core, vectors, "this one", 0.0, 8)()
    monkeypatch.undo()
    found = load(path, "this one")
    assert found is not None
    assert found.lines == 7
    assert [file.name for file in tmp_path.iterdir()] == ["peer.npz"]


# Epochs


def test_an_epoch_is_higher_than_any_before_even_if_the_clock_was_set_back(monkeypatch: pytest.MonkeyPatch) -> None:
    first = new_epoch(0)
    monkeypatch.setattr(time, "time", lambda: 0.0)
    assert new_epoch(first) == first + 1
    monkeypatch.setattr(time, "time", lambda: 1e10)
    assert new_epoch(first) == 10**13


def test_an_epoch_of_a_peer_whose_folder_is_lost_is_still_higher(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time", lambda: 1e9)
    first = new_epoch(0)
    monkeypatch.setattr(time, "time", lambda: 1e9 + 0.002)
    assert new_epoch(0) > first


# What a replay begins from


def test_a_core_that_is_restored_decides_as_the_one_it_was_taken_from() -> None:
    core, _ = lived_core()
    again = new_core(9)
    restore_control(again, control_state(core))
    assert again.node.rules == core.node.rules
    assert again.node.transmission_due(120.0) == core.node.transmission_due(120.0)
    assert again.node.window_closed(121.0) == core.node.window_closed(121.0)
    assert again.period_ended(200.0) == core.period_ended(200.0)
