"""What a sweep found: a row per run in `results.parquet`, a table of means over seeds, and a picture of them."""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import BaseModel

from dracofl.config.schema import NONE, Config
from dracofl.experiments.statistics import Interval, interval
from dracofl.experiments.sweep import Axis, Grid
from dracofl.telemetry.run import Run
from dracofl.telemetry.storage import write_atomically

_LABELS = {"accuracy_mean": "test accuracy, mean over users", "loss": "loss, mean over users"}
_MOST_TABLE_ROWS = 60
_MOST_NUMBERS = 400  # in a heat map; more could not be read
_LOGARITHMIC_FROM = 50  # the largest value over the smallest


@dataclass(frozen=True)
class Sweep:
    """A finished sweep. `table` has equally long NumPy arrays: `pandas.DataFrame(sweep.table)` works."""

    folder: Path
    runs: list[Run]
    table: dict[str, np.ndarray]
    picture: Path | None
    markdown: str


def write_results(grid: Grid, runs: Sequence[Run], folder: Path) -> Sweep:
    """results.parquet, table.md, and sweep.png if one or two keys vary besides the seed."""
    table = _table(grid, runs, folder)
    write_atomically(folder / "results.parquet", lambda file: pq.write_table(table, file, compression="zstd"))
    cells = _cells(grid, table.to_pylist())
    markdown = _markdown(grid, cells)
    write_atomically(folder / "table.md", lambda file: file.write(markdown.encode()))
    picture = None
    if 1 <= len(grid.dimensions) <= 2:
        picture = folder / "sweep.png"
        _draw(grid, cells, picture)
    columns = {name: table[name].to_numpy() for name in table.column_names}
    return Sweep(folder, list(runs), columns, picture, markdown)


# A row per run


def _table(grid: Grid, runs: Sequence[Run], folder: Path) -> pa.Table:
    columns = {axis.key: _column([_value(point.config, axis.key) for point in grid.points]) for axis in grid.axes}
    rows = [_row(run, folder) for run in runs]
    columns |= {name: pa.array([row[name] for row in rows], kind) for name, kind in _KINDS.items()}
    return pa.table(columns)


_KINDS = {
    "status": pa.string(),
    **dict.fromkeys(("accuracy_mean", "accuracy_std", "accuracy_min", "accuracy_max"), pa.float64()),
    **dict.fromkeys(("f1", "loss", "mean_model_accuracy"), pa.float64()),
    "local_updates": pa.int64(),
    **{f"messages_{name}": pa.int64() for name in ("sent", "applied", "late", "lost", "over_budget")},
    "bytes_sent": pa.int64(),
    **dict.fromkeys(("airtime_s", "age_mean_s", "wall_s"), pa.float64()),
    **dict.fromkeys(("trace_hash", "model_hash", "folder"), pa.string()),
}


def _row(run: Run, folder: Path) -> dict[str, Any]:
    summary = run.summary
    return {
        "status": summary["status"],
        **{f"accuracy_{name}": summary["accuracy"][name] for name in ("mean", "std", "min", "max")},
        "f1": summary["f1"]["mean"],
        "loss": summary["loss"]["mean"],
        "mean_model_accuracy": summary["mean_model"]["accuracy"],
        "local_updates": summary["local_updates"],
        **{
            f"messages_{name}": summary["messages"][name] for name in ("sent", "applied", "late", "lost", "over_budget")
        },
        "bytes_sent": summary["bytes_sent"],
        "airtime_s": summary["airtime_s"],
        "age_mean_s": summary["age_s"]["mean"],
        "wall_s": summary["wall_s"],
        "trace_hash": summary["trace_hash"],
        "model_hash": summary["model_hash"],
        "folder": str(run.folder.relative_to(folder)),
    }


def _value(config: Config, key: str) -> Any:
    section, _, name = key.partition(".")
    value = getattr(config, section)
    return getattr(value, name) if name else value


