"""The paper's empirical claims, each held against what was measured.

A claim is about differences between methods under the same seeds, so it is judged by the 95% confidence interval of the
paired difference: "holds" if the whole interval says so, "does not hold" if the whole interval says the opposite, and
"not decided" in between. Nothing is rounded up.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from dracofl.experiments.comparison import LITERAL
from dracofl.experiments.statistics import Interval, first_reached, interval, paired_difference
from dracofl.telemetry.run import Run

HOLDS, FAILS, UNDECIDED = "holds", "does not hold", "not decided"
ALIKE = 0.02  # two points of accuracy
SMALL_SPREAD = 0.02
OTHERS = ("sync-symm", "sync-push", "async-symm", "async-push")
STARVING, MODERATE, UNLIMITED = "0.02", "0.3", "none"

Runs = Mapping[str, Sequence[Run]]


class Claim(NamedTuple):
    figure: str
    text: str
    about: str  # which DRACO, or "baselines"
    verdict: str
    measured: str
    seeds: int


def judge(figures: Mapping[str, Runs]) -> list[Claim]:
    """All claims that the figures at hand can decide."""
    found: list[Claim] = []
    for figure in ("fig3a", "fig3b"):
        if figure in figures:
            found += _about_comparison(figure, figures[figure])
    for figure in ("fig4a", "fig4b"):
        if figure in figures:
            found += _about_budget(figure, figures[figure])
    return found


def above(difference: Interval | None) -> str:
    if difference is None:
        return UNDECIDED
    return HOLDS if difference.low > 0 else FAILS if difference.high < 0 else UNDECIDED


def alike(difference: Interval | None) -> str:
    if difference is None:
        return UNDECIDED
    if difference.low > -ALIKE and difference.high < ALIKE:
        return HOLDS
    return FAILS if difference.low > ALIKE or difference.high < -ALIKE else UNDECIDED


def all_of(verdicts: Sequence[str]) -> str:
    if FAILS in verdicts:
        return FAILS
    return HOLDS if verdicts and all(verdict == HOLDS for verdict in verdicts) else UNDECIDED


def below(level: float, measured: Interval | None) -> str:
    if measured is None:
        return UNDECIDED
    return HOLDS if measured.high < level else FAILS if measured.low > level else UNDECIDED


def _final(metric: str, what: str = "mean") -> Callable[[Run], float | None]:
    """Of a run that diverged there is a last evaluation, but no result."""
    return lambda run: run.summary[metric][what] if run.summary["status"] == "finished" else None


def _values(runs: Sequence[Run], measure: Callable[[Run], float | None]) -> list[float] | None:
    values = [measure(run) for run in runs]
    return None if any(value is None for value in values) else [value for value in values if value is not None]


def _difference(one: Sequence[Run], other: Sequence[Run], measure: Callable[[Run], float | None]) -> Interval | None:
    """None if a run of either diverged or never got there: then there is no number to compare."""
    mine, theirs = _values(one, measure), _values(other, measure)
    return None if mine is None or theirs is None else paired_difference(mine, theirs)


def _about_comparison(figure: str, runs: Runs) -> list[Claim]:
    seeds = len(next(iter(runs.values())))
    accuracy = _final("accuracy")
    found = []

    def add(text: str, about: str, verdict: str, measured: str) -> None:
        found.append(Claim(figure, text, about, verdict, measured, seeds))

    if figure == "fig3a":
        both = _difference(runs["sync-symm"], runs["sync-push"], accuracy)
        measured = f"sync-symm - sync-push: {_number(both)}"
        add("the two synchronous methods are alike", "baselines", alike(both), measured)
        push = _difference(runs["async-push"], runs["async-symm"], accuracy)
        add("async-symm is below async-push", "baselines", above(push), f"async-push - async-symm: {_number(push)}")
    for draco in ("draco", LITERAL):
        others = [method for method in OTHERS if method in runs]
        for metric, name in (("accuracy", "accuracy"), ("f1", "F1")):
            gaps = {method: _difference(runs[draco], runs[method], _final(metric)) for method in others}
            add(f"DRACO ends best in {name}", draco, all_of([above(gap) for gap in gaps.values()]), _listed(gaps))
        if figure == "fig3b":
            gaps = {method: _difference(runs[draco], runs[method], accuracy) for method in others}
            add("all methods end alike", draco, all_of([alike(gap) for gap in gaps.values()]), _listed(gaps))
            level = _common_level({method: runs[method] for method in (draco, *others)})
            waits = {method: _difference(runs[method], runs[draco], _time_to(level)) for method in others}
            verdict = all_of([above(wait) for wait in waits.values()])
            add("DRACO is first to get there", draco, verdict, f"seconds later to {level:g}: {_listed(waits)}")
        spread = interval(_values(runs[draco], _final("accuracy", "std")) or [])
        text = f"the spread over users is small (below {SMALL_SPREAD})"
        add(text, draco, below(SMALL_SPREAD, spread), f"std over users: {_number(spread)}")
    return found


def _about_budget(figure: str, runs: Runs) -> list[Claim]:
    seeds = len(next(iter(runs.values())))
    found = []
    for draco in ("draco", LITERAL):
        by_psi = {
            name.partition(" psi ")[2]: several for name, several in runs.items() if name.startswith(f"{draco} psi")
        }
        if not by_psi:
            continue
        swings = _difference(by_psi[UNLIMITED], by_psi[MODERATE], oscillation)
        found.append(
            Claim(
                figure,
                "a large Psi makes the curves oscillate",
                draco,
                above(swings),
                f"mean swing between evaluations, unlimited - {MODERATE} of the arrivals: {_number(swings)}",
                seeds,
            )
        )
        gain = _difference(by_psi[MODERATE], by_psi[STARVING], mean_over_time)
        found.append(
            Claim(
                figure,
                "a very small Psi makes learning slow",
                draco,
                above(gain),
                f"accuracy averaged over the run, {MODERATE} - {STARVING} of the arrivals: {_number(gain)}",
                seeds,
            )
        )
    return found


def oscillation(run: Run) -> float | None:
    """Mean size of the change of the users' mean accuracy from one evaluation to the next, in the second half."""
    if run.summary["status"] != "finished":
        return None
    _, values = run.curve("accuracy")
    second_half = values.mean(axis=1)[len(values) // 2 : -1]  # the last one is on more samples
    return float(np.abs(np.diff(second_half)).mean()) if len(second_half) > 1 else None


def mean_over_time(run: Run) -> float | None:
    if run.summary["status"] != "finished":
        return None
    times_s, values = run.curve("accuracy")
    return float(np.trapezoid(values.mean(axis=1), times_s) / (times_s[-1] - times_s[0]))


def _time_to(level: float) -> Callable[[Run], float | None]:
    def time_s(run: Run) -> float | None:
        reached = first_reached(run, "accuracy", level) if run.summary["status"] == "finished" else None
        return None if reached is None else reached[0]

    return time_s


def _common_level(runs: Runs) -> float:
    """The highest hundredth that every run reached, but for those that diverged: all have a time to compare there."""
    best = [
        float(run.curve("accuracy")[1].mean(axis=1).max())
        for several in runs.values()
        for run in several
        if run.summary["status"] == "finished"
    ]
    return int(100 * min(best, default=0.0)) / 100


def _listed(differences: Mapping[str, Interval | None]) -> str:
    return "; ".join(f"{method} {_number(difference)}" for method, difference in differences.items())


def _number(measured: Interval | None) -> str:
    return "no number" if measured is None else str(measured)


def claims_page(claims: Sequence[Claim], notes: Sequence[str], figures: Mapping[str, Sequence[str]]) -> str:
    """The page as Markdown."""
    lines = [
        "# The paper's claims, measured",
        "",
        "Generated by `draco reproduce`. Each claim is judged by the 95% confidence interval (Student's t) of the",
        "paired difference over seeds: it *holds* or *does not hold* if the whole interval says so, and is *not",
        'decided* otherwise. "draco" is the default, "draco-literal" the paper\'s text word for word. A method whose',
        "run diverged or never reached a level has no number there.",
        "",
        *notes,
        "",
        "| figure | claim | about | verdict | measured | seeds |",
        "|---|---|---|---|---|---|",
    ]
    for claim in claims:
        cells = (claim.figure, claim.text, claim.about, f"**{claim.verdict}**", claim.measured, str(claim.seeds))
        lines.append("| " + " | ".join(cells) + " |")
    for figure, pictures in figures.items():
        lines += ["", f"## {figure}", "", *(f"![{picture}]({picture})" for picture in pictures)]
    return "\n".join(lines) + "\n"
