"""Accuracy and macro-F1 from a confusion matrix, exactly, on the host."""

from __future__ import annotations

import numpy as np


def accuracy_and_f1(confusion: np.ndarray) -> tuple[float, float]:
    """`confusion[truth, prediction]` holds counts. F1 is averaged over the classes that occur in the truth."""
    counts = confusion.astype(np.int64)
    right, truths, predictions = np.diag(counts), counts.sum(axis=1), counts.sum(axis=0)
    present = truths > 0
    f1 = 2.0 * right[present] / (truths[present] + predictions[present])
    return float(right.sum() / counts.sum()), float(f1.mean())