def _column(values: Sequence[Any]) -> pa.Array:
    """Numbers where all are, with a null for none; otherwise texts."""
    given = [value for value in values if value is not None]
    for kinds, kind in ((int, pa.int64()), ((int, float), pa.float64())):
        if given and all(isinstance(value, kinds) for value in given):
            return pa.array(values, kind)
    return pa.array([_text(value) for value in values], pa.string())


def _text(value: Any) -> str:
    if value is None:
        return NONE
    if isinstance(value, BaseModel):
        return value.model_dump_json()
    return value if isinstance(value, str) else json.dumps(value)


# Means over seeds


@dataclass(frozen=True)
class _Cell:
    """The runs that differ in nothing but the seed."""

    values: tuple[str, ...]  # of the dimensions, as they were written
    rows: list[dict[str, Any]]

    @property
    def finished(self) -> list[dict[str, Any]]:
        return [row for row in self.rows if row["status"] == "finished"]

    @property
    def diverged(self) -> int:
        return len(self.rows) - len(self.finished)

    def mean(self, name: str) -> Interval | None:
        return interval([row[name] for row in self.finished if row[name] is not None])

    @property
    def status(self) -> str:
        if not self.diverged:
            return "finished"
        return "diverged" if self.diverged == len(self.rows) else f"{self.diverged} of {len(self.rows)} diverged"


def _cells(grid: Grid, rows: Sequence[dict[str, Any]]) -> list[_Cell]:
    places = [number for number, axis in enumerate(grid.axes) if axis.key != "seed"]
    found: dict[tuple[str, ...], _Cell] = {}
    for point, row in zip(grid.points, rows, strict=True):
        values = tuple(point.values[place] for place in places)
        found.setdefault(values, _Cell(values, [])).rows.append(row)
    return list(found.values())


def _markdown(grid: Grid, cells: Sequence[_Cell]) -> str:
    columns = {
        "accuracy_mean": ("accuracy", 1.0),
        "accuracy_std": ("std over users", 1.0),
        "f1": ("macro F1", 1.0),
        "loss": ("loss", 1.0),
        "bytes_sent": ("MB sent", 1e-6),
        "age_mean_s": ("mean age [s]", 1.0),
        "wall_s": ("wall time [s]", 1.0),
    }
    shown = {name: look for name, look in columns.items() if any(cell.mean(name) for cell in cells)}
    lines = [[*(axis.key for axis in grid.dimensions), "runs", "status", *(title for title, _ in shown.values())]]
    for cell in cells[:_MOST_TABLE_ROWS]:
        numbers = [_number(cell.mean(name), scale) for name, (_, scale) in shown.items()]
        lines.append([*cell.values, str(len(cell.rows)), cell.status, *numbers])
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    text = ["| " + " | ".join(map(str.ljust, line, widths)) + " |" for line in lines]
    text.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    if len(cells) > _MOST_TABLE_ROWS:
        text += ["", f"and {len(cells) - _MOST_TABLE_ROWS:,} rows more: all are in results.parquet"]
    if any(len(cell.rows) > 1 for cell in cells):
        text += ["", "Mean over seeds ± 95% confidence interval, of the runs that did not diverge."]
    return "\n".join(text) + "\n"


def _number(found: Interval | None, scale: float) -> str:
    if found is None:
        return "-"
    half_width = None if found.half_width is None else found.half_width * scale
    return str(Interval(found.mean * scale, half_width, found.seeds))


# The picture


def _draw(grid: Grid, cells: Sequence[_Cell], path: Path) -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    metric = "accuracy_mean" if any(cell.mean("accuracy_mean") for cell in cells) else "loss"
    figure = Figure(figsize=_size(grid.dimensions), layout="constrained")
    FigureCanvasAgg(figure)
    if len(grid.dimensions) == 1:
        _draw_line(figure, grid.dimensions[0], cells, metric)
    else:
        _draw_map(figure, grid.dimensions, cells, metric)
    figure.suptitle(_title(grid, cells, round(9.5 * figure.get_figwidth())), fontsize="medium")
    write_atomically(path, functools.partial(figure.savefig, format="png", dpi=130))


