"""What a comparison found: a table of numbers with confidence intervals, and figures fit for a paper."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dracofl.experiments.statistics import Interval, bytes_at, first_reached, interval
from dracofl.experiments.work_folder import write_json
from dracofl.telemetry.run import Run
from dracofl.telemetry.storage import write_atomically

Runs = Mapping[str, Sequence[Run]]
LEVELS = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
_GRID_POINTS = 200


def write_results(runs: Runs, folder: Path, title: str) -> dict[str, Any]:
    """results.json, table.md and the figures; returns what results.json says."""
    levels = [level for level in LEVELS if any(first_reached(run, "accuracy", level) for run in _finished(runs))]
    rows = {method: _row(several, levels) for method, several in runs.items()}
    results = {"title": title, "classes": _has_classes(runs), "methods": rows}
    tuning = folder / "tuning.json"
    if tuning.exists():
        for method, option in json.loads(tuning.read_text())["chosen"].items():
            rows[method]["chosen"] = option
    write_json(folder / "results.json", results)
    table = markdown_table(results)
    write_atomically(folder / "table.md", lambda file: file.write(table.encode()))
    draw_comparison(runs, folder, title)
    return results


def _finished(runs: Runs) -> list[Run]:
    return [run for several in runs.values() for run in several if _ok(run)]


def _ok(run: Run) -> bool:
    return bool(run.summary["status"] == "finished")


def _has_classes(runs: Runs) -> bool:
    return not any(run.summary["task"] == "quadratic" for several in runs.values() for run in several)


def _row(several: Sequence[Run], levels: Sequence[float]) -> dict[str, Any]:
    finished = [run for run in several if _ok(run)]

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
        "loss_spread": over_seeds("loss", "std"),
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
    columns = _CLASSIFICATION_COLUMNS if results["classes"] else _LOSS_COLUMNS
    header = ["method", *columns.values(), "MB sent"]
    header += [f"s to {level}" for level in levels] + [f"MB to {level}" for level in levels]
    lines = [f"# {results['title']}", "", "| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    for method, row in methods.items():
        name = method if not row["diverged"] else f"{method} ({row['diverged']} of {row['seeds']} diverged)"
        cells = [name, *(_cell(row[key], row["seeds"], "no number") for key in columns)]
        cells.append(_cell(row["bytes_sent"], row["seeds"], "no number", 1e-6))
        cells += [_cell(row["time_to_accuracy_s"][level], row["seeds"], "never") for level in levels]
        cells += [_cell(row["bytes_to_accuracy"][level], row["seeds"], "never", 1e-6) for level in levels]
        lines.append("| " + " | ".join(cells) + " |")
    seeds = max(row["seeds"] for row in methods.values())
    lines += ["", f"Seeds: {seeds}. Mean over them ± 95% confidence interval; (k of n): over the k that got there."]
    if any("chosen" in row for row in methods.values()):
        lines += ["", "Options chosen on the validation split, with other seeds (`tuning.json` has the grid):", ""]
        lines += [f"- {method}: {', '.join(row.get('chosen', [])) or 'none'}" for method, row in methods.items()]
    return "\n".join(lines) + "\n"


_CLASSIFICATION_COLUMNS = {"accuracy": "accuracy", "f1": "macro F1", "spread": "std over users"}
_LOSS_COLUMNS = {"loss": "loss", "loss_spread": "std over users"}


def _cell(found: dict[str, Any] | None, seeds: int, missing: str, scale: float = 1.0) -> str:
    if found is None:
        return missing
    half_width = None if found["half_width"] is None else found["half_width"] * scale
    text = str(Interval(found["mean"] * scale, half_width, found["seeds"]))
    return text if found["seeds"] == seeds else f"{text} ({found['seeds']} of {seeds})"


def draw_comparison(runs: Runs, folder: Path, title: str) -> None:
    """Accuracy and F1 (the loss, if there are no classes) against simulated time and bytes, each as PNG and PDF."""
    scores = [("accuracy", "test accuracy"), ("f1", "macro F1")]
    for metric, label in scores if _has_classes(runs) else [("loss", "loss")]:
        draw_curves_of(runs, metric, label, "time", folder / f"{metric}-time", title)
        draw_curves_of(runs, metric, label, "bytes", folder / f"{metric}-bytes", title)


def draw_curves_of(runs: Runs, metric: str, label: str, axis: str, path: Path, title: str) -> None:
    """The mean over seeds of the users' mean, with its 95% band."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 3.8), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    curves = {method: [_curve(run, metric, axis) for run in several if _ok(run)] for method, several in runs.items()}
    logarithmic = axis == "bytes" and _far_apart([places[-1] for several in curves.values() for places, _ in several])
    lines = []
    for number, (method, several) in enumerate(curves.items()):
        look: dict[str, Any] = {"color": f"C{number}", "linewidth": 1.4, "linestyle": "--" if number >= 5 else "-"}
        if not several:
            axes.plot([], [], label=f"{method} (diverged)", **look)
            continue
        grid = _grid([places for places, _ in several], logarithmic)
        if grid is None:
            lines.append(np.array([np.mean([heights[-1] for _, heights in several])]))
            axes.axhline(lines[-1][0], label=f"{method} (sends nothing)", **look | {"linestyle": ":"})
            continue
        values = np.array([np.interp(grid, places, heights) for places, heights in several])
        lines.append(values.mean(axis=0))
        axes.plot(grid, lines[-1], label=method, **look)
        if len(values) > 1:
            bands = [interval(column.tolist()) for column in values.T]
            low = [band.low for band in bands if band is not None]
            high = [band.high for band in bands if band is not None]
            axes.fill_between(grid, low, high, color=f"C{number}", alpha=0.15, linewidth=0)
    axes.set_xlabel("simulated time [s]" if axis == "time" else "bytes sent by the network [MB]")
    axes.set_ylabel(label)
    if logarithmic:
        axes.set_xscale("log")
    else:
        axes.set_xlim(left=0.0)
    if lines:
        axes.set_ylim(*_limits(lines, *axes.get_ylim(), highest=np.inf if metric == "loss" else 1.0))
    axes.grid(alpha=0.3)
    figure.legend(loc="outside right upper", fontsize="small")
    axes.set_title(title, fontsize="medium")
    for kind, metadata in (("png", {}), ("pdf", {"CreationDate": None})):  # the same runs, the same bytes
        draw = functools.partial(figure.savefig, format=kind, dpi=130, metadata=metadata)
        write_atomically(path.with_suffix(f".{kind}"), draw)


