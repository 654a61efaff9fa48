"""The three tables of a run: a row per event, per message, and per evaluation and user."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dracofl.types import Fate

_WORD = pa.dictionary(pa.int8(), pa.string())

SCHEMAS: dict[str, pa.Schema] = {
    "events": pa.schema(
        [
            ("time_s", pa.float64()),
            ("kind", _WORD),
            ("user", pa.int32()),
            ("peer", pa.int32()),
            ("number", pa.int64()),
            ("bytes", pa.int64()),
            ("airtime_s", pa.float64()),
        ]
    ),
    "messages": pa.schema(
        [
            ("sender", pa.int32()),
            ("receiver", pa.int32()),
            ("number", pa.int64()),
            ("updates", pa.int32()),
            ("weight", pa.float64()),
            ("bytes", pa.int64()),
            ("sent_s", pa.float64()),
            ("arrived_s", pa.float64()),
            ("settled_s", pa.float64()),
            ("fate", _WORD),
            ("reason", _WORD),
            ("age_s", pa.float64()),
        ]
    ),
    "metrics": pa.schema(
        [
            ("time_s", pa.float64()),
            ("events", pa.int64()),
            ("samples", pa.int32()),
            ("final", pa.bool_()),
            ("user", pa.int32()),
            ("accuracy", pa.float64()),
            ("f1", pa.float64()),
            ("loss", pa.float64()),
            ("distance_to_mean", pa.float64()),
            ("mean_model_accuracy", pa.float64()),
            ("mean_model_f1", pa.float64()),
            ("mean_model_loss", pa.float64()),
        ]
    ),
}


class MetricRow(NamedTuple):
    """One user at one evaluation. The columns mean_model_* are of x-bar, the same for all users."""

    time_s: float
    events: int
    samples: int
    final: bool
    user: int
    accuracy: float
    f1: float
    loss: float
    distance_to_mean: float
    mean_model_accuracy: float
    mean_model_f1: float
    mean_model_loss: float


def to_table(name: str, rows: Iterable[tuple[Any, ...]]) -> pa.Table:
    """Rows, as tuples in the order of the columns, as an Arrow table."""
    return from_flat(name, list(itertools.chain.from_iterable(rows)))


def from_flat(name: str, flat: list[Any]) -> pa.Table:
    """Rows, given field after field, as an Arrow table."""
    schema = SCHEMAS[name]
    arrays = [
        _words(flat[place :: len(schema)]) if kind == _WORD else pa.array(flat[place :: len(schema)], kind)
        for place, kind in enumerate(schema.types)
    ]
    return pa.Table.from_arrays(arrays, schema=schema)


def _words(column: list[str]) -> pa.DictionaryArray:
    codes = {word: code for code, word in enumerate(dict.fromkeys(column))}
    indices = np.fromiter(map(codes.__getitem__, column), np.int8, len(column))
    return pa.DictionaryArray.from_arrays(indices, pa.array([str(word) for word in codes], pa.string()))


def concatenate(name: str, tables: Sequence[pa.Table]) -> pa.Table:
    """In pieces still, as to put them together is to copy them. A sum of floats in pieces depends on the pieces, hence
    on where a run was cut: who wants one makes one array of the column first, as `to_numpy` does."""
    return pa.concat_tables([to_table(name, []), *tables]).unify_dictionaries()


def cut_at(tables: dict[str, pa.Table], time_s: float) -> dict[str, pa.Table]:
    """The tables as they would be had the run ended right after this instant."""
    messages = tables["messages"].filter(pc.less_equal(tables["messages"]["sent_s"], time_s))
    unsettled = pc.greater(messages["settled_s"], time_s)
    unarrived = pc.or_(pc.is_nan(messages["arrived_s"]), pc.greater(messages["arrived_s"], time_s))
    fates = messages["fate"].cast(pa.string())
    columns = {
        "fate": pc.if_else(unsettled, str(Fate.PENDING), fates).dictionary_encode(),
        "age_s": pc.if_else(unsettled, math.nan, messages["age_s"]),
        "arrived_s": pc.if_else(unarrived, math.nan, messages["arrived_s"]),
        "settled_s": pc.if_else(unsettled, time_s, messages["settled_s"]),
    }
    for column, values in columns.items():
        messages = messages.set_column(messages.schema.get_field_index(column), column, values)
    return {
        "events": tables["events"].filter(pc.less_equal(tables["events"]["time_s"], time_s)),
        "messages": messages.cast(SCHEMAS["messages"]),
        "metrics": tables["metrics"].filter(pc.less_equal(tables["metrics"]["time_s"], time_s)),
    }