def _title(grid: Grid, cells: Sequence[_Cell], longest: int) -> str:
    seeds = max(len(cell.rows) for cell in cells)
    suffix = f": mean of {seeds} seeds" if seeds > 1 else ""
    name = " ".join([Path(grid.source).stem, *(f"{key}={value}" for key, value in grid.fixed)])
    room = longest - len(suffix)
    return (name if len(name) <= room else f"{name[: room - 1]}…") + suffix


def _size(dimensions: Sequence[Axis]) -> tuple[float, float]:
    if len(dimensions) == 1:
        return (6.4, 3.8) if len(dimensions[0].values) <= 12 else (9.6, 3.8)
    rows, columns = (len(axis.values) for axis in dimensions)
    return min(3.0 + 0.85 * columns, 16.0), min(1.8 + 0.6 * rows, 14.0)


def _numbers(axis: Axis) -> list[float] | None:
    """The values as numbers, if all of them are."""
    try:
        return [float(value.replace("_", "")) for value in axis.values]
    except ValueError:
        return None


def _draw_line(figure: Any, axis: Axis, cells: Sequence[_Cell], metric: str) -> None:
    """A line for numbers, bars for words; with the interval over seeds, or of one seed from worst to best user."""
    axes = figure.subplots()
    numbers = _numbers(axis)
    places = np.arange(len(cells), dtype=float) if numbers is None else np.array(numbers)
    means = [cell.mean(metric) for cell in cells]
    alive = np.array([mean is not None for mean in means])
    heights = np.array([np.nan if mean is None else mean.mean for mean in means])
    errors, meaning = _errors(cells, means, heights, metric)
    order = np.argsort(places)
    if numbers is None:
        axes.bar(places, heights, width=0.6, color="C0", alpha=0.75)
        axes.errorbar(places[alive], heights[alive], errors[:, alive], fmt="none", ecolor="black", capsize=4)
        axes.set_xticks(places, [_short(value) for value in axis.values], rotation=0 if len(places) <= 8 else 45)
    else:
        shown = order[alive[order]]
        axes.errorbar(places[shown], heights[shown], errors[:, shown], fmt="o-", capsize=4, linewidth=1.4)
        _scale(axes, places, axis.values)
        if _far_apart(heights[alive]):
            axes.set_yscale("log", nonpositive="clip")
            axes.set_ylim(0.5 * heights[alive].min(), 2.0 * heights[alive].max())
    for place, cell in zip(places, cells, strict=True):
        if cell.diverged:
            axes.annotate(
                cell.status, (place, 0.02), xycoords=("data", "axes fraction"), rotation=90, color="C3",
                ha="center", va="bottom", fontsize="small", bbox={"facecolor": "white", "linewidth": 0, "pad": 1.5},
            )  # fmt: skip
    if numbers is None:
        _limit_bars(axes, heights[alive], errors[:, alive], metric)
    axes.set_xlabel(axis.key)
    axes.set_ylabel(_LABELS[metric])
    axes.grid(alpha=0.3, axis="y" if numbers is None else "both")
    if meaning:
        axes.set_title(meaning, fontsize="small", color="0.35")


def _errors(
    cells: Sequence[_Cell], means: Sequence[Interval | None], heights: np.ndarray, metric: str
) -> tuple[np.ndarray, str]:
    """How far down and up from each height, and what that says."""
    errors = np.zeros((2, len(cells)))
    if any(mean is not None and mean.half_width is not None for mean in means):
        errors[:] = [0.0 if mean is None or mean.half_width is None else mean.half_width for mean in means]
        return errors, "whiskers: 95% confidence interval over seeds"
    if metric != "accuracy_mean":
        return errors, ""
    for number, cell in enumerate(cells):
        if cell.finished:
            row = cell.finished[0]
            errors[:, number] = (
                max(0.0, heights[number] - row["accuracy_min"]),
                max(0.0, row["accuracy_max"] - heights[number]),
            )
    return errors, "whiskers: from the worst user to the best"


