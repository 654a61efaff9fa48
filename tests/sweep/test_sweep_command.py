"""`draco sweep` with runs in this process: what it writes and shows, being stopped, and bad input."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest
from cli.draco_command import contents, draco
from here_and_now import HereAndNow
from small_sweeps import DIVERGES, QUADRATIC, hashes, identities, rows

import dracofl
from dracofl.errors import ConfigError
from dracofl.experiments import sweep_results
from dracofl.experiments.engine import Local, open_engine

COLUMNS = [
    "status",
    "accuracy_mean",
    "accuracy_std",
    "accuracy_min",
    "accuracy_max",
    "f1",
    "loss",
    "mean_model_accuracy",
    "local_updates",
    "messages_sent",
    "messages_applied",
    "messages_late",
    "messages_lost",
    "messages_over_budget",
    "bytes_sent",
    "airtime_s",
    "age_mean_s",
    "wall_s",
    "trace_hash",
    "model_hash",
    "folder",
]
PSI = ("sweep", "tiny", *QUADRATIC, "method.psi=1,5,none", "seed=1..2")


# What it writes and shows


@pytest.mark.usefixtures("here")
def test_a_row_for_every_run_with_its_keys_and_what_it_found() -> None:
    done = draco(*PSI, "--out", "mine")
    assert done.code == 0
    assert done.err.startswith("sweeping 6 runs\n")
    found = rows(Path("mine"))
    assert list(found[0]) == ["method.psi", "seed", *COLUMNS]
    assert [(row["method.psi"], row["seed"]) for row in found] == [(1, 1), (1, 2), (5, 1), (5, 2), (None, 1), (None, 2)]
    for row in found:
        summary = dracofl.load(Path("mine") / row["folder"]).summary
        assert row["status"] == "finished"
        assert row["seed"] == summary["seed"]
        assert row["accuracy_mean"] is None  # a quadratic has no classes
        assert row["loss"] == summary["loss"]["mean"]
        assert row["local_updates"] == summary["local_updates"]
        for name in ("sent", "applied", "late", "lost", "over_budget"):
            assert row[f"messages_{name}"] == summary["messages"][name]
        assert row["bytes_sent"] == summary["bytes_sent"]
        assert row["age_mean_s"] == summary["age_s"]["mean"]
        assert (row["trace_hash"], row["model_hash"]) == (summary["trace_hash"], summary["model_hash"])
    assert len({row["trace_hash"] for row in found}) == 6
    table = Path("mine/table.md").read_text()
    assert done.out.startswith(table)
    assert [line.split()[1] for line in table.splitlines()[2:5]] == ["1", "5", "none"]
    assert "mine/sweep.png" in done.out
    assert "mine/results.parquet" in done.out


@pytest.mark.usefixtures("here")
def test_the_same_runs_as_one_by_one() -> None:
    assert draco("sweep", "tiny", *QUADRATIC, "method.psi=1,5", "--out", "mine").code == 0
    alone = dracofl.run("tiny", [*QUADRATIC, "method.psi=5"], out="alone").summary
    assert hashes(Path("mine"))["runs/method.psi=5"] == (alone["trace_hash"], alone["model_hash"])


@pytest.mark.parametrize(
    ("arguments", "size"),
    [
        (["train.step=0.1,0.2,0.4"], (832, 494)),
        (["method.kind=draco,local", "seed=1..2"], (832, 494)),
        (["method.psi=none,5", "train.step=0.2,0.1"], None),
        (["seed=1..2", "method.hub=random,round-robin", "train.step=0.1,1e30"], None),
    ],
)
@pytest.mark.usefixtures("here")
def test_a_picture_of_one_or_two_dimensions(arguments: list[str], size: tuple[int, int] | None) -> None:
    assert draco("sweep", "tiny", *QUADRATIC, *arguments, "--out", "mine").code == 0
    picture = Path("mine/sweep.png").read_bytes()
    assert picture.startswith(b"\x89PNG\r\n")
    assert len(picture) > 8_000
    if size:
        assert (int.from_bytes(picture[16:20]), int.from_bytes(picture[20:24])) == size


@pytest.mark.parametrize("arguments", [["seed=1..2"], ["method.psi=1,2", "train.step=0.1,0.2", "users=3,4"]])
@pytest.mark.usefixtures("here")
def test_no_picture_of_others_and_it_says_so(arguments: list[str]) -> None:
    own = [one for one in QUADRATIC if not one.startswith("users")] if len(arguments) == 3 else QUADRATIC
    done = draco("sweep", "tiny", *own, *arguments, "--out", "mine")
    assert done.code == 0
    assert "no picture: one is drawn if one or two keys vary besides the seed" in done.out
    assert not Path("mine/sweep.png").exists()
    assert Path("mine/results.parquet").exists()


def test_a_run_that_diverges_is_a_result(here: HereAndNow) -> None:
    done = draco("sweep", "tiny", *QUADRATIC, f"train.step=0.1,{DIVERGES.partition('=')[2]}", "--out", "mine")
    assert done.code == 0
    good, bad = rows(Path("mine"))
    assert (good["status"], bad["status"]) == ("finished", "diverged")
    assert bad["trace_hash"] is None
    assert bad["local_updates"] >= 1
    assert re.search(r"\| 1e30 +\| 1 +\| diverged \|", done.out)
    assert draco("sweep", "tiny", *QUADRATIC, "train.step=0.1,1e30", "--out", "mine").code == 0
    assert len(here.begun) == 2


@pytest.mark.usefixtures("here")
def test_columns_have_the_types_of_their_keys() -> None:
    found = dracofl.sweep(
        "tiny",
        [one for one in QUADRATIC if not one.startswith("compute")]
        + ["train.step=1,0.5", "compute.rate=[1.0,1.0,1.0],0.5", "method.hub=random,round-robin"],
        out="mine",
    )
    assert found.folder == Path("mine")
    assert len(found.runs) == len(found.table["train.step"]) == 8
    assert found.table["train.step"].dtype == float
    assert set(found.table["compute.rate"]) == {"[1.0, 1.0, 1.0]", "0.5"}
    assert set(found.table["method.hub"]) == {"random", "round-robin"}
    assert found.picture is None


@pytest.mark.usefixtures("here")
def test_a_long_table_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweep_results, "_MOST_TABLE_ROWS", 1)
    done = draco("sweep", "tiny", *QUADRATIC, "method.psi=1,5,none", "--out", "mine")
    assert "and 2 rows more: all are in results.parquet" in done.out
    assert len(rows(Path("mine"))) == 3


# Going on


def test_the_same_command_goes_on_and_repeats_nothing(here: HereAndNow) -> None:
    here.stop_before = 2
    stopped = draco(*PSI)
    assert (stopped.code, stopped.out) == (130, "")
    assert stopped.err.splitlines()[-1] == "stopped; repeat the same command to go on"
    (folder,) = Path("runs").iterdir()
    assert re.fullmatch(r"sweep-tiny-[0-9a-f]{8}", folder.name)
    before = identities(folder)
    assert len(before) == 2
    here.stop_before = None
    assert draco(*PSI).code == 0
    after = identities(folder)
    assert len(after) == len(here.begun) == 6
    assert before.items() <= after.items()
    found = hashes(folder)
    assert draco("sweep", "tiny", "seed=2,1", *reversed(QUADRATIC), "method.psi=none,5,1").code == 0  # the same grid
    assert identities(folder) == after
    assert len(here.begun) == 6
    assert hashes(folder) == found


@pytest.mark.usefixtures("here")
def test_another_grid_in_the_folder() -> None:
    assert draco("sweep", "tiny", *QUADRATIC, "seed=1..2", "--out", "mine").code == 0
    before = contents(Path("mine"))
    done = draco("sweep", "tiny", *QUADRATIC, "seed=1..3", "--out", "mine")
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("draco: mine holds another sweep (see sweep.json there): repeat its command")
    assert contents(Path("mine")) == before
    assert json.loads(before["sweep.json"])["grid"] == {"seed": ["1", "2"]}


@pytest.mark.usefixtures("here")
def test_a_folder_with_something_else_in_it() -> None:
    Path("mine").mkdir()
    Path("mine/thesis.tex").write_text("all of it")
    done = draco(*PSI, "--out", "mine")
    assert (done.code, done.err) == (2, "draco: mine exists and is not a sweep; name another with --out\n")
    assert contents(Path("mine")) == {"thesis.tex": b"all of it"}


# Bad input: a sentence, exit code 2, and nothing is written


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["seed=5..1"], "seed: the range 5..1 is empty"),
        (["users=3", "users=4,5"], "users is given twice"),
        (["seed=1..10001"], "the grid has 10,001 runs"),
        (["method.pssi=1,2"], "unknown key method.pssi; did you mean method.psi?"),
        (["users=3,1"], "users = 1: must be at least 2"),
        (["users=3,4", "compute.rate=[1.0,1.0,1.0]"], "compute.rate lists 3 rates for 4 users"),
        (["users=3"], "nothing varies"),
        (["data.dir=/nowhere,/nowhere/else"], "/nowhere is not a folder"),
        (["topology.kind=file", "topology.path=here.txt,there.txt"], "here.txt: cannot be read"),
        (["seed=1..2", "--workers", "0"], "--workers 0: there must be at least one"),
        (["seed=1..2", "--engine", "ray", "--workers", "0"], "--workers 0: there must be at least one"),
        (["seed=1..2", "--address", "10.0.0.1:6379"], "--address is where a Ray cluster is: say --engine ray too"),
    ],
)
def test_bad_input(arguments: list[str], said: str, here: HereAndNow) -> None:
    if "ray" in arguments:
        pytest.importorskip("ray")
    done = draco("sweep", "tiny", *arguments)
    assert (done.code, done.out) == (2, "")
    assert said in done.err
    assert "Traceback" not in done.err
    assert list(Path.cwd().iterdir()) == []
    assert here.begun == []


def test_ray_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.delitem(sys.modules, "dracofl.experiments.ray_engine", raising=False)
    for command in (["sweep", "tiny", "seed=1..2"], ["compare", "tiny"], ["reproduce", "fig3b"]):
        done = draco(*command, "--engine", "ray")
        assert (done.code, done.out) == (2, "")
        assert done.err == "draco: --engine ray needs Ray: pip install 'dracofl[ray]'\n"
    assert list(Path.cwd().iterdir()) == []


def test_no_cluster_where_it_should_be(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ray")
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")
    for address in ([], ["--address", "127.0.0.1:2"], ["--address", "nonsense"]):
        done = draco("sweep", "tiny", "seed=1..2", "--engine", "ray", *address)
        assert (done.code, done.out) == (2, "")
        assert f"draco: no Ray cluster was found at {[*address, '127.0.0.1:1'][min(len(address), 1)]} (" in done.err
        assert "start one with: ray start --head" in done.err
    assert list(Path.cwd().iterdir()) == []


# Engines


def test_an_engine_of_no_name() -> None:
    with pytest.raises(ConfigError, match='"spark" is not an engine; choose from local, ray'):
        open_engine("spark").__enter__()
    with open_engine("local", workers=3) as engine:
        assert engine == Local(3)


def test_help_has_examples() -> None:
    said = draco("sweep", "--help").out
    for example in ("draco sweep tiny method.psi=5,20,none seed=1..5", "model.hidden=[32],[64,64]", "--engine ray"):
        assert example in said
    for command in ("compare", "reproduce"):
        assert "--address" in draco(command, "--help").out