def _curve(run: Run, metric: str, axis: str) -> tuple[np.ndarray, np.ndarray]:
    times_s, values = run.curve(metric)
    places = times_s if axis == "time" else bytes_at(run, times_s) / 1e6
    return places, values.mean(axis=1)


def _far_apart(ends: Sequence[float]) -> bool:
    """Whether on a linear axis some curves would be upright lines at its beginning."""
    sending = [end for end in ends if end > 0]
    return bool(sending) and max(sending) > 20 * min(sending)


def _grid(places: Sequence[np.ndarray], logarithmic: bool) -> np.ndarray | None:
    """Where all the seeds have a value; None if nowhere but at zero, as of a method that sends nothing."""
    end = min(one[-1] for one in places)
    if end == 0:
        return None
    if logarithmic:
        return np.geomspace(min(end, max(one[one > 0][0] for one in places)), end, _GRID_POINTS)
    return np.linspace(0.0, end, _GRID_POINTS)


def _limits(lines: Sequence[np.ndarray], low: float, high: float, highest: float) -> tuple[float, float]:
    """Of the vertical axis: few seeds make bands so wide that the lines would be flat between them."""
    bottom, top = min(line.min() for line in lines), max(line.max() for line in lines)
    room = 0.5 * (top - bottom)
    if room == 0:
        return low, high
    return max(low, bottom - room, min(0.0, bottom)), min(high, top + room, max(highest, top))
