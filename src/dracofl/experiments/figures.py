"""The picture of a run: how well every user does, as time goes on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from dracofl.telemetry.storage import write_atomically
from dracofl.telemetry.summary import measured_users

_TITLES = {"accuracy": "test accuracy", "f1": "macro F1", "loss": "test loss"}


def draw_curves(metrics: pa.Table, summary: dict[str, Any], path: Path) -> None:
    """Mean over users with the band from the worst to the best; dashed, the mean model that nobody has."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    shape = (-1, measured_users(metrics))
    columns = {name: metrics[name].to_numpy().reshape(shape) for name in metrics.column_names}
    has_classes = not np.isnan(columns["accuracy"]).all()
    names = ["accuracy", "f1"] if has_classes else ["loss"]
    figure = Figure(figsize=(5.0 * len(names), 3.6), layout="constrained")
    FigureCanvasAgg(figure)
    for axes, name in zip(figure.subplots(1, len(names), squeeze=False)[0], names, strict=True):
        times_s, values, mean_model = columns["time_s"][:, 0], columns[name], columns[f"mean_model_{name}"]
        axes.fill_between(
            times_s,
            values.min(axis=1),
            values.max(axis=1),
            alpha=0.25,
            linewidth=0,
            label="worst to best user",
        )
        axes.plot(times_s, values.mean(axis=1), label="mean over users")
        if not np.isnan(mean_model).all():  # real peers know no mean model
            axes.plot(times_s, mean_model[:, 0], linestyle="--", linewidth=1, color="black", label="mean model")
        axes.set_xlabel("time of the run [s]")
        axes.set_ylabel(_TITLES[name])
        axes.grid(alpha=0.3)
    figure.axes[0].legend(loc="best", fontsize="small")
    figure.suptitle(
        f"{summary['method']} on {summary['task']}: {summary['users']} users, {summary['topology']} graph, "
        f"{summary['channel']} channel, seed {summary['seed']}",
        fontsize="medium",
    )
    write_atomically(path, lambda file: figure.savefig(file, format="png", dpi=120))
