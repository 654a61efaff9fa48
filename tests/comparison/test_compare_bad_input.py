"""`draco compare` and bad input: sentences, exit code 2, before any worker starts, and nothing is written."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from cli.draco_command import contents, draco
from here_and_now import HereAndNow
from small_comparisons import QUADRATIC, assert_refused

from dracofl.datasets import poker
from dracofl.experiments import engine

QUICK = ("compare", "tiny", *QUADRATIC, "--no-tune", "--seeds", "1")
SHARED_DATA = Path(__file__).parents[3] / "shared" / "data"


@pytest.fixture(autouse=True)
def _no_worker_starts(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    if "here" not in request.fixturenames:
        monkeypatch.setattr(engine, "_run_in_processes", lambda *_: pytest.fail("a worker was started"))


def test_a_method_that_does_not_exist() -> None:
    assert_refused(
        draco(*QUICK, "--methods", "draco,choco"),
        '"choco" is not a method',
        "choose from draco, sync-symm, sync-push, async-symm, async-push, fedavg, local, draco-literal",
    )


@pytest.mark.parametrize("methods", ["", " , ,"])
def test_no_methods(methods: str) -> None:
    assert_refused(draco(*QUICK, "--methods", methods), "no methods to compare; choose from draco")


def test_a_method_named_twice() -> None:
    assert_refused(draco(*QUICK, "--methods", "local,draco, local"), "a method is named twice in local, draco, local")


@pytest.mark.parametrize("seeds", ["0", "-3"])
def test_no_seeds(seeds: str) -> None:
    assert_refused(draco(*QUICK, "--methods", "local", "--seeds", seeds), "--seeds must be at least 1")


def test_an_unknown_preset() -> None:
    assert_refused(draco("compare", "tiy", "--methods", "local"), "did you mean tiny?")


def test_overrides_that_belong_to_nobody() -> None:
    done = draco(*QUICK, "method.psi=3", "sync-push.x=3", "method.kind=draco", "--methods", "local,fedavg")
    assert_refused(done, "3 things are wrong", "method.psi: none of local, fedavg has this key", "--methods")


def test_a_task_for_one_method_alone() -> None:
    assert_refused(draco(*QUICK, "draco.task.kind=poker", "--methods", "draco,local"), "task")


def test_a_method_that_needs_links_both_ways_on_a_directed_graph() -> None:
    done = draco(*QUICK, "topology.kind=directed-cycle", "--methods", "draco,sync-symm")
    assert_refused(done, 'method.kind = "sync-symm" needs links that go both ways', "sync-push, async-push")


def test_a_graph_that_goes_both_ways_with_some_seeds_only() -> None:
    """Two users always exchange; of three, one link in three directions is missing with some seed before long."""
    changes = ["topology.kind=erdos-renyi", "topology.probability=0.9", "--methods", "async-symm", "--seeds", "40"]
    assert_refused(draco(*QUICK, *changes), 'method.kind = "async-symm" needs links that go both ways')


def test_an_empty_data_folder(tmp_path_factory: pytest.TempPathFactory) -> None:
    empty = tmp_path_factory.mktemp("empty")
    done = draco("compare", "tiny", f"data.dir={empty}", "--methods", "local")
    assert_refused(done, f"{empty} has no poker-hand-training-true.data")
    done = draco("compare", "emnist", f"data.dir={empty}", "--methods", "local")
    assert_refused(done, f"{empty} has no emnist-balanced-train-images-idx3-ubyte", "it holds nothing")
    done = draco("compare", "emnist", f"data.dir={empty}/nowhere", "--methods", "local")
    assert_refused(done, f"{empty}/nowhere is not a folder")


def test_a_data_folder_with_the_files_of_another_set() -> None:
    emnist, hands = SHARED_DATA / "emnist", SHARED_DATA / "poker"
    if not emnist.is_dir() or not hands.is_dir():
        pytest.skip("the real data are not at ../shared/data")
    done = draco("compare", "tiny", f"data.dir={emnist}", "--methods", "local")
    assert_refused(done, f"{emnist} has no poker-hand-training-true.data")
    done = draco("compare", "emnist", f"data.dir={hands}", "--methods", "local")
    assert_refused(done, f"{hands} has no emnist-balanced-train-images", "it holds poker-hand-testing")


def test_data_for_a_task_that_has_none() -> None:
    assert_refused(draco(*QUICK, "data.dir=here", "--methods", "local"), "data.dir is set", "data.dir=none")


def test_data_without_samples_to_choose_options_on(tmp_path_factory: pytest.TempPathFactory, here: HereAndNow) -> None:
    folder = tmp_path_factory.mktemp("uci")
    for name, count in (("poker-hand-training-true.data", 2000), ("poker-hand-testing.data", 600)):
        hands = poker.deal(np.random.default_rng(count), count)
        rows = np.column_stack([hands, poker.label_hands(hands)])
        (folder / name).write_text("".join(",".join(map(str, row)) + "\n" for row in rows.tolist()))
    changes = ["tiny", f"data.dir={folder}", "duration_s=20", "--methods", "local", "--seeds", "1"]
    done = draco("compare", *changes, "evaluate.samples=none")
    assert_refused(done, f"{folder} holds no samples for validation", "--no-tune")
    done = draco("compare", *changes)
    assert_refused(done, "evaluate.samples = 500 is more than the 0 validation samples there are")
    assert draco("compare", *changes, "--no-tune").code == 0
    assert here.begun == ["runs/compare-tiny/runs/local/seed-1"]


# The folder


def stopped_comparison(here: HereAndNow) -> Path:
    here.stop_before = 1
    done = draco(*QUICK, "--methods", "draco,local", "--out", "mine")
    assert (done.code, done.out) == (130, "")
    assert done.err == "comparing\nstopped; repeat the same command to go on\n"
    here.stop_before = None
    return Path("mine")


@pytest.mark.parametrize(
    "changed",
    [
        ["--methods", "local,draco"],
        ["--methods", "draco,local", "--seeds", "2"],
        ["--methods", "draco,local", "draco.psi=3"],
        ["--methods", "draco,local", "task.kind=poker"],
        ["--methods", "draco,local", "--tune"],
    ],
)
def test_a_folder_that_holds_another_comparison(here: HereAndNow, changed: list[str]) -> None:
    folder = stopped_comparison(here)
    before = contents(folder)
    done = draco(*QUICK, *changed, "--out", folder)
    assert (done.code, done.out) == (2, "")
    assert done.err == (
        "draco: mine holds another comparison (see comparison.json there): repeat its command to continue it, or name "
        "another folder with --out\n"
    )
    assert contents(folder) == before


def test_a_folder_that_is_something_else(here: HereAndNow) -> None:
    folder = Path("mine")
    folder.mkdir()
    (folder / "thesis.tex").write_text("all of it")
    for place in (folder, folder / "thesis.tex"):
        done = draco(*QUICK, "--methods", "local", "--out", place)
        assert (done.code, done.out) == (2, "")
        assert done.err == f"draco: {place} exists and is not a comparison; name another with --out\n"
    assert contents(folder) == {"thesis.tex": b"all of it"}
    assert here.begun == []


def test_a_folder_that_is_a_run() -> None:
    assert draco("run", "tiny", *QUADRATIC, "duration_s=5", "--out", "mine", "--quiet").code == 0
    before = contents(Path("mine"))
    assert "is not a comparison" in draco(*QUICK, "--methods", "local", "--out", "mine").err
    assert contents(Path("mine")) == before


def test_a_comparison_file_that_is_damaged(here: HereAndNow) -> None:
    folder = stopped_comparison(here)
    (folder / "comparison.json").write_text("{")
    done = draco(*QUICK, "--methods", "draco,local", "--out", folder)
    assert (done.code, done.out) == (2, "")
    assert "draco: mine/comparison.json cannot be read" in done.err


def test_a_run_of_another_configuration_in_the_folder(here: HereAndNow) -> None:
    folder = stopped_comparison(here)
    config = folder / "runs" / "draco" / "seed-1" / "config.toml"
    config.write_text(config.read_text().replace("step = 0.5", "step = 0.25"))
    done = draco(*QUICK, "--methods", "draco,local", "--out", folder)
    assert (done.code, done.out) == (2, "")
    assert "mine/runs/draco/seed-1 holds a run of another configuration" in done.err
    assert len(here.begun) == 1


def test_a_file_of_the_users_that_was_changed_in_between(here: HereAndNow) -> None:
    source = Path("mine.toml")
    source.write_text(draco("show", "tiny", *QUADRATIC).out)
    asked = ["compare", source, "--no-tune", "--seeds", "1", "--methods", "draco,local", "--out", "mine"]
    here.stop_before = 1
    assert draco(*asked).code == 130
    source.write_text(source.read_text().replace("step = 0.5", "step = 0.25"))
    assert "holds a run of another configuration" in draco(*asked).err


def test_rubbish_of_a_killed_process_does_not_matter(here: HereAndNow) -> None:
    Path("mine").mkdir()
    Path("mine/comparison.json.unfinished").write_text("{")
    here.stop_before = 0
    assert draco(*QUICK, "--methods", "local", "--out", "mine").code == 130
    assert json.loads(Path("mine/comparison.json").read_text())["methods"] == ["local"]
    begun = Path("mine/runs/local/seed-1")
    begun.mkdir(parents=True)
    (begun / "config.toml.unfinished").write_text("users =")
    here.stop_before = None
    assert draco(*QUICK, "--methods", "local", "--out", "mine").code == 0
    assert here.begun == [str(begun)]


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = draco(*QUICK, "--methods", "local", "--out", "file/mine")
    assert (done.code, done.out) == (2, "")
    assert "draco: cannot write file/mine: Not a directory" in done.err


def test_debug_shows_where_and_keeps_the_exit_code() -> None:
    done = draco(*QUICK, "--methods", "choco", "--debug")
    assert done.code == 2
    assert done.err.startswith("Traceback (most recent call last):")
    assert done.err.splitlines()[-1].startswith('draco: "choco" is not a method')
