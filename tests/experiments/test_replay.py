"""A run of real peers once more from its journals: the same commands and the same numbers, or it is said where not."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from dracofl.build import build_medium, build_peer_core, build_problem, build_world
from dracofl.config.load import load_config
from dracofl.config.render import to_toml
from dracofl.errors import RunFolderError
from dracofl.experiments.cluster import gather
from dracofl.experiments.node import JOURNAL
from dracofl.experiments.replay import replay
from dracofl.protocol.headers import Kind, shape_of
from dracofl.protocol.peer import PeerState
from dracofl.runtime.journal import FileJournal, Line, read_journal
from dracofl.runtime.parcel import Outbox, Parcel
from dracofl.runtime.peer import Peer
from dracofl.runtime.ports import Limits
from dracofl.runtime.save import control_state
from dracofl.runtime.virtual import VirtualNetwork
from dracofl.telemetry.folder import RunFolder

USERS = 3
CHANGES = [
    f"users={USERS}",
    "duration_s=150",
    "task.kind=quadratic",
    "compute.snapshot=start",
    "method.hub=round-robin",
    "method.period_s=40",
    "method.window_s=2",
    "method.psi=10",
    "compute.rate=0.3",
    "channel.kind=ideal",
]


class SlowNetwork(VirtualNetwork):
    """Takes a message from an outbox of one place now and then, so that most go in one with others."""

    def __init__(self, *arguments: object) -> None:
        super().__init__(*arguments)  # type: ignore[arg-type]
        self.journals: dict[int, FileJournal] = {}
        self._outboxes: dict[tuple[int, int], Outbox] = {}

    def post(self, parcel: Parcel, at_s: float) -> None:
        if parcel.header.kind != Kind.UPDATE:
            super().post(parcel, at_s)
            return
        sender, receiver = parcel.header.sender, parcel.header.receiver
        outbox = self._outboxes.setdefault((sender, receiver), Outbox(capacity=1))
        if not len(outbox):
            self.at(at_s + 7.0, 2, lambda: VirtualNetwork.post(self, outbox.take(), self.now_s))
        merged = outbox.put(parcel)
        if merged is not None:
            self.journals[sender].write("merged", self.now_s, receiver, *merged)


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a cluster whose peers lived in virtual time."""
    config = load_config("tiny", CHANGES)
    folder = RunFolder.create(tmp_path_factory.mktemp("cluster") / "run", to_toml(config, comments=False))
    world, problem = build_world(config), build_problem(config)
    network = SlowNetwork(lambda model, user, number: np.asarray(problem.local_update(model, user, number)))
    limits = Limits(shape_of("test"), problem.parameter_count, norm=1e6, deadline_s=1e9)
    for user in range(USERS):
        home = folder.path / "peers" / str(user)
        home.mkdir(parents=True)
        home.with_suffix(".toml").write_text(f'[node]\nuser = {user}\nfolder = "my learner"\n')
        journal = network.journals[user] = FileJournal(home / JOURNAL)
        core = build_peer_core(config, world, problem.parameter_count, user, PeerState(epoch=1))
        journal.write("start", 0.0, control_state(core) | {"saved_lines": None})
        medium = build_medium(config, world)
        network.peers[user] = Peer(core, problem.init(), medium, limits, network.ports_of(user), journal)
    network.start(epoch=1)
    network.run(until_s=config.duration_s)
    for user, peer in network.peers.items():
        network.journals[user].close()
        np.save(folder.path / "peers" / str(user) / "models.npy", peer.model[None])
    summary = gather(folder, config, "finished", began=0.0)
    assert summary["contradictions"] == []
    return folder.path


@pytest.fixture
def run(original: Path, tmp_path: Path) -> Path:
    """One to be doctored."""
    return Path(shutil.copytree(original, tmp_path / "run"))


def lines_of(run: Path, user: int) -> list[Line]:
    return list(read_journal(run / "peers" / str(user) / JOURNAL))


def rewrite(run: Path, user: int, change: Callable[[list[Line]], None]) -> None:
    lines = lines_of(run, user)
    change(lines)
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (run / "peers" / str(user) / JOURNAL).write_text(text)


def first(lines: list[Line], kind: str, *rest: object) -> int:
    return next(place for place, line in enumerate(lines) if line[0] == kind and line[2 : 2 + len(rest)] == list(rest))


def test_everything_comes_out_the_same_to_the_last_bit(original: Path) -> None:
    assert any(line[0] == "merged" for line in lines_of(original, 0))
    told: list[tuple[int, int]] = []
    found = replay(original, lambda done, of: told.append((done, of)))
    assert found.different == []
    assert (found.peers, found.numbers, found.equal_models) == (USERS, True, USERS)
    inputs = ("timer", "update", "model", "came", "left", "given")
    assert found.inputs == sum(line[0] in inputs for user in range(USERS) for line in lines_of(original, user))
    assert told[-1][0] == told[-1][1]


def test_nothing_in_the_folder_is_changed(run: Path) -> None:
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    replay(run)
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before


def test_without_the_journals_of_everybody_the_commands_are_checked_alone(run: Path) -> None:
    shutil.rmtree(run / "peers" / "1")
    found = replay(run)
    assert (found.different, found.peers, found.numbers) == ([], USERS - 1, False)


def test_the_folder_of_one_peer_is_enough_for_its_commands(run: Path) -> None:
    (run / "peers" / "1" / JOURNAL).rename(run / JOURNAL)
    shutil.rmtree(run / "peers")
    found = replay(run)
    assert (found.different, found.peers, found.numbers) == ([], 1, False)
    assert found.inputs > 20


