"""Accuracy and macro-F1 from confusion matrices, exactly, on the host."""

from __future__ import annotations

import numpy as np


def accuracy_and_f1(confusions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """`confusions[model, truth, prediction]` holds counts. F1 is averaged over the classes that occur in the truth."""
    counts = confusions.astype(np.int64)
    right, truths, predictions = np.diagonal(counts, axis1=1, axis2=2), counts.sum(axis=2), counts.sum(axis=1)
    present = truths > 0
    f1 = 2.0 * right / np.maximum(truths + predictions, 1)  # of a class that does not occur at all it is 0
    return right.sum(axis=1) / truths.sum(axis=1), (f1 * present).sum(axis=1) / present.sum(axis=1)
