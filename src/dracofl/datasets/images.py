"""What the sets of 28 x 28 pictures of 47 characters have in common: the classes, the shape, the features.

The classes are those of EMNIST Balanced (Cohen, Afshar, Tapson and van Schaik, arXiv:1702.05373): ten digits, 26
capitals, and the eleven small letters that do not look like their capital. The other fifteen share its class.
"""

from __future__ import annotations

import string
from typing import Any

import numpy as np
import numpy.typing as npt

from dracofl.datasets.samples import Classification, Samples

Images = npt.NDArray[np.uint8]
"""Shape (n, 28, 28), upright, ink 255 on 0."""

SIDE = 28
FEATURES = SIDE * SIDE
CLASS_NAMES = tuple(string.digits + string.ascii_uppercase + "abdefghnqrt")

# A product, not a quotient: XLA would make it one where NumPy would not, and they would differ in the last bit.
_UNIT = np.float32(1 / 255)


def encode(images: Any) -> Any:
    """Ink as float32 in [0, 1], row after row: (..., 28, 28) to (..., 784). Works on NumPy and on JAX arrays."""
    return images.reshape((*images.shape[:-2], FEATURES)).astype("float32") * _UNIT


def classification(train: Samples, test: Samples, validation: Samples) -> Classification:
    return Classification(
        train=train,
        test=test,
        validation=validation,
        classes=len(CLASS_NAMES),
        features=FEATURES,
        encode=encode,
    )
