"""A whole comparison, its runs one after the other in this process: choosing options, the table, the figures."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from cli.draco_command import contents, draco
from here_and_now import HereAndNow
from small_comparisons import HANDS, QUADRATIC, hashes_of, summaries

from dracofl.experiments.statistics import interval

TUNED = ("compare", "tiny", *QUADRATIC, "--seeds", "2", "--out", "found")


def read(path: str) -> Any:
    return json.loads(Path("found", path).read_text())


def config_of(run: Path) -> dict[str, Any]:
    return tomllib.loads((run / "config.toml").read_text())


def rows_of(table: str) -> dict[str, dict[str, str]]:
    """Of a Markdown table, by its first column."""
    lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines() if line.startswith("|")]
    header, _, *rows = lines
    return {row[0]: dict(zip(header[1:], row[1:], strict=True)) for row in rows}


def test_options_are_chosen_from_the_grid_by_the_score_and_used(here: HereAndNow) -> None:
    done = draco(*TUNED, "--methods", "draco,sync-symm,async-push", "sync-symm.gamma=0.7")
    assert done.code == 0
    # Where it takes longer there are lines of progress between them.
    headlines = [line for line in done.err.splitlines() if "% " not in line]
    assert headlines == ["choosing step sizes", "choosing second options", "comparing"]
    tuning, results = read("tuning.json"), read("results.json")
    assert (tuning["seeds"], tuning["split"], tuning["duration_s"]) == ([1001], "validation", 30.0)

    steps = [f"train.step={step}" for step in (0.125, 0.25, 0.5)]
    scores = tuning["scores"]
    assert list(scores["draco"]) == steps
    assert list(scores["sync-symm"]) == steps  # its second option was given
    best_step = max(steps, key=lambda step: scores["async-push"][step])
    assert list(scores["async-push"]) == [
        *steps,
        f"{best_step} method.local_updates=1",
        f"{best_step} method.local_updates=5",
    ]
    for method, option in tuning["chosen"].items():
        longest = {name: score for name, score in scores[method].items() if len(name.split()) == len(option)}
        assert " ".join(option) == max(longest, key=lambda name: longest[name])
        assert results["methods"][method]["chosen"] == option
        assert f"- {method}: {', '.join(option)}\n" in done.out

    for run in Path("found/runs").glob("*/*"):
        config, method = config_of(run), run.parent.name
        chosen = dict(one.split("=") for one in tuning["chosen"][method])
        assert config["train"]["step"] == float(chosen["train.step"])
        assert (config["evaluate"]["split"], config["duration_s"]) == ("test", 60.0)
        assert config["seed"] in (1, 2)
        if method == "async-push":
            assert config["method"]["local_updates"] == int(chosen["method.local_updates"])
        if method == "sync-symm":
            assert config["method"]["gamma"] == 0.7
    tuned = list(Path("found/tuning").glob("*/*"))
    assert len(tuned) == sum(map(len, scores.values())) == 11
    for run in tuned:
        config = config_of(run)
        assert (config["evaluate"]["split"], config["duration_s"], config["seed"]) == ("validation", 30.0, 1001)
        score = scores[run.parent.name][
            f"train.step={config['train']['step']}"
            + (f" method.local_updates={config['method']['local_updates']}" if "local_updates-" in run.name else "")
        ]
        assert score == -summaries(Path("found"))[str(run.relative_to("found"))]["loss"]["mean"]

    # Once more: nothing is run again, nothing changes.
    before, count = contents(Path("found")), len(here.begun)
    again = draco(*TUNED, "--methods", "draco,sync-symm,async-push", "sync-symm.gamma=0.7")
    assert (again.code, again.out) == (0, done.out)
    assert len(here.begun) == count == 11 + 6
    assert contents(Path("found")) == before


def test_where_there_are_no_classes_the_loss_is_compared(here: HereAndNow) -> None:
    done = draco(*TUNED, "--methods", "sync-symm,local", "--no-tune")
    assert done.code == 0
    assert sorted(path.name for path in Path("found").glob("*.p*")) == [
        "loss-bytes.pdf",
        "loss-bytes.png",
        "loss-time.pdf",
        "loss-time.png",
    ]
    rows, runs = rows_of(done.out), summaries(Path("found"))
    assert list(rows["local"]) == ["loss", "std over users", "MB sent"]
    for method in ("sync-symm", "local"):
        losses = [runs[f"runs/{method}/seed-{seed}"]["loss"]["mean"] for seed in (1, 2)]
        assert rows[method]["loss"] == str(interval(losses))
        assert read("results.json")["methods"][method]["accuracy"] is None
    assert rows["local"]["MB sent"] == "0 ± 0"
    assert not Path("found/tuning").exists()
    assert "Options chosen" not in done.out
    assert len(here.begun) == 4


def test_what_diverged_is_a_result_and_marked(here: HereAndNow) -> None:
    done = draco(*TUNED, "--methods", "draco,local", "draco.own_weight=50", "--no-tune")
    assert done.code == 0
    assert "diverged" not in done.err
    results = read("results.json")["methods"]
    assert (results["draco"]["seeds"], results["draco"]["diverged"]) == (2, 2)
    assert results["draco"]["loss"] is results["draco"]["bytes_sent"] is None
    assert results["draco"]["model_hashes"] == [None, None]
    assert results["local"]["diverged"] == 0
    rows = rows_of(Path("found/table.md").read_text())
    assert set(rows["draco (2 of 2 diverged)"].values()) == {"no number"}
    assert rows["local"]["loss"] != "no number"
    assert {run["status"] for name, run in summaries(Path("found")).items() if "draco" in name} == {"diverged"}
    assert Path("found/loss-time.png").stat().st_size > 5_000
    again = draco(*TUNED, "--methods", "draco,local", "draco.own_weight=50", "--no-tune")
    assert again.out == done.out
    assert len(here.begun) == 4


def test_options_that_diverge_are_not_chosen(here: HereAndNow) -> None:
    """Half the step works; if nothing does, the smallest is taken, and the table says what became of it."""
    done = draco(*TUNED, "--methods", "local", "--seeds", "1", "train.step=2", "duration_s=200")
    assert done.code == 0
    tuning = read("tuning.json")
    assert tuning["scores"]["local"]["train.step=2.0"] is None
    assert tuning["chosen"]["local"] == ["train.step=0.5"]
    done = draco(*TUNED[:-1], "worse", "--methods", "local", "--seeds", "1", "train.step=1e30")
    assert done.code == 0
    assert "| local (1 of 1 diverged) |" in done.out
    assert "- local: train.step=2.5e+29\n" in done.out
    assert len(here.begun) == 8


def test_with_classes_the_table_has_levels_and_who_reached_them(here: HereAndNow) -> None:
    asked = ["compare", "poker", *HANDS, "--seeds", "2", "--methods", "draco,local", "--no-tune", "--out", "found"]
    done = draco(*asked, "train.step=0.1")
    assert done.code == 0
    assert len(here.begun) == 4
    assert {path.name for path in Path("found").glob("*.p*")} == {
        f"{metric}-{axis}.{kind}"
        for metric in ("accuracy", "f1")
        for axis in ("time", "bytes")
        for kind in ("png", "pdf")
    }
    results = read("results.json")["methods"]
    runs = summaries(Path("found"))
    for method, row in results.items():
        seeds = [runs[f"runs/{method}/seed-{seed}"] for seed in (1, 2)]
        for ours, (section, name) in {"accuracy": ("accuracy", "mean"), "spread": ("accuracy", "std")}.items():
            measured = interval([one[section][name] for one in seeds])
            assert measured is not None
            assert row[ours] == measured._asdict()
        assert list(zip(row["trace_hashes"], row["model_hashes"], strict=True)) == [
            hashes_of(Path("found"))[f"runs/{method}/seed-{seed}"] for seed in (1, 2)
        ]
        assert list(row["time_to_accuracy_s"]) == list(row["bytes_to_accuracy"])
    header = rows_of(done.out)["draco"]
    assert list(header)[:4] == ["accuracy", "macro F1", "std over users", "MB sent"]
    for name, text in header.items():
        assert re.fullmatch(r"never|[\d.]+( ± [\d.]+)?( \(1 of 2\))?", text), name


def test_what_is_finished_is_left_alone_and_the_rest_is_run(here: HereAndNow) -> None:
    here.stop_before = 3
    assert draco(*TUNED, "--methods", "local,draco", "--no-tune").code == 130
    first = contents(Path("found"))
    here.stop_before = None
    assert draco(*TUNED, "--methods", "local,draco", "--no-tune").code == 0
    assert here.begun == [f"found/runs/{method}/seed-{seed}" for method in ("local", "draco") for seed in (1, 2)]
    after = contents(Path("found"))
    assert {name: after[name] for name in first} == first


@pytest.mark.parametrize("methods", ["local", "fedavg,local,sync-push"])
def test_any_methods_can_be_compared(here: HereAndNow, methods: str) -> None:
    done = draco(*TUNED, "--methods", methods, "--no-tune", "--seeds", "1", "duration_s=20")
    assert done.code == 0
    assert list(rows_of(done.out)) == methods.split(",")
    assert "Seeds: 1." in done.out
    assert here.begun
