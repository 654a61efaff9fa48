"""`draco reproduce`: what is planned, and every kind of figure made from runs of a moment."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tomllib
from pathlib import Path
from types import SimpleNamespace

import pytest
from cli.draco_command import contents, draco, environment, process_arguments
from here_and_now import HereAndNow
from small_comparisons import HANDS, assert_refused, summaries

from dracofl.config.load import load_config
from dracofl.errors import ConfigError
from dracofl.experiments import engine, reproduce
from dracofl.experiments.comparison import LITERAL, Comparison
from dracofl.experiments.reproduce import FIGURES, FRACTIONS, METHODS, Plan, budgets, plan


@pytest.fixture(autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where nothing was fetched to."""
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("DRACOFL_CACHE", str(folder))
    return folder


# Plans


@pytest.mark.parametrize("figure", FIGURES)
@pytest.mark.parametrize("quick", [True, False])
def test_a_plan_is_a_configuration_of_the_right_task_and_graph(figure: str, quick: bool) -> None:
    found = plan(figure, quick, None, None)
    assert len(found.seeds) == (2 if quick else 5)
    assert found.tune is not quick
    config = load_config(found.source, found.overrides)
    assert config.topology.kind == ("cycle" if figure.endswith("a") else "complete")
    assert config.task.kind == ("glyphs" if figure.endswith("a") else "poker")
    assert config.channel.deadline_s == 10.0
    assert found.comparison.tune == (not quick and figure.startswith("fig3"))
    assert found.comparison.methods == (METHODS if figure.startswith("fig3") else ("draco", LITERAL))
    for method in found.comparison.methods:
        assert found.comparison.config(method, 1).duration_s == config.duration_s
    if quick:
        full = load_config(plan(figure, False, None, None).source, plan(figure, False, None, None).overrides)
        assert config.duration_s < full.duration_s


def test_quick_and_full_do_not_share_a_folder() -> None:
    assert plan("fig3b", True, None, None).folder != plan("fig3b", False, None, None).folder


def test_seeds_as_asked() -> None:
    assert plan("fig4b", True, 3, None).seeds == (1, 2, 3)
    for count in (0, -1):
        with pytest.raises(ConfigError, match="--seeds must be at least 1"):
            plan("fig4b", True, count, None)


def test_real_data_are_used_where_they_are(tmp_path: Path, cache: Path) -> None:
    for name in ("emnist", "poker"):
        (tmp_path / "data" / name).mkdir(parents=True)
    given = plan("fig3a", False, None, Path("data"))
    assert given.source == "emnist"
    assert (
        given.overrides[-1] == f"data.dir={tmp_path / 'data' / 'emnist'}"
    )  # absolute: a run may be continued anywhere
    assert plan("fig4b", True, None, tmp_path / "data").overrides[-1] == f"data.dir={tmp_path / 'data' / 'poker'}"
    (cache / "emnist").mkdir()
    assert plan("fig3a", False, None, None).source == "glyphs"  # there is nothing in it
    (cache / "emnist" / "some-file").write_text("")
    assert plan("fig3a", False, None, None).overrides[-1] == f"data.dir={cache / 'emnist'}"


# Bad input


@pytest.fixture
def _no_worker_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "_run_in_processes", lambda *_: pytest.fail("a worker was started"))


@pytest.mark.usefixtures("_no_worker_starts")
def test_a_figure_that_does_not_exist() -> None:
    assert_refused(draco("reproduce", "fig5"), '"fig5" is not a figure; choose from fig3a, fig3b, fig4a, fig4b or all')


@pytest.mark.usefixtures("_no_worker_starts")
def test_no_seeds() -> None:
    assert_refused(draco("reproduce", "fig3b", "--quick", "--seeds", "0"), "--seeds must be at least 1")


@pytest.mark.usefixtures("_no_worker_starts")
def test_a_data_folder_that_lacks_a_set(tmp_path_factory: pytest.TempPathFactory) -> None:
    data = tmp_path_factory.mktemp("data")
    (data / "poker").mkdir()
    done = draco("reproduce", "all", "--quick", "--data", data)
    assert_refused(done, f"--data {data} has no folder emnist; it must hold emnist/ and poker/")
    assert_refused(draco("reproduce", "fig3b", "--data", data / "nowhere"), "nowhere has no folder poker")


