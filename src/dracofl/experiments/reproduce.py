"""Every figure of the paper's experiments from one command.

    fig3a  the methods on EMNIST and a cycle            fig3b  the methods on Poker hand and the complete graph
    fig4a  DRACO's budget Psi on EMNIST and a cycle     fig4b  DRACO's budget Psi on Poker hand

Psi is swept as fractions of the mean number of messages that reach a user in a period without a limit, from starving to
unlimited; that number is measured by a run of its own.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from dracofl.datasets import fetch
from dracofl.errors import ConfigError
from dracofl.experiments.claims import MODERATE, OTHERS, STARVING, UNLIMITED, claims_page, judge
from dracofl.experiments.comparison import LITERAL, Comparison, check, compare, may_begin
from dracofl.experiments.comparison_results import draw_curves_of, write_results
from dracofl.experiments.engine import Announce, Engine, Job, run_all
from dracofl.telemetry.run import Run
from dracofl.telemetry.storage import storage_errors, write_atomically

FIGURES = ("fig3a", "fig3b", "fig4a", "fig4b")
FRACTIONS = (STARVING, "0.1", MODERATE, "1.0", UNLIMITED)
METHODS = ("draco", LITERAL, *OTHERS)
TITLES = {
    "fig3a": "{task}, cycle",
    "fig3b": "{task}, complete graph",
    "fig4a": "DRACO's budget: {task}, cycle",
    "fig4b": "DRACO's budget: {task}, complete graph",
}


@dataclass(frozen=True)
class Plan:
    """How a figure is made: from what, how long, how often."""

    figure: str
    source: str
    overrides: tuple[str, ...]
    seeds: tuple[int, ...]
    tune: bool

    @property
    def folder(self) -> str:
        return self.figure if self.tune else f"{self.figure}-quick"

    @property
    def sweeps_budget(self) -> bool:
        return self.figure.startswith("fig4")

    @property
    def comparison(self) -> Comparison:
        if self.sweeps_budget:
            return Comparison(self.source, ("draco", LITERAL), self.seeds, self.overrides, tune=False)
        return Comparison(self.source, METHODS, self.seeds, self.overrides, self.tune)


def plan(figure: str, quick: bool, seeds: int | None, data: Path | None) -> Plan:
    """The full plan, or a quick one: fewer seeds, a shorter time, embedded data and no tuning of options."""
    if figure not in FIGURES:
        raise ConfigError(f'"{figure}" is not a figure; choose from {", ".join(FIGURES)} or all')
    images = figure.endswith("a")
    count = seeds if seeds is not None else (2 if quick else 5)
    if count < 1:
        raise ConfigError("no seeds to run: --seeds must be at least 1")
    folder = _real_data("emnist" if images else "poker", data)
    real = () if folder is None else (f"data.dir={folder}",)
    source = ("emnist" if folder else "glyphs") if images else "poker"
    length: tuple[str, ...]
    if quick:
        length = (
            ("users=10", "duration_s=120", "train.local_steps=5", "data.samples_per_user=500", "evaluate.every_s=10")
            if images
            else ("duration_s=600", "evaluate.every_s=30")
        )
        length += ("evaluate.samples=500", "checkpoint.every_s=none", "method.period_s=60") if images else ()
    else:
        length = ("duration_s=1500", "train.local_steps=5", "evaluate.every_s=50") if images else ()
    return Plan(figure, source, (*length, *real), tuple(range(1, count + 1)), tune=not quick)


def _real_data(name: str, data: Path | None) -> Path | None:
    """Where the real files are: below --data, or where `draco data fetch` put them; None if nowhere."""
    if data is not None:
        if not (data / name).is_dir():
            raise ConfigError(f"--data {data} has no folder {name}; it must hold emnist/ and poker/")
        return (data / name).resolve()
    cached = fetch.cache_folder() / name
    return cached if cached.is_dir() and any(cached.iterdir()) else None


def reproduce(
    plans: list[Plan], out: Path, page: Path | None, announce: Announce, engine: Engine | None = None
) -> Path:
    """Make the figures, judge the claims, write the page; returns the page's path."""
    destination = page or out
    for one in plans:  # all of them before the first, which may take hours
        begun = (out / one.folder).exists() if one.sweeps_budget else not may_begin(one.comparison, out / one.folder)
        if not begun:
            check(one.comparison)
    with storage_errors(destination):
        destination.mkdir(parents=True, exist_ok=True)
    figures: dict[str, dict[str, list[Run]]] = {}
    notes, pictures = [], {}
    for one in plans:
        folder = out / one.folder
        title = TITLES[one.figure].format(task=_task_name(one))
        headline = _headline(one, announce)
        if not one.sweeps_budget:
            runs = compare(one.comparison, folder, headline, engine)
            write_results(runs, folder, title)
            pictures[one.figure] = ["accuracy-time.png", "f1-time.png", "accuracy-bytes.png"]
        else:
            runs = _sweep_budget(one, folder, headline, engine)
            write_results(runs, folder, title)
            for draco in ("draco", LITERAL):
                mine = {name: several for name, several in runs.items() if name.startswith(f"{draco} psi")}
                draw_curves_of(
                    mine, "accuracy", "test accuracy", "time", folder / f"{draco}-accuracy", f"{draco}: {title}"
                )
            pictures[one.figure] = ["draco-accuracy.png", f"{LITERAL}-accuracy.png"]
        figures[one.figure] = runs
        notes.append(_note(one, title))
    shown: dict[str, list[str]] = {}
    for one in plans:
        shown[one.figure] = [f"{one.folder}-{name}" for name in pictures[one.figure]]
        for name in (*pictures[one.figure], "table.md"):
            with storage_errors(destination):
                shutil.copyfile(out / one.folder / name, destination / f"{one.folder}-{name}")
    text = claims_page(judge(figures), notes, shown)
    write_atomically(destination / "claims.md", lambda file: file.write(text.encode()))
    return destination / "claims.md"


