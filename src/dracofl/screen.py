"""What a person sees of a run: the progress while it goes on, and the results at its end. The eyes of `cli`."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    TaskID,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table

from dracofl.compute.evaluation import Evaluation
from dracofl.experiments.engine import Job
from dracofl.experiments.sweep_results import Sweep
from dracofl.telemetry.run import Run

_SECONDS_BETWEEN_LINES = 5.0


class Screen:
    """A progress bar on a terminal; on anything else a plain line now and then. Always on standard error."""

    def __init__(self) -> None:
        self._console = Console(stderr=True, highlight=False, soft_wrap=True)
        self._duration_s = 0.0
        self._score = ""
        self._last_line = time.monotonic()
        self._bar = Progress(
            TextColumn("simulating"),
            BarColumn(),
            TaskProgressColumn(),
            TextColumn("t = {task.completed:.0f} s"),
            TextColumn("{task.fields[score]}"),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=self._console,
            disable=not self._console.is_terminal,
            transient=True,
        )

    def began(self, folder: str, duration_s: float, now_s: float) -> None:
        self._duration_s = duration_s
        verb = f"continuing at t = {now_s:.0f} s:" if now_s else "running in"
        self._console.print(f"{verb} {folder}", markup=False)
        self._task = self._bar.add_task("", total=duration_s, score="compiling")
        self._bar.update(self._task, completed=now_s)
        self._bar.start()

    def advanced(self, now_s: float, updates: int) -> None:
        self._bar.update(self._task, completed=now_s, score=self._score)
        if not self._console.is_terminal and time.monotonic() - self._last_line > _SECONDS_BETWEEN_LINES:
            self._last_line = time.monotonic()
            share = now_s / self._duration_s
            self._console.print(
                f"{share:4.0%}  t = {now_s:.0f} s  {updates:,} local updates  {self._score}", markup=False
            )

    def wants_to_stop(self) -> bool:
        return False

    def evaluated(self, evaluation: Evaluation) -> None:
        if any(scores.accuracy != scores.accuracy for scores in evaluation.users):  # not a number: no classes
            self._score = f"loss {sum(scores.loss for scores in evaluation.users) / len(evaluation.users):.4g}"
        else:
            self._score = f"accuracy {sum(scores.accuracy for scores in evaluation.users) / len(evaluation.users):.3f}"

    def doubted(self, doubt: str) -> None:
        self._console.print(f"warning: {doubt}", markup=False)

    def ended(self) -> None:
        self._bar.stop()


class Headlines:
    """The progress of several bodies of work, one bar each on a terminal, a plain line now and then elsewhere."""

    def __init__(self) -> None:
        self._console = Console(stderr=True, highlight=False, soft_wrap=True)
        self._bars = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TaskProgressColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=self._console,
            disable=not self._console.is_terminal,
        )
        self._rows: dict[str, TaskID] = {}

    def __enter__(self) -> Headlines:
        self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bars.stop()

    def announce(self, headline: str) -> Callable[[float, float], None]:
        task = self._bars.add_task(headline, total=None)
        began = last_line = time.monotonic()
        already: float | None = None  # done before we began
        if not self._console.is_terminal:
            self._console.print(headline, markup=False)

        def progress(done: float, total: float) -> None:
            nonlocal last_line, already
            already = done if already is None else already
            self._bars.update(task, completed=done, total=total)
            now = time.monotonic()
            due = not self._console.is_terminal and now - last_line > 2 * _SECONDS_BETWEEN_LINES
            if due and 0.01 * total < done - already and done < total:  # before that it would be a bad guess
                last_line = now
                left_s = (now - began) * (total - done) / (done - already)
                self._console.print(f"{done / total:4.0%}  {headline}, about {left_s:.0f} s left", markup=False)

        return progress

    def run_advanced(self, job: Job, done_s: float) -> None:
        """A row for each run that is under way, on a terminal."""
        name, duration_s = job.folder.name, job.config.duration_s
        if not self._console.is_terminal:
            return
        if name not in self._rows:
            self._rows[name] = self._bars.add_task(f"  {name}", total=duration_s)
        self._bars.update(self._rows[name], completed=done_s)
        if done_s >= duration_s:
            self._bars.remove_task(self._rows.pop(name))


def show_sweep(sweep: Sweep) -> None:
    """The table of means, as it is in the folder, and where the rest is. On standard output."""
    console = Console(highlight=False, soft_wrap=True)
    console.print(sweep.markdown, markup=False)
    if sweep.picture is None:
        console.print("no picture: one is drawn if one or two keys vary besides the seed", markup=False)
    else:
        console.print(f"picture      {sweep.picture}", markup=False)
    console.print(f"row per run  {sweep.folder / 'results.parquet'}", markup=False)
    console.print(f"run folders  {sweep.folder / 'runs'}", markup=False)


def show_results(run: Run) -> None:
    """The table a person reads, on standard output."""
    summary = run.summary
    table = Table(
        title=f"{summary['method']} on {summary['task']}: {summary['users']} users, {_until(summary)}",
        show_header=False,
        title_justify="left",
    )
    table.add_column()
    table.add_column()
    for name, text in _rows(summary):
        table.add_row(name, text)
    console = Console(highlight=False, soft_wrap=True)
    console.print(table)
    if (run.folder / "curves.png").exists():
        console.print(f"picture     {run.folder / 'curves.png'}", markup=False)
    console.print(f"run folder  {run.folder}", markup=False)


_HEADINGS = {
    "control": "events, messages, budgets: the control plane",
    "records": "gathering rows",
    "planning": "what depends on what, and mini-batches",
    "training": "SGD steps, all lanes together",
    "aggregation": "adding up and copying vectors, all lanes together",
    "evaluation": "measuring models",
    "writing": "checkpoints and tables",
    "waiting for control": "lanes with nothing to do",
}


def show_profile(run: Run) -> None:
    """Where the time of the run went, on standard error."""
    summary = run.summary
    table = Table(title=f"where {summary['wall_s']:.2f} s went", title_justify="left")
    for column, justify in (("", "left"), ("s", "right"), ("of the time", "right"), ("", "left")):
        table.add_column(column, justify=justify)  # type: ignore[arg-type]
    seconds = {"set-up": summary["setup_s"], "compilation": summary["compile_s"], **summary["seconds"]}
    for heading in ("set-up", "compilation", *_HEADINGS):
        if heading in seconds:
            share = f"{seconds[heading] / summary['wall_s']:.0%}"
            table.add_row(heading, f"{seconds[heading]:.2f}", share, _HEADINGS.get(heading, ""))
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    console.print(table)
    console.print("Threads work at the same time, so the parts can add up to more than the whole.")


def _until(summary: dict[str, Any]) -> str:
    if summary["diverged"] is not None:
        return f"diverged at {summary['diverged']['time_s']:.1f} s"
    return f"{summary['duration_s']:g} s"


def _rows(summary: dict[str, Any]) -> list[tuple[str, str]]:
    messages, age = summary["messages"], summary["age_s"]
    rows = []
    for name, title in (("accuracy", "accuracy"), ("f1", "macro F1"), ("loss", "test loss")):
        spread = summary[name]
        if spread["mean"] is not None:
            worst, best = ("max", "min") if name == "loss" else ("min", "max")
            rows.append(
                (
                    f"{title} of the users",
                    f"{spread['mean']:.4f} ± {spread['std']:.4f}   worst {spread[worst]:.4f}, best {spread[best]:.4f}",
                )
            )
    if summary["mean_model"]["accuracy"] is not None:
        rows.append(("accuracy of the mean model", f"{summary['mean_model']['accuracy']:.4f}"))
    if summary["consensus_distance"] is not None:
        rows.append(("distance from the mean model", f"{summary['consensus_distance']:.4g}"))
    rows += [
        ("local updates", f"{summary['local_updates']:,} ({summary['sgd_steps']:,} SGD steps)"),
        ("transmissions", f"{summary['transmissions']:,}, {summary['unifications']:,} unifications"),
        ("messages sent", f"{messages['sent']:,}, {messages['delivered']:,} delivered"),
        *((f"  {fate.replace('_', ' ')}", _share(messages, fate)) for fate in _FATES),
        (
            "sent over the air",
            f"{_amount(summary['bytes_sent'] / 1e6)} MB in {_amount(summary['airtime_s'])} s of airtime",
        ),
    ]
    if age["mean"] is not None:
        rows.append(("age of an update when applied", f"mean {age['mean']:.3g} s, 95% below {age['p95']:.3g} s"))
    rows.append(("wall time", f"{summary['wall_s']:.1f} s, {summary['compile_s']:.1f} s of it compiling"))
    if summary["trace_hash"] is not None:  # of a run that diverged there is none
        rows.append(("trace and model hash", f"{summary['trace_hash']} {summary['model_hash']}"))
    return rows


_FATES = ("applied", "over_budget", "late", "lost", "pending")


def _share(messages: dict[str, int], fate: str) -> str:
    share = messages[fate] / messages["sent"] if messages["sent"] else 0.0
    return f"{messages[fate]:,} ({share:.1%})"


def _amount(number: float) -> str:
    return f"{number:,.0f}" if number >= 100 else f"{number:.3g}"