@pytest.mark.usefixtures("_no_worker_starts")
@pytest.mark.parametrize("figure", ["fig3b", "fig4b", "all"])
def test_a_data_folder_with_the_wrong_files_is_found_before_anything_starts(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch, figure: str
) -> None:
    """Also if it is that of the second figure, hours later."""
    data = tmp_path_factory.mktemp("data")
    (data / "poker").mkdir()
    (data / "poker" / "poker-hand-training-true.data").write_text("1,2,3\n")
    real_plan = plan
    monkeypatch.setattr(
        reproduce, "plan", lambda one, *rest: tiny_plan("fig3b") if one.endswith("a") else real_plan(one, *rest)
    )
    done = draco("reproduce", figure, "--quick", "--data", data)
    assert_refused(done, "poker-hand-training-true.data, line 1")


@pytest.mark.usefixtures("_no_worker_starts")
def test_a_page_that_cannot_be_written_is_found_before_anything_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(monkeypatch, tiny_plan("fig3b"))
    (tmp_path / "page").write_text("")
    done = draco("reproduce", "fig3b", "--page", "page")
    assert (done.code, done.out) == (2, "")
    assert "draco: cannot write page: File exists" in done.err


# Figures


def tiny_plan(figure: str, seeds: int = 2, *changes: str) -> Plan:
    return Plan(figure, "poker", (*HANDS, "method.period_s=20", *changes), tuple(range(1, seeds + 1)), tune=False)


def use(monkeypatch: pytest.MonkeyPatch, *plans: Plan) -> None:
    by_figure = {one.figure: one for one in plans}
    monkeypatch.setattr(reproduce, "FIGURES", tuple(by_figure))
    monkeypatch.setattr(reproduce, "plan", lambda figure, *_: by_figure[figure])


def rows_of(page: Path) -> list[list[str]]:
    return [line.split(" | ") for line in page.read_text().splitlines() if line.startswith(("| fig3", "| fig4"))]


def test_a_comparison_and_a_sweep_with_their_page(monkeypatch: pytest.MonkeyPatch, here: HereAndNow) -> None:
    methods = ("draco", LITERAL, "sync-symm", "async-push")  # with all of them it is the slow test below
    monkeypatch.setattr(reproduce, "METHODS", methods)
    use(monkeypatch, tiny_plan("fig3b"), tiny_plan("fig4b", 1))
    done = draco("reproduce", "all", "--quick", "--out", "out", "--page", "docs/results")
    assert done.code == 0
    # Where it takes longer there are lines of progress between them.
    assert [line for line in done.err.splitlines() if "% " not in line] == [
        "fig3b: comparing",
        "fig4b: counting arrivals without a limit",
        "fig4b: sweeping Psi",
    ]
    page = Path("docs/results/claims.md")
    assert done.out == f"{page.read_text()}\nthe page is docs/results/claims.md, the runs are in out\n"

    # The page has the claims, how they were made, and pictures that are beside it.
    assert {(row[0], row[2], row[5]) for row in rows_of(page)} == {
        (f"| {figure}", kind, f"{seeds} |")
        for figure, seeds in (("fig3b", 2), ("fig4b", 1))
        for kind in ("draco", LITERAL)
    }
    assert {row[3] for row in rows_of(page)} <= {"**holds**", "**does not hold**", "**not decided**"}
    text = page.read_text()
    assert "- fig3b: Poker hand (dealt), complete graph; preset `poker` users=4 " in text
    assert "Made by `draco reproduce fig3b --quick --seeds 2`." in text
    pictures = re.findall(r"!\[.*?\]\((.*?)\)", text)
    assert pictures == [
        "fig3b-quick-accuracy-time.png",
        "fig3b-quick-f1-time.png",
        "fig3b-quick-accuracy-bytes.png",
        "fig4b-quick-draco-accuracy.png",
        f"fig4b-quick-{LITERAL}-accuracy.png",
    ]
    for name in pictures:
        assert (page.parent / name).read_bytes().startswith(b"\x89PNG")
    assert (page.parent / "fig3b-quick-table.md").read_text() == Path("out/fig3b-quick/table.md").read_text()
    assert not Path("out/claims.md").exists()

    # Every method with every seed; every budget.
    runs = summaries(Path("out"))
    assert {name for name in runs if name.startswith("fig3b")} == {
        f"fig3b-quick/runs/{method}/seed-{seed}" for method in methods for seed in (1, 2)
    }
    check_budgets(Path("out/fig4b-quick"))

    # Once more: nothing is run again, and the page is the same; without --page it is with the runs.
    count, before = len(here.begun), contents(Path("out"))
    again = draco("reproduce", "all", "--quick", "--out", "out")
    assert again.code == 0
    assert Path("out/claims.md").read_text() == text
    after = contents(Path("out"))
    assert {name: after[name] for name in before} == before
    assert len(here.begun) == count


