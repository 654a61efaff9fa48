"""What a data set is to the rest of the house: rows in a compact form, labels, and a function to features.

Rows stay compact (a poker hand is ten bytes) and become float32 features only where they are used, mini-batch
by mini-batch. So `encode` has to work on NumPy arrays and on traced JAX arrays alike: it may index its
argument, use operators on it and call its `astype`, and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, eq=False)
class Samples:
    """The rows of one split: `inputs` of shape (n, ...) in a compact dtype, `labels` int32 of shape (n,)."""

    inputs: npt.NDArray[Any]
    labels: npt.NDArray[np.int32]

    def __post_init__(self) -> None:
        if self.labels.ndim != 1 or self.labels.dtype != np.int32:
            raise ValueError(f"labels are {_describe(self.labels)}; they must be int32 of shape (n,)")
        if self.inputs.ndim < 2 or len(self.inputs) != len(self.labels):
            raise ValueError(
                f"inputs are {_describe(self.inputs)}; with {len(self.labels):,} labels they must have shape "
                f"({len(self.labels)}, ...)"
            )

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True, eq=False)
class Classification:
    """A labelled data set. Test and validation may be empty, training may not."""

    train: Samples
    test: Samples
    validation: Samples
    classes: int
    """Labels are 0 to classes - 1; not every class need occur."""
    features: int
    """Length of one encoded input."""
    encode: Callable[[Any], Any]
    """Rows of inputs to float32 features of shape (n, features)."""

    def __post_init__(self) -> None:
        if self.classes < 2:
            raise ValueError(f"classes is {self.classes}; a classification has 2 or more")
        if len(self.train) == 0:
            raise ValueError("the training split is empty; it needs at least one sample")
        for name, split in (("train", self.train), ("test", self.test), ("validation", self.validation)):
            self._check_split(name, split)
        encoded = self.encode(self.train.inputs[:1])
        if encoded.shape != (1, self.features) or encoded.dtype != np.float32:
            raise ValueError(
                f"encode turns one row into {_describe(encoded)}; it must be float32 of shape (1, {self.features})"
            )

    def _check_split(self, name: str, split: Samples) -> None:
        if split.inputs.shape[1:] != self.train.inputs.shape[1:] or split.inputs.dtype != self.train.inputs.dtype:
            raise ValueError(
                f"{name} inputs are {_describe(split.inputs)}; rows must be like those of train, "
                f"{_describe(self.train.inputs)}"
            )
        if len(split) and not 0 <= split.labels.min() <= split.labels.max() < self.classes:
            raise ValueError(
                f"{name} labels run from {split.labels.min()} to {split.labels.max()}; "
                f"with {self.classes} classes they must be 0 to {self.classes - 1}"
            )


def _describe(array: Any) -> str:
    return f"{array.dtype} of shape {array.shape}"