def test_with_a_learner_of_ones_own_the_numbers_are_not_made_again(run: Path) -> None:
    (run / "peers" / "2.toml").write_text('[node]\nuser = 2\nlearner = "mine:learner"\n')
    found = replay(run)
    assert (found.different, found.numbers) == ([], False)


# Doctored journals


def test_other_commands_are_told_with_the_peer_the_line_and_the_time(run: Path) -> None:
    place = first(lines_of(run, 1), "timer", "UPDATE_DUE")

    def change(lines: list[Line]) -> None:
        lines[place][-1] = "0" * 12

    rewrite(run, 1, change)
    time_s = lines_of(run, 1)[place][1]
    assert replay(run).different == [f"peer 1, line {place + 1}, t = {time_s:.3f} s: other commands follow"]


@pytest.mark.parametrize("kind", ["update", "model"])
def test_other_numbers_in_a_message_are_told(run: Path, kind: str) -> None:
    def change(lines: list[Line]) -> None:
        lines[first(lines, kind)][4] = "0" * 16

    rewrite(run, 0, change)
    (sentence,) = replay(run).different
    assert sentence.startswith("peer 0, line ")
    assert sentence.endswith("a message carries other numbers")


def test_a_peer_that_was_killed_while_it_saved_went_on_from_the_state_before(run: Path) -> None:
    def change(lines: list[Line]) -> None:
        again = ["start", 0.0, {**lines[0][2], "saved_lines": 2}]
        # Of the second save there is a line, and no file; and so it goes once more.
        lines[1:1] = [["saved", 0.0], ["saved", 0.0], again, ["saved", 0.0], again]

    rewrite(run, 1, change)
    assert replay(run).different == []


def test_other_numbers_of_a_local_update_are_told(run: Path) -> None:
    place = first(lines_of(run, 1), "timer", "UPDATE_DUE")

    def change(lines: list[Line]) -> None:
        lines[place][3] = "0" * 32

    rewrite(run, 1, change)
    (sentence,) = replay(run).different
    assert sentence.startswith(f"peer 1, line {place + 1}, ")
    assert sentence.endswith("local update 0 has other numbers")


def test_a_message_that_nobody_sent_is_told(run: Path) -> None:
    def change(lines: list[Line]) -> None:
        lines[first(lines, "update")][2][4] = 10_000

    rewrite(run, 0, change)
    assert "nobody sent what arrived there" in " ".join(replay(run).different)


@pytest.mark.parametrize("kind", ["update", "model", "timer"])
def test_a_line_that_was_taken_out_is_noticed(run: Path, kind: str) -> None:
    rewrite(run, 0, lambda lines: lines.pop(first(lines, kind)))
    assert replay(run).different


def test_an_input_that_was_put_in_is_noticed(run: Path) -> None:
    def change(lines: list[Line]) -> None:
        place = first(lines, "update")
        lines.insert(place, lines[place])

    rewrite(run, 0, change)
    assert replay(run).different


def test_another_final_model_is_told(run: Path) -> None:
    models = np.load(run / "models.npy")
    models[2, 0] += 1e-6
    np.save(run / "models.npy", models)
    found = replay(run)
    assert found.different == ["peer 2: the final model is another one"]


def test_whatever_line_is_taken_out_or_cut_it_is_explained_and_no_crash(run: Path) -> None:
    whole = lines_of(run, 1)
    for place in np.random.default_rng(1).choice(len(whole), 12, replace=False).tolist():
        rewrite(run, 1, lambda lines, place=place: lines.pop(place))  # type: ignore[misc]
        replay(run)
        rewrite(run, 1, lambda lines: lines.__setitem__(slice(None), whole))
    for place in (0, 1, first(whole, "timer", "UPDATE_DUE")):
        rewrite(run, 1, lambda lines, place=place: lines.__delitem__(slice(place, place + 1)))  # type: ignore[misc]
        assert replay(run).different
        rewrite(run, 1, lambda lines: lines.__setitem__(slice(None), whole))
    assert replay(run).different == []


def test_a_line_that_no_peer_writes_is_told(run: Path) -> None:
    def change(lines: list[Line]) -> None:
        del lines[first(lines, "update")][2:]

    rewrite(run, 0, change)
    with pytest.raises(RunFolderError, match="has a line that no peer writes"):
        replay(run)


# Folders that cannot be replayed


def test_a_simulation_has_nothing_to_replay(run: Path) -> None:
    shutil.rmtree(run / "peers")
    with pytest.raises(RunFolderError, match=r"has no journal\.jsonl: only runs of real peers can be replayed"):
        replay(run)


def test_an_empty_journal_has_nothing_to_replay(run: Path) -> None:
    shutil.rmtree(run / "peers")
    (run / JOURNAL).write_text("")
    with pytest.raises(RunFolderError, match="there is nothing to replay"):
        replay(run)


def test_a_folder_that_is_no_run_is_told(tmp_path: Path) -> None:
    with pytest.raises(RunFolderError, match="is not a run folder"):
        replay(tmp_path)


def test_files_of_peers_that_cannot_be_read_are_told(run: Path) -> None:
    (run / "peers" / "0.toml").write_text("= 3")
    with pytest.raises(RunFolderError, match=r"the files of the peers in .* cannot be read"):
        replay(run)
