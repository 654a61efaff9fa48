"""Bad input, tried for real: one clear sentence, exit code 2, and nothing is made or lost."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest
from draco_command import QUICK, Outcome, contents, draco

from dracofl.datasets import poker

HANDS = ["run", "tiny", "data.samples_per_user=40", "evaluate.samples=50", "data.dir=uci", "--out", "here"]


def assert_refused(done: Outcome, *fragments: str) -> None:
    """In one sentence that has all of these in it; and no run folder was made."""
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("draco: ")
    assert done.err.count("\n") == 1
    assert "Traceback" not in done.err
    for fragment in fragments:
        assert fragment in done.err
    assert not Path("here").exists()
    assert not Path("runs").exists()


def uci_rows(count: int, seed: int) -> list[str]:
    hands = poker.deal(np.random.default_rng(seed), count)
    return [
        ",".join(map(str, [*hand, label]))
        for hand, label in zip(hands.tolist(), poker.label_hands(hands).tolist(), strict=True)
    ]


@pytest.fixture
def uci() -> Path:
    """A folder like that of the UCI files, with 400 hands to learn from and 100 to be tested on."""
    folder = Path("uci")
    folder.mkdir()
    (folder / "poker-hand-training-true.data").write_text("\n".join(uci_rows(400, 1)) + "\n")
    (folder / "poker-hand-testing.data").write_text("\n".join(uci_rows(100, 2)) + "\n")
    return folder


# The configuration


def test_one_problem_is_one_line() -> None:
    assert_refused(draco(*QUICK, "users=1", "--out", "here"), "users = 1: must be at least 2")


def test_several_problems_are_listed_together() -> None:
    done = draco(*QUICK, "users=1", "train.bacth=3", "duration_s=10 s", "--out", "here")
    assert (done.code, done.out) == (2, "")
    first, *rest = done.err.splitlines()
    assert first == "draco: 3 things are wrong with the configuration:"
    assert len(rest) == 3
    assert all(line.startswith("  - ") for line in rest)
    assert not Path("here").exists()


def test_a_file_with_an_error_in_it(tmp_path: Path) -> None:
    (tmp_path / "my.toml").write_text("users = 3\nusers = 4\n")
    assert_refused(draco("run", "my.toml", "--out", "here"), '"my.toml" is not valid TOML', "line 2")


def test_a_preset_that_does_not_exist() -> None:
    assert_refused(draco("run", "pokre", "--out", "here"), '"pokre" is neither a preset', "did you mean poker?")


def test_debug_shows_where_and_keeps_the_exit_code() -> None:
    done = draco(*QUICK, "users=1", "--debug")
    assert done.code == 2
    assert done.err.startswith("Traceback (most recent call last):")
    assert done.err.splitlines()[-1].startswith("draco: users = 1")


# Graphs and weights


def test_an_isolated_user_in_a_file(tmp_path: Path) -> None:
    (tmp_path / "graph.txt").write_text("0 1\n1 0\n")
    done = draco(*QUICK, "topology.kind=file", "topology.path=graph.txt", "--out", "here")
    assert (done.code, done.out) == (2, "")
    assert "user 2 has nobody to send to" in done.err
    assert "user 2 has nobody to hear" in done.err
    assert str(tmp_path / "graph.txt") in done.err
    assert not Path("here").exists()


def test_a_graph_file_of_another_size_or_missing(tmp_path: Path) -> None:
    (tmp_path / "graph.txt").write_text("0 7\n")
    graph = ["topology.kind=file", "topology.path=graph.txt", "--out", "here"]
    assert_refused(draco(*QUICK, *graph), "line 1 names user 7", "users = 3")
    (tmp_path / "graph.txt").unlink()
    assert_refused(draco(*QUICK, *graph), "graph.txt", "No such file")


def test_a_graph_without_enough_users() -> None:
    done = draco(*QUICK, "topology.kind=k-out", "topology.k=3", "--out", "here")
    assert_refused(done, "topology.k = 3", "less than the number of users, 3")


def test_rows_of_weights_that_do_not_sum_to_one(tmp_path: Path) -> None:
    (tmp_path / "q.csv").write_text("0,0.5,0.5\n0.4,0,0.5\n1,0,0\n")
    done = draco(*QUICK, "method.weights=q.csv", "--out", "here")
    assert_refused(done, str(tmp_path / "q.csv"), "row 1 sums to 0.9", "must sum to 1")


def test_weights_for_other_users_or_missing(tmp_path: Path) -> None:
    (tmp_path / "q.csv").write_text("0,1\n1,0\n")
    assert_refused(draco(*QUICK, "method.weights=q.csv", "--out", "here"), "q.csv", "3 users need (3, 3)")
    assert_refused(draco(*QUICK, "method.weights=nowhere.csv", "--out", "here"), "nowhere.csv", "No such file")
    (tmp_path / "q.csv").write_text("a,b\n")
    assert_refused(draco(*QUICK, "method.weights=q.csv", "--out", "here"), "q.csv", "not a matrix of numbers")


def test_a_table_of_rates_of_another_size() -> None:
    assert_refused(draco(*QUICK, "channel.rates=[[1.0]]", "--out", "here"), "channel.rates", "3 x 3")


# Data


@pytest.mark.usefixtures("uci")
def test_real_hands_are_learned_from() -> None:
    done = draco(*HANDS, "duration_s=20")
    assert done.code == 0
    assert "accuracy of the users" in done.out


@pytest.mark.usefixtures("uci")
def test_fewer_samples_than_asked() -> None:
    done = draco(*HANDS, "data.samples_per_user=51")
    assert_refused(done, "8 x 51 = 408", "has 400", "data.samples_per_user")


@pytest.mark.usefixtures("uci")
def test_fewer_test_samples_than_asked() -> None:
    assert_refused(draco(*HANDS, "evaluate.samples=101"), "evaluate.samples = 101", "100 test samples")


def test_a_missing_folder() -> None:
    assert_refused(draco(*HANDS), str(Path("uci").absolute()), "is not a folder", "data.dir")


@pytest.mark.parametrize("name", ["poker-hand-training-true.data", "poker-hand-testing.data"])
def test_a_missing_file(uci: Path, name: str) -> None:
    (uci / name).unlink()
    assert_refused(draco(*HANDS), str(uci.absolute()), "has no poker-hand-", "archive.ics.uci.edu")


def test_a_truncated_file(uci: Path) -> None:
    file = uci / "poker-hand-training-true.data"
    file.write_text("\n".join(uci_rows(400, 1))[:-5])
    assert_refused(draco(*HANDS), f"{file.absolute()}, line 400", "is not a hand")
    file.write_bytes(b"")
    assert_refused(draco(*HANDS), str(file.absolute()), "is empty")


def test_a_truncated_gzip_file(uci: Path) -> None:
    file = uci / "poker-hand-training-true.data"
    packed = gzip.compress(file.read_bytes())
    file.unlink()
    file = file.with_name(f"{file.name}.gz")
    file.write_bytes(packed[: len(packed) // 2])
    assert_refused(draco(*HANDS), str(file.absolute()), "broken off or damaged")


def test_a_file_with_wrong_labels(uci: Path) -> None:
    file = uci / "poker-hand-testing.data"
    rows = uci_rows(100, 2)
    rows[41] = rows[41].rsplit(",", 1)[0] + ",9"
    file.write_text("\n".join(rows))
    assert_refused(draco(*HANDS), f"{file.absolute()}, line 42", "the class is 9")


# Folders


def test_a_folder_that_is_not_a_run(tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "beach.jpg").write_bytes(b"sea")
    before = contents(tmp_path)
    assert_refused(draco("run", "photos"), "photos is not a run folder: it has no config.toml")
    assert contents(tmp_path) == before


def test_a_folder_with_somebody_elses_config(tmp_path: Path) -> None:
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "config.toml").write_text('baseURL = "https://example.org"\n')
    before = contents(tmp_path)
    assert_refused(draco("run", "site"), "unknown key baseURL")
    assert contents(tmp_path) == before


def test_a_folder_that_is_not_there() -> None:
    assert_refused(draco("run", "runs/yesterday"), '"runs/yesterday" is neither a preset', "nor a run folder")


def test_an_out_folder_that_holds_something_is_refused_and_untouched(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("all of it")
    before = contents(tmp_path)
    assert_refused(draco(*QUICK, "--out", "mine"), "mine exists and is not empty; name another")
    assert_refused(draco(*QUICK, "--out", "mine/thesis.tex"), "mine/thesis.tex exists")
    assert contents(tmp_path) == before


def test_an_out_folder_that_is_a_run_is_refused_with_the_command_that_continues_it(tmp_path: Path) -> None:
    draco(*QUICK, "duration_s=5", "--out", "mine")
    before = contents(tmp_path)
    assert_refused(draco(*QUICK, "--out", "mine"), "mine exists and is not empty; continue it with: draco run mine")
    assert contents(tmp_path) == before


def test_an_empty_out_folder_is_used(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert draco(*QUICK, "duration_s=5", "--out", "empty").code == 0


def test_an_out_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert_refused(draco(*QUICK, "--out", "file/run"), "cannot write file/run: Not a directory")


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs a file system that takes no new folders")
def test_an_out_folder_where_nothing_can_be_written() -> None:
    assert_refused(draco(*QUICK, "--out", "/proc/run"), "cannot write /proc/run")
