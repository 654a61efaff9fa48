"""A data set that contradicts itself cannot be made, and says why."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from dracofl.datasets.samples import Classification, Samples


def rows(count: int, label: int = 0) -> Samples:
    return Samples(np.zeros((count, 3), np.uint8), np.full(count, label, np.int32))


def as_float(inputs: Any) -> Any:
    return inputs.astype("float32")


def classification(**changes: Any) -> Classification:
    fields: dict[str, Any] = {
        "train": rows(4),
        "test": rows(2),
        "validation": rows(1),
        "classes": 2,
        "features": 3,
        "encode": as_float,
    }
    return Classification(**{**fields, **changes})


def test_samples_know_their_number() -> None:
    assert len(rows(5)) == 5
    assert len(rows(0)) == 0


def test_samples_are_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        rows(1).labels = np.zeros(1, np.int32)  # type: ignore[misc]


@pytest.mark.parametrize(
    ("inputs", "labels", "message"),
    [
        (np.zeros((3, 2)), np.zeros(4, np.int32), r"inputs are float64 of shape \(3, 2\); with 4 labels"),
        (np.zeros(4), np.zeros(4, np.int32), r"must have shape \(4, ...\)"),
        (np.zeros((4, 2)), np.zeros(4, np.int64), r"labels are int64 of shape \(4,\); they must be int32"),
        (np.zeros((4, 2)), np.zeros((4, 1), np.int32), r"of shape \(n,\)"),
    ],
)
def test_samples_reject_rows_and_labels_that_do_not_fit(inputs: Any, labels: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Samples(inputs, labels)


def test_test_and_validation_may_be_empty() -> None:
    assert len(classification(test=rows(0), validation=rows(0)).test) == 0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"train": rows(0)}, "training split is empty"),
        ({"classes": 1}, "classes is 1"),
        ({"test": rows(1, label=2)}, "test labels run from 2 to 2; with 2 classes they must be 0 to 1"),
        ({"validation": rows(1, label=-1)}, "validation labels run from -1"),
        ({"test": Samples(np.zeros((1, 4), np.uint8), np.zeros(1, np.int32))}, "must be like those of train"),
        ({"test": Samples(np.zeros((1, 3), np.int8), np.zeros(1, np.int32))}, "must be like those of train"),
        ({"features": 4}, r"must be float32 of shape \(1, 4\)"),
        ({"encode": lambda inputs: inputs}, "encode turns one row into uint8"),
    ],
)
def test_classification_rejects_parts_that_do_not_fit(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        classification(**changes)
