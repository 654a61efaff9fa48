"""The summary of a run, worked out from its tables alone: what is in them can be checked against it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dracofl.trace import EventKind
from dracofl.types import Fate


def summarise(tables: dict[str, pa.Table], users: int) -> dict[str, Any]:
    """Everything that the tables tell; numbers that do not exist are None."""
    events, messages, metrics = tables["events"], tables["messages"], tables["metrics"]
    kinds = _counts(events["kind"])
    fates = _counts(messages["fate"])
    ages = messages["age_s"].to_numpy()
    ages = ages[~np.isnan(ages)]
    last = _last_evaluation(metrics)
    unified, models_received = kinds.get(EventKind.UNIFIED, 0), kinds.get(EventKind.MODEL_RECEIVED, 0)
    models_sent = unified * (users - 1)
    is_unified = pc.equal(events["kind"].cast(pa.string()), str(EventKind.UNIFIED))
    over_the_air = models_received or pc.any(pc.greater(events["airtime_s"].filter(is_unified), 0.0)).as_py()
    return {
        "events": len(events),
        "local_updates": kinds.get(EventKind.FINISHED, 0),
        "transmissions": kinds.get(EventKind.SENT, 0),
        "unifications": unified,
        # Outside the fates below. Reliable ones take no airtime, make no events of reception and reach everybody.
        "unification_messages": {
            "sent": models_sent,
            "received": models_received if over_the_air else models_sent,
        },
        "messages": {
            "sent": len(messages),
            "delivered": int((~np.isnan(messages["arrived_s"].to_numpy())).sum()),
            **{str(fate): fates.get(fate, 0) for fate in Fate},
        },
        "bytes_sent": int(pc.sum(events["bytes"]).as_py() or 0),
        "airtime_s": float(events["airtime_s"].to_numpy().sum()),
        "age_s": {
            "mean": float(ages.mean()) if len(ages) else None,
            "p95": float(np.percentile(ages, 95)) if len(ages) else None,
        },
        "evaluations": len(metrics) // max(measured_users(metrics), 1),
        "accuracy": _spread(last["accuracy"]),
        "f1": _spread(last["f1"]),
        "loss": _spread(last["loss"]),
        "mean_model": {name: _first(last[f"mean_model_{name}"]) for name in ("accuracy", "f1", "loss")},
        "consensus_distance": _spread(last["distance_to_mean"])["mean"],
    }


def measured_users(metrics: pa.Table) -> int:
    """Each evaluation has a row for each of them."""
    return len(np.unique(metrics["user"].to_numpy()))


def _counts(column: pa.ChunkedArray) -> dict[str, int]:
    return {entry["values"]: entry["counts"] for entry in pc.value_counts(column.cast(pa.string())).to_pylist()}


def _last_evaluation(metrics: pa.Table) -> dict[str, np.ndarray]:
    columns = {name: metrics[name].to_numpy() for name in metrics.column_names}
    if not len(metrics):
        return columns
    return {name: column[-measured_users(metrics) :] for name, column in columns.items()}


def _spread(values: np.ndarray) -> dict[str, float | None]:
    if not len(values) or not np.isfinite(values).all():
        return dict.fromkeys(("mean", "std", "min", "max"))
    return {
        "mean": float(values.mean()),
        "std": float(values.std()),
        "min": float(values.min()),
        "max": float(values.max()),
    }


def _first(values: np.ndarray) -> float | None:
    return float(values[0]) if len(values) and np.isfinite(values[0]) else None
