"""From the journals of real peers to a run folder like a simulation's."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import dracofl
from dracofl.compute.executor import hash_of
from dracofl.config.schema import Config
from dracofl.runtime.journal import Line
from dracofl.runtime.records import Merged, Records, records_of
from dracofl.telemetry.folder import RunFolder
from dracofl.telemetry.summary import summarise
from dracofl.telemetry.tables import MetricRow, to_table
from dracofl.trace import TraceHash
from dracofl.types import Fate

_NAN = math.nan


def write_real_run(
    folder: RunFolder,
    config: Config,
    journals: Mapping[int, Iterable[Line]],
    models: np.ndarray,
    status: str,
    began: float,
) -> dict[str, Any]:
    """Tables, models and summary. With the journals of everybody the fates of all messages are settled."""
    records = records_of(Merged(journals), everybody=len(journals) == config.users)
    tables = {
        "events": to_table("events", records.events),
        "messages": to_table("messages", records.messages),
        "metrics": to_table("metrics", metric_rows(journals, config)),
    }
    folder.write_tables(tables)
    folder.write_models(models)
    summary = _summary(config, records, tables, models, status, began, user=min(journals))
    folder.write_summary(summary)
    folder.picture_file.unlink(missing_ok=True)  # of a part of this run, if it was stopped before
    return summary


def metric_rows(journals: Mapping[int, Iterable[Line]], config: Config) -> list[MetricRow]:
    """A row for each user at every evaluation. Who was not there, or too busy, has no numbers."""
    found: dict[float, dict[int, dict[str, float]]] = {}
    last: dict[int, dict[str, float]] = {}
    ended_s = 0.0
    for user, lines in journals.items():
        for line in lines:
            if line[0] == "evaluated":
                _, at_s, scores, final = line
                if final:
                    last[user], ended_s = scores, max(ended_s, at_s)
                else:
                    found.setdefault(at_s, {})[user] = scores
    rows = [row for at_s in sorted(found) for row in _evaluation(at_s, found[at_s], list(journals), False)]
    end_s = min(ended_s, config.duration_s)  # before that if it was stopped
    return rows + (_evaluation(end_s, last, list(journals), True) if last else [])


def _evaluation(at_s: float, scores_of: dict[int, dict[str, float]], users: list[int], final: bool) -> list[MetricRow]:
    rows = []
    for user in sorted(users):
        scores = scores_of.get(user, {})
        accuracy, f1, loss = (float(scores.get(name, _NAN)) for name in ("accuracy", "f1", "loss"))
        samples = int(scores.get("samples", 0))
        rows.append(MetricRow(at_s, 0, samples, final, user, accuracy, f1, loss, _NAN, _NAN, _NAN, _NAN))
    return rows


def _summary(
    config: Config,
    records: Records,
    tables: dict[str, pa.Table],
    models: np.ndarray,
    status: str,
    began: float,
    user: int,
) -> dict[str, Any]:
    found = summarise(tables, config.users)
    if len(models) == 1:
        found |= _one_sided(tables, user)
    trace = TraceHash()
    trace.add(records.events, records.messages)
    return {
        "status": status,
        "diverged": None,
        "real": True,
        "method": config.method.kind,
        "task": config.task.kind,
        "topology": config.topology.kind,
        "channel": config.channel.kind,
        "executor": "peers",
        "seed": config.seed,
        "users": config.users,
        "parameters": models.shape[1],
        "duration_s": config.duration_s,
        "wall_s": time.time() - began,
        "setup_s": 0.0,
        "compile_s": 0.0,
        "seconds": {},
        "sgd_steps": found["local_updates"] * config.train.local_steps,
        **found,
        "refused": records.refused,
        "unsettled": records.unsettled,
        "contradictions": records.contradictions,
        "trace_hash": trace.hexdigest(),
        "model_hash": hash_of(models),
        "dracofl": dracofl.__version__,
    }


def _one_sided(tables: dict[str, pa.Table], user: int) -> dict[str, Any]:
    """What one peer sent, by its neighbours' word, and apart from that what it received."""
    messages = tables["messages"]
    fates = {}
    for side in ("sender", "receiver"):
        column = messages.filter(pc.equal(messages[side], user))["fate"].cast(pa.string()).to_pylist()
        fates[side] = {str(fate): column.count(fate) for fate in Fate}
        fates[side]["sent" if side == "sender" else "arrived"] = len(column)
    delivered = fates["sender"][Fate.APPLIED] + fates["sender"][Fate.OVER_BUDGET]
    return {"messages": {**fates["sender"], "delivered": delivered}, "received": fates["receiver"]}