def _scale(axes: Any, places: np.ndarray, values: Sequence[str]) -> None:
    """Room for every value, those of diverged runs too, and a tick at each if there are few."""
    logarithmic = _far_apart(places)
    ends = np.array([places.min(), places.max()])
    if logarithmic:
        axes.set_xscale("log")
        axes.minorticks_off()
        ends = np.log(ends)
    pad = 0.05 * (ends[1] - ends[0]) or 0.5
    limits = ends + np.array([-pad, pad])
    axes.set_xlim(*(np.exp(limits) if logarithmic else limits))
    if len(places) <= 12:
        axes.set_xticks(places, [_short(value) for value in values])


def _far_apart(values: np.ndarray) -> bool:
    return len(values) > 1 and bool(values.min() > 0 and values.max() > _LOGARITHMIC_FROM * values.min())


def _limit_bars(axes: Any, heights: np.ndarray, errors: np.ndarray, metric: str) -> None:
    """Bars begin at zero, and an accuracy is at most one, however wide the interval."""
    if len(heights):
        top = float((heights + errors[1]).max())
        axes.set_ylim(0.0, min(1.05 * top, max(1.0, 1.05 * float(heights.max()))) if metric != "loss" else None)


def _draw_map(figure: Any, dimensions: Sequence[Axis], cells: Sequence[_Cell], metric: str) -> None:
    """Rows are the first key, columns the second; darker is better, and grey is diverged."""
    down, right = (_in_order(axis) for axis in dimensions)
    values = np.full((len(down), len(right)), np.nan)
    digits = ".3g" if metric == "loss" else ".3f"
    notes = [[""] * len(right) for _ in down]
    for cell in cells:
        row, column = down.index(cell.values[0]), right.index(cell.values[1])
        mean = cell.mean(metric)
        if mean is None:
            notes[row][column] = "diverged" if cell.diverged else "-"
        else:
            values[row, column] = mean.mean
            spread = "" if mean.half_width is None else f"\n± {mean.half_width:.2g}"
            some = f"\n({cell.status})" if cell.diverged else ""
            notes[row][column] = f"{mean.mean:{digits}}{spread}{some}"
    axes = figure.subplots()
    axes.set_facecolor("0.85")
    better_is_less = metric == "loss"
    image = axes.imshow(
        values,
        cmap="Blues_r" if better_is_less else "Blues",
        norm="log" if _far_apart(values[np.isfinite(values)]) else "linear",
        aspect="auto",
    )
    if values.size <= _MOST_NUMBERS:
        for (row, column), value in np.ndenumerate(values):
            shade = float(image.norm(value)) if np.isfinite(value) else 0.0
            dark = np.isfinite(value) and (shade < 0.4 if better_is_less else shade > 0.6)
            axes.text(
                column, row, notes[row][column], ha="center", va="center", fontsize="small",
                color="white" if dark else "black",
            )  # fmt: skip
    axes.set_yticks(range(len(down)), [_short(value) for value in down])
    axes.set_xticks(range(len(right)), [_short(value) for value in right], rotation=0 if len(right) <= 10 else 45)
    axes.set_ylabel(dimensions[0].key)
    axes.set_xlabel(dimensions[1].key)
    figure.colorbar(image, ax=axes, label=_LABELS[metric])


def _in_order(axis: Axis) -> list[str]:
    numbers = _numbers(axis)
    return (
        list(axis.values) if numbers is None else sorted(axis.values, key=lambda value: float(value.replace("_", "")))
    )


def _short(text: str) -> str:
    return text if len(text) <= 16 else f"…{text[-15:]}"
