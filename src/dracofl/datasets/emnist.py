"""EMNIST Balanced: handwritten digits and letters, read from the idx files that NIST gives out.

Cohen, Afshar, Tapson and van Schaik, "EMNIST: an extension of MNIST to handwritten letters" (arXiv:1702.05373).
47 classes, see `CLASS_NAMES`; 112,800 + 18,800 pictures, and other numbers are fine too. The files hold every
picture transposed; here it is upright.

An idx file is a magic number (0, 0, type of the items, number of axes), the length of each axis as a 32-bit
big-endian number, and the items, here bytes.
"""

from __future__ import annotations

import gzip
import os
import struct
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from dracofl.datasets.images import CLASS_NAMES, SIDE, Images, classification
from dracofl.datasets.samples import Classification, Samples
from dracofl.errors import DataError

TRAIN_IMAGES, TRAIN_LABELS = "emnist-balanced-train-images-idx3-ubyte", "emnist-balanced-train-labels-idx1-ubyte"
TEST_IMAGES, TEST_LABELS = "emnist-balanced-test-images-idx3-ubyte", "emnist-balanced-test-labels-idx1-ubyte"
VALIDATION_ROWS = 5_000
"""How many rows of the training file, from its end, are for validation and not for training."""

_SOURCE = "EMNIST Balanced, https://www.nist.gov/itl/products-and-services/emnist-dataset"
_BYTES = 0x08  # the type of the items


def read(folder: str | os.PathLike[str]) -> Classification:
    """The four files of EMNIST Balanced in a folder, each plain or gzipped.

    Test is the test file. Validation are the last 5,000 rows of the training file, training the rows before them:
    the test file stays unseen while parameters are chosen. (The authors set aside the end of the training file
    too, as many rows as the test file has; 5,000 are enough to choose by, and leave more to train on.)
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise DataError(f"{folder} is not a folder; data.dir must name one that holds {TRAIN_IMAGES}.gz ({_SOURCE})")
    paths = [_find(folder, name) for name in (TRAIN_IMAGES, TRAIN_LABELS, TEST_IMAGES, TEST_LABELS)]
    train, test = _read_pair(paths[0], paths[1]), _read_pair(paths[2], paths[3])
    if len(train) <= VALIDATION_ROWS:
        raise DataError(
            f"{paths[0]} holds {len(train):,} images; it must hold more than the {VALIDATION_ROWS:,} set aside for "
            "validation"
        )
    missing = np.setdiff1d(np.arange(len(CLASS_NAMES)), train.labels)
    if missing.size:
        raise DataError(
            f"{paths[1]} lacks {missing.size} of the {len(CLASS_NAMES)} classes, the first of them "
            f"{missing[0]} ({CLASS_NAMES[missing[0]]}); is it of another set of the MNIST family? Wanted is {_SOURCE}"
        )
    cut = len(train) - VALIDATION_ROWS
    return classification(
        Samples(train.inputs[:cut], train.labels[:cut]), test, Samples(train.inputs[cut:], train.labels[cut:])
    )


def _find(folder: Path, name: str) -> Path:
    """The file of this name in the folder, or of this name and .gz."""
    found = [path for path in (folder / name, folder / f"{name}.gz") if path.is_file()]
    if not found:
        there = sorted(path.name for path in folder.iterdir())
        shown = ", ".join(there[:4]) + (", ..." if len(there) > 4 else "") if there else "nothing"
        raise DataError(f"{folder} has no {name} or {name}.gz; it holds {shown}. Get the file from {_SOURCE}")
    if len(found) > 1:
        raise DataError(f"{folder} has both {name} and {name}.gz; leave one of them there")
    return found[0]


def _read_pair(images_path: Path, labels_path: Path) -> Samples:
    labels = _read_idx(labels_path, ()).astype(np.int32)
    transposed = _read_idx(images_path, (SIDE, SIDE))
    if len(transposed) != len(labels):
        raise DataError(
            f"{images_path} holds {len(transposed):,} images and {labels_path.name} {len(labels):,} labels; "
            "there must be a label for each image: take both files from the same place"
        )
    bad = np.flatnonzero(labels >= len(CLASS_NAMES))
    if bad.size:
        raise DataError(
            f"{labels_path}: label {bad[0] + 1} is {labels[bad[0]]}; with {len(CLASS_NAMES)} classes it must be 0 to "
            f"{len(CLASS_NAMES) - 1} ({_SOURCE})"
        )
    upright: Images = np.ascontiguousarray(transposed.transpose(0, 2, 1))
    return Samples(upright, labels)


def _read_idx(path: Path, item_shape: tuple[int, ...]) -> npt.NDArray[np.uint8]:
    """The items of an idx file of bytes, shape (n, *item_shape)."""
    content = _content(path)
    axes = 1 + len(item_shape)
    start = 4 * (1 + axes)
    if len(content) < start:
        raise DataError(f"{path} ends after {len(content):,} bytes, within its head; get it again from {_SOURCE}")
    magic, count, *shape = struct.unpack_from(f">{1 + axes}I", content)
    wanted = _BYTES << 8 | axes
    if magic != wanted:
        kind = "images" if item_shape else "labels"
        raise DataError(
            f"{path} begins with 0x{magic:08x}; an idx file of {kind} begins with 0x{wanted:08x} ({_SOURCE})"
        )
    if tuple(shape) != item_shape:
        raise DataError(f"{path} holds images of {_times(shape)} pixels; they must be {_times(item_shape)} ({_SOURCE})")
    if count == 0:
        raise DataError(f"{path} says that it holds nothing; get it again from {_SOURCE}")
    size = count * int(np.prod(item_shape, dtype=np.int64))
    if len(content) - start != size:
        raise DataError(
            f"{path} holds {len(content) - start:,} bytes after its head, where {count:,} items need {size:,}; "
            f"get it again from {_SOURCE}"
        )
    return np.frombuffer(content, dtype=np.uint8, offset=start).reshape(count, *item_shape)


def _content(path: Path) -> bytes:
    """The bytes of a file, unpacked if its name ends in .gz."""
    try:
        if path.suffix != ".gz":
            return path.read_bytes()
        with gzip.open(path) as file:
            return file.read()
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(
            f"{path}: the gzip file is broken off or damaged ({error}); get it again from {_SOURCE}"
        ) from error
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}") from error


def _times(shape: Sequence[int]) -> str:
    return " x ".join(map(str, shape))