def _headline(one: Plan, announce: Announce) -> Announce:
    return lambda text: announce(f"{one.figure}: {text}")


def _task_name(one: Plan) -> str:
    return {
        "glyphs": "synthetic glyphs (not EMNIST)",
        "emnist": "EMNIST",
        "poker": "Poker hand (UCI files)" if _real(one) else "Poker hand (dealt)",
    }[one.source]


def _real(one: Plan) -> bool:
    return any(override.startswith("data.dir=") for override in one.overrides)


def _note(one: Plan, title: str) -> str:
    changes = " ".join(override for override in one.overrides if not override.startswith("data.dir="))
    tuned = "options tuned on the validation split" if one.tune else "quick: options not tuned"
    count = len(one.seeds)
    command = f"draco reproduce {one.figure}{'' if one.tune else ' --quick'} --seeds {count}"
    return (
        f"- {one.figure}: {title}; preset `{one.source}` {changes or '(as it is)'}; {count} seeds; {tuned}. "
        f"Made by `{command}`{' with the real data' if _real(one) else ''}."
    )


def _sweep_budget(one: Plan, folder: Path, announce: Announce, engine: Engine | None) -> dict[str, list[Run]]:
    """DRACO, default and literal, with several budgets."""
    comparison = one.comparison
    unlimited = comparison.config("draco", 0, f"method.psi={UNLIMITED}")
    counting = announce("counting arrivals without a limit")
    measured = run_all([Job(unlimited, folder / "arrivals")], counting, engine)[0]
    arrivals = arrivals_a_period(measured, comparison)
    jobs, names = [], []
    for draco in ("draco", LITERAL):
        for fraction, psi in budgets(arrivals).items():
            for seed in one.seeds:
                config = comparison.config(draco, seed, f"method.psi={psi}")
                jobs.append(Job(config, folder / "runs" / draco / f"psi-{psi}" / f"seed-{seed}"))
                names.append(f"{draco} psi {fraction}")
    found: dict[str, list[Run]] = {}
    for name, run in zip(names, run_all(jobs, announce("sweeping Psi"), engine), strict=True):
        found.setdefault(name, []).append(run)
    return found


def budgets(arrivals: float) -> dict[str, str]:
    """Psi for each fraction of the arrivals. With few arrivals several round to one Psi, which is then run once."""
    found: dict[str, str] = {}
    # Those that claims are about have the first right to a Psi, then the others in their order.
    for fraction in sorted(FRACTIONS, key=lambda fraction: fraction not in (STARVING, MODERATE)):
        psi = UNLIMITED if fraction == UNLIMITED else str(max(1, round(float(fraction) * arrivals)))
        if psi not in found.values() or fraction == MODERATE:
            found[fraction] = psi
    return {fraction: found[fraction] for fraction in FRACTIONS if fraction in found}


def arrivals_a_period(run: Run, comparison: Comparison) -> float:
    """Mean number of messages that reach a user in a period."""
    period_s = comparison.config("draco", 0).method.period_s  # type: ignore[union-attr]
    assert period_s is not None
    periods = run.summary["duration_s"] / period_s
    return float(run.summary["messages"]["delivered"] / run.summary["users"] / periods)