def check_budgets(folder: Path) -> None:
    """Psi follows what was measured to arrive."""
    measured = json.loads((folder / "arrivals" / "summary.json").read_text())
    config = tomllib.loads((folder / "arrivals" / "config.toml").read_text())
    assert config["method"]["psi"] == "none"
    assert config["seed"] == 0
    arrivals = measured["messages"]["delivered"] / 4 / (60 / 20)
    wanted = {"none" if one == "none" else str(max(1, round(float(one) * arrivals))) for one in FRACTIONS}
    for kind in ("draco", LITERAL):
        assert {path.name for path in (folder / "runs" / kind).iterdir()} == {f"psi-{psi}" for psi in wanted}
    assert len(wanted) >= 3
    results = json.loads((folder / "results.json").read_text())["methods"]
    assert list(results) == [f"{kind} psi {one}" for kind in ("draco", LITERAL) for one in budgets(arrivals)]


def test_arrivals_are_counted_a_user_and_period() -> None:
    measured = SimpleNamespace(summary={"duration_s": 400.0, "users": 8, "messages": {"delivered": 3200}})
    comparison = Comparison("tiny", ("draco",), (1,), ("method.period_s=50",))
    assert reproduce.arrivals_a_period(measured, comparison) == 50.0


def test_stopped_it_goes_on_and_budgets_that_come_to_the_same_are_run_and_shown_once(
    monkeypatch: pytest.MonkeyPatch, here: HereAndNow
) -> None:
    """A few messages a period: 2% and 10% of them are both one. The limit of the configuration does not matter."""
    use(monkeypatch, tiny_plan("fig4b", 1, "duration_s=20", "compute.rate=0.05", "method.psi=1"))
    here.stop_before = 3
    done = draco("reproduce", "fig4b", "--quick", "--out", "out")
    assert (done.code, done.out) == (130, "")
    assert done.err.splitlines()[-1] == "stopped; repeat the same command to go on"
    here.stop_before = None
    assert draco("reproduce", "fig4b", "--quick", "--out", "out").code == 0
    assert len(here.begun) == len(set(here.begun)) < 1 + 2 * len(FRACTIONS)
    results = json.loads(Path("out/fig4b-quick/results.json").read_text())["methods"]
    assert "draco psi 0.02" in results
    assert "draco psi 0.1" not in results  # the same Psi: one curve, not two names for it
    assert 'psi = "none"' in Path("out/fig4b-quick/arrivals/config.toml").read_text()
    # Another plan in its place is not mixed with it.
    use(monkeypatch, tiny_plan("fig4b", 1, "duration_s=21", "compute.rate=0.05", "method.psi=1"))
    before = contents(Path("out"))
    done = draco("reproduce", "fig4b", "--quick", "--out", "out")
    assert (done.code, done.out) == (2, "")
    assert "out/fig4b-quick/arrivals holds a run of another configuration" in done.err
    assert contents(Path("out")) == before


def test_if_all_diverged_there_is_still_a_page(monkeypatch: pytest.MonkeyPatch, here: HereAndNow) -> None:
    monkeypatch.setattr(reproduce, "METHODS", ("draco", LITERAL, "sync-push"))
    use(monkeypatch, tiny_plan("fig3b", 1, "train.step=1e38"))
    assert draco("reproduce", "fig3b", "--quick", "--out", "out").code == 0
    assert {row[3] for row in rows_of(Path("out/claims.md"))} == {"**not decided**"}
    assert "(1 of 1 diverged) | no number |" in Path("out/fig3b-quick-table.md").read_text()
    assert len(here.begun) == 3


@pytest.mark.slow
def test_the_quick_figure_of_the_paper_as_it_is() -> None:
    done = quick_figure()
    assert done.returncode == 0
    assert "\x1b" not in done.stderr
    assert "fig3b: comparing" in done.stderr
    assert len(rows_of(Path("out/claims.md"))) == 10
    rows = json.loads(Path("out/fig3b-quick/results.json").read_text())["methods"]
    assert set(rows) == set(METHODS)
    assert all(row["diverged"] == 0 and row["accuracy"]["mean"] > 0.4 for row in rows.values())
    shutil.rmtree("out/fig3b-quick/runs/draco/seed-1")  # a lost run is made again, the same
    assert quick_figure().stdout == done.stdout


def quick_figure() -> subprocess.CompletedProcess[str]:
    asked = process_arguments("reproduce", "fig3b", "--quick", "--out", "out")
    return subprocess.run(asked, capture_output=True, text=True, timeout=1200, check=False, env=environment())


def test_fractions_that_round_to_one_budget_are_one_curve() -> None:
    assert budgets(6.0) == {"0.02": "1", "0.3": "2", "1.0": "6", "none": "none"}
    assert budgets(175.0) == {"0.02": "4", "0.1": "18", "0.3": "52", "1.0": "175", "none": "none"}
