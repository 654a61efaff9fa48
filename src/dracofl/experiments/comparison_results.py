"""What a comparison found: a table of numbers with confidence intervals, and figures fit for a paper."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dracofl.experiments.comparison import write_json
from dracofl.experiments.statistics import Interval, bytes_at, first_reached, interval
from dracofl.telemetry.run import Run
from dracofl.telemetry.storage import write_atomically

Runs = Mapping[str, Sequence[Run]]
LEVELS = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
_GRID_POINTS = 200


def write_results(runs: Runs, folder: Path, title: str) -> dict[str, Any]:
    """results.json, table.md and the figures; returns what results.json says."""
    levels = [level for level in LEVELS if any(first_reached(run, "accuracy", level) for run in _finished(runs))]
    results = {"title": title, "methods": {method: _row(several, levels) for method, several in runs.items()}}
    tuning = folder / "tuning.json"
    if tuning.exists():
        for method, option in json.loads(tuning.read_text())["chosen"].items():
            results["methods"][method]["chosen"] = option  # type: ignore[index]
    write_json(folder / "results.json", results)
    table = markdown_table(results)
    write_atomically(folder / "table.md", lambda file: file.write(table.encode()))
    draw_comparison(runs, folder, title)
    return results


def _finished(runs: Runs) -> list[Run]:
    return [run for several in runs.values() for run in several if run.summary["status"] == "finished"]


def _row(several: Sequence[Run], levels: Sequence[float]) -> dict[str, Any]:
    finished = [run for run in several if run.summary["status"] == "finished"]

    def over_seeds(section: str, name: str) -> dict[str, Any] | None:
        values = [run.summary[section][name] for run in finished if run.summary[section][name] is not None]
        return _plain(interval(values))

    reached = {level: [first_reached(run, "accuracy", level) for run in finished] for level in levels}
    return {
        "seeds": len(several),
        "diverged": len(several) - len(finished),
        "accuracy": over_seeds("accuracy", "mean"),
        "f1": over_seeds("f1", "mean"),
        "loss": over_seeds("loss", "mean"),
        "spread": over_seeds("accuracy", "std"),
        "bytes_sent": _plain(interval([float(run.summary["bytes_sent"]) for run in finished])),
        "time_to_accuracy_s": {
            str(level): _plain(interval([one[0] for one in found if one])) for level, found in reached.items()
        },
        "bytes_to_accuracy": {
            str(level): _plain(interval([one[1] for one in found if one])) for level, found in reached.items()
        },
        "trace_hashes": [run.summary["trace_hash"] for run in several],
        "model_hashes": [run.summary["model_hash"] for run in several],
    }


def _plain(found: Interval | None) -> dict[str, Any] | None:
    return None if found is None else found._asdict()


def markdown_table(results: dict[str, Any]) -> str:
    methods = results["methods"]
    levels = list(next(iter(methods.values()))["time_to_accuracy_s"])
    header = ["method", "accuracy", "macro F1", "std over users", "MB sent"]
    header += [f"s to {level}" for level in levels] + [f"MB to {level}" for level in levels]
    lines = [f"# {results['title']}", "", "| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    for method, row in methods.items():
        name = method if not row["diverged"] else f"{method} ({row['diverged']} of {row['seeds']} diverged)"
        cells = [name, *(_cell(row[key], row["seeds"]) for key in ("accuracy", "f1", "spread"))]
        cells.append(_cell(row["bytes_sent"], row["seeds"], 1e-6))
        cells += [_cell(row["time_to_accuracy_s"][level], row["seeds"]) for level in levels]
        cells += [_cell(row["bytes_to_accuracy"][level], row["seeds"], 1e-6) for level in levels]
        lines.append("| " + " | ".join(cells) + " |")
    seeds = max(row["seeds"] for row in methods.values())
    lines += ["", f"Mean over {seeds} seeds ± 95% confidence interval. (k of n): the seeds that got there."]
    if any("chosen" in row for row in methods.values()):
        lines += ["", "Options chosen on the validation split, with other seeds (`tuning.json` has the grid):", ""]
        lines += [f"- {method}: {', '.join(row.get('chosen', [])) or 'none'}" for method, row in methods.items()]
    return "\n".join(lines) + "\n"


def _cell(found: dict[str, Any] | None, seeds: int, scale: float = 1.0) -> str:
    if found is None:
        return "never"
    half_width = None if found["half_width"] is None else found["half_width"] * scale
    text = str(Interval(found["mean"] * scale, half_width, found["seeds"]))
    return text if found["seeds"] == seeds else f"{text} ({found['seeds']} of {seeds})"


def draw_comparison(runs: Runs, folder: Path, title: str) -> None:
    """Accuracy and F1 against simulated time and against bytes, each as PNG and PDF."""
    finished = _finished(runs)
    classes = bool(finished) and not any(np.isnan(run.metrics["accuracy"]).any() for run in finished)
    for metric, label in [("accuracy", "test accuracy"), ("f1", "macro F1")] if classes else [("loss", "loss")]:
        draw_curves_of(runs, metric, label, "time", folder / f"{metric}-time", title)
        draw_curves_of(runs, metric, label, "bytes", folder / f"{metric}-bytes", title)


def draw_curves_of(runs: Runs, metric: str, label: str, axis: str, path: Path, title: str) -> None:
    """The mean over seeds of the users' mean, with its 95% band."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.2, 3.8), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    for number, (method, several) in enumerate(runs.items()):
        curves = [_curve(run, metric, axis) for run in several if run.summary["status"] == "finished"]
        if not curves:
            axes.plot([], [], color=f"C{number}", label=f"{method} (diverged)")
            continue
        grid = np.linspace(0.0, min(places[-1] for places, _ in curves), _GRID_POINTS)
        values = np.array([np.interp(grid, places, heights) for places, heights in curves])
        style = "--" if number >= 5 else "-"
        axes.plot(grid, values.mean(axis=0), style, color=f"C{number}", label=method, linewidth=1.4)
        if len(values) > 1:
            bands = [interval(column.tolist()) for column in values.T]
            low = [band.low for band in bands if band is not None]
            high = [band.high for band in bands if band is not None]
            axes.fill_between(grid, low, high, color=f"C{number}", alpha=0.15, linewidth=0)
    axes.set_xlabel("simulated time [s]" if axis == "time" else "bytes sent by the network [MB]")
    axes.set_ylabel(label)
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small")
    axes.set_title(title, fontsize="medium")
    for kind in ("png", "pdf"):
        write_atomically(path.with_suffix(f".{kind}"), functools.partial(figure.savefig, format=kind, dpi=130))


def _curve(run: Run, metric: str, axis: str) -> tuple[np.ndarray, np.ndarray]:
    times_s, values = run.curve(metric)
    places = times_s if axis == "time" else bytes_at(run, times_s) / 1e6
    return places, values.mean(axis=1)
