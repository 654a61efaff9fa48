"""The idx files with everything that can be wrong with them, and the real ones where they are at hand."""

from __future__ import annotations

import gzip
import struct
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dracofl.datasets import emnist, images
from dracofl.errors import DataError

REAL = Path(__file__).parents[2].parent / "shared/data/emnist"
needs_real = pytest.mark.skipif(not REAL.is_dir(), reason=f"the EMNIST files are not in {REAL}")

TRAIN_IMAGES, TRAIN_LABELS = "emnist-balanced-train-images-idx3-ubyte", "emnist-balanced-train-labels-idx1-ubyte"
TEST_IMAGES, TEST_LABELS = "emnist-balanced-test-images-idx3-ubyte", "emnist-balanced-test-labels-idx1-ubyte"
ROWS = 5_047


def idx(items: np.ndarray, magic: int | None = None) -> bytes:
    head = 0x0800 + items.ndim if magic is None else magic
    return struct.pack(f">{1 + items.ndim}I", head, *items.shape) + items.tobytes()


def upright(count: int) -> np.ndarray:
    """Pictures that tell their number and which side is up: the number in the top row, a mark at (3, 20)."""
    pictures = np.zeros((count, 28, 28), np.uint8)
    pictures[:, 0, 0], pictures[:, 0, 1] = np.arange(count) // 256, np.arange(count) % 256
    pictures[:, 3, 20] = 255
    return pictures


def labels(count: int) -> np.ndarray:
    return (np.arange(count) % 47).astype(np.uint8)


def official(pictures: np.ndarray) -> bytes:
    return idx(pictures.transpose(0, 2, 1))


GOOD = {
    TRAIN_IMAGES: official(upright(ROWS)),
    TRAIN_LABELS: idx(labels(ROWS)),
    TEST_IMAGES: official(upright(10)),
    TEST_LABELS: idx(labels(10)),
}


def write(folder: Path, **changes: bytes | None) -> Path:
    """Good files but for the changes: train_images=b"..." has this content, None is left out."""
    for name, content in GOOD.items():
        short = "_".join(name.split("-")[2:4])
        new = changes.get(short, content)
        if new is not None:
            (folder / name).write_bytes(new)
    return folder


def complaint(folder: Path) -> str:
    with pytest.raises(DataError) as caught:
        emnist.read(folder)
    return str(caught.value)


# --- the real files


@needs_real
def test_the_real_files_read_fast_and_are_as_described() -> None:
    started = time.perf_counter()
    data = emnist.read(REAL)
    assert time.perf_counter() - started < 5.0
    assert (len(data.train), len(data.validation), len(data.test)) == (90_495, 5_000, 7_050)
    assert (data.classes, data.features) == (47, 784)
    assert data.train.inputs.dtype == np.uint8
    assert data.train.inputs.flags.c_contiguous
    assert np.bincount(data.test.labels).tolist() == [150] * 47
    everything = np.concatenate([data.train.labels, data.validation.labels])
    assert (np.bincount(everything).min(), np.bincount(everything).max()) == (767, 2_400)
    assert np.bincount(data.validation.labels, minlength=47).min() > 20


@needs_real
def test_the_real_pictures_are_upright() -> None:
    """The mean L has its ink to the left and below, the mean 7 above, the mean T in a bar on top."""
    test = emnist.read(REAL).test
    mean = {name: test.inputs[test.labels == images.CLASS_NAMES.index(name)].mean(axis=0) for name in "L7T"}
    assert mean["L"][18:, :].sum() > mean["L"][:10, :].sum()
    assert mean["7"][:10].sum() > 1.2 * mean["7"][18:].sum()
    assert mean["T"][4:12].sum() > 1.5 * mean["T"][16:24].sum()


@needs_real
def test_a_real_file_cut_off_is_named(tmp_path: Path) -> None:
    for path in REAL.glob("emnist-balanced-*.gz"):
        whole = path.read_bytes()
        (tmp_path / path.name).write_bytes(whole[: len(whole) // 2] if "test-images" in path.name else whole)
    assert f"{TEST_IMAGES}.gz: the gzip file is broken off or damaged" in complaint(tmp_path)


# --- handmade files


@pytest.mark.parametrize("packed", [False, True])
def test_what_is_written_is_read_upright_and_split(tmp_path: Path, packed: bool) -> None:
    for name, content in GOOD.items():
        (tmp_path / (name + ".gz" * packed)).write_bytes(gzip.compress(content, 1) if packed else content)
    data = emnist.read(str(tmp_path))
    assert (len(data.train), len(data.validation), len(data.test)) == (47, 5_000, 10)
    np.testing.assert_array_equal(data.train.inputs, upright(ROWS)[:47])
    np.testing.assert_array_equal(data.validation.inputs, upright(ROWS)[47:])
    np.testing.assert_array_equal(data.test.inputs, upright(10))
    np.testing.assert_array_equal(data.train.labels, labels(ROWS)[:47])
    np.testing.assert_array_equal(data.validation.labels, labels(ROWS)[47:])
    assert (data.classes, data.features) == (47, 784)


def test_some_files_may_be_packed_and_others_not(tmp_path: Path) -> None:
    write(tmp_path, test_labels=None)
    (tmp_path / f"{TEST_LABELS}.gz").write_bytes(gzip.compress(GOOD[TEST_LABELS]))
    assert emnist.read(tmp_path).test.labels.tolist() == list(range(10))


def test_class_names_are_in_the_documented_order() -> None:
    assert "".join(images.CLASS_NAMES) == "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabdefghnqrt"


@pytest.mark.parametrize("name", list(GOOD))
def test_a_missing_file_is_named_with_what_is_there(tmp_path: Path, name: str) -> None:
    write(tmp_path, **{"_".join(name.split("-")[2:4]): None})
    message = complaint(tmp_path)
    assert message.startswith(f"{tmp_path} has no {name} or {name}.gz; it holds emnist-balanced-")
    assert "nist.gov" in message


def test_a_folder_of_something_else_is_named_with_what_it_holds(tmp_path: Path) -> None:
    assert "it holds nothing" in complaint(tmp_path)
    (tmp_path / "poker-hand-training-true.data.gz").touch()
    assert f"{tmp_path} has no {TRAIN_IMAGES}" in complaint(tmp_path)
    assert "it holds poker-hand-training-true.data.gz. " in complaint(tmp_path)
    for name in ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "a"):
        (tmp_path / name).touch()
    assert "it holds a, poker-hand-training-true.data.gz, t10k-images-idx3-ubyte, train-images-idx3-ubyte, ..." in (
        complaint(tmp_path)
    )


@pytest.mark.parametrize("name", ["nowhere", TEST_LABELS])
def test_no_folder_is_named(tmp_path: Path, name: str) -> None:
    message = complaint(write(tmp_path) / name)
    assert message.startswith(f"{tmp_path / name} is not a folder; data.dir must name one that holds {TRAIN_IMAGES}.gz")


def test_a_file_that_is_there_twice_is_named(tmp_path: Path) -> None:
    (write(tmp_path) / f"{TEST_IMAGES}.gz").touch()
    assert complaint(tmp_path) == f"{tmp_path} has both {TEST_IMAGES} and {TEST_IMAGES}.gz; leave one of them there"


@pytest.mark.parametrize("kept", [5, 15, 100, -5])
def test_a_truncated_gzip_file_is_named(tmp_path: Path, kept: int) -> None:
    write(tmp_path, train_images=None)
    (tmp_path / f"{TRAIN_IMAGES}.gz").write_bytes(gzip.compress(GOOD[TRAIN_IMAGES], 1)[:kept])
    message = complaint(tmp_path)
    assert message.startswith(f"{tmp_path / TRAIN_IMAGES}.gz: the gzip file is broken off or damaged (")
    assert "get it again from EMNIST Balanced" in message


def test_a_plain_file_named_as_packed_is_named(tmp_path: Path) -> None:
    write(tmp_path, train_labels=None)
    (tmp_path / f"{TRAIN_LABELS}.gz").write_bytes(GOOD[TRAIN_LABELS])
    assert f"{TRAIN_LABELS}.gz: the gzip file is broken off or damaged (Not a gzipped file" in complaint(tmp_path)


def test_an_empty_gzip_file_is_named(tmp_path: Path) -> None:
    write(tmp_path, train_labels=None)
    (tmp_path / f"{TRAIN_LABELS}.gz").write_bytes(b"")
    assert f"{TRAIN_LABELS}.gz ends after 0 bytes, within its head" in complaint(tmp_path)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        (
            {"train_images": GOOD[TRAIN_LABELS]},
            "images-idx3-ubyte begins with 0x00000801; an idx file of images begins ",
        ),
        ({"test_labels": GOOD[TEST_IMAGES]}, "begins with 0x00000803; an idx file of labels begins with 0x00000801"),
        ({"test_images": gzip.compress(GOOD[TEST_IMAGES])}, "images-idx3-ubyte begins with 0x1f8b08"),
        ({"train_labels": b"\0\0\x08"}, "train-labels-idx1-ubyte ends after 3 bytes, within its head"),
        ({"test_images": GOOD[TEST_IMAGES][:12]}, "test-images-idx3-ubyte ends after 12 bytes, within its head"),
        ({"test_images": GOOD[TEST_IMAGES][:-1]}, "holds 7,839 bytes after its head, where 10 items need 7,840"),
        ({"test_images": GOOD[TEST_IMAGES] + b"\0"}, "holds 7,841 bytes after its head, where 10 items need 7,840"),
        (
            {"test_labels": GOOD[TEST_LABELS][:-1]},
            "test-labels-idx1-ubyte holds 9 bytes after its head, where 10 items",
        ),
        (
            {"test_images": idx(np.zeros((10, 32, 32), np.uint8))},
            "holds images of 32 x 32 pixels; they must be 28 x 28",
        ),
        ({"test_images": idx(np.zeros((0, 28, 28), np.uint8))}, "test-images-idx3-ubyte says that it holds nothing"),
        (
            {"test_labels": idx(labels(11))},
            "images-idx3-ubyte holds 10 images and emnist-balanced-test-labels-idx1-ubyte ",
        ),
        ({"test_labels": idx(labels(11))}, "11 labels; there must be a label for each image"),
        ({"test_labels": idx(labels(10) + np.uint8(38))}, "label 10 is 47; with 47 classes it must be 0 to 46"),
        (
            {"train_labels": idx(labels(ROWS) % 10)},
            "lacks 37 of the 47 classes, the first of them 10 (A); is it of another",
        ),
        (
            {"train_images": official(upright(5_000)), "train_labels": idx(labels(5_000))},
            "holds 5,000 images; it must hold more than the 5,000 set aside for validation",
        ),
    ],
)
def test_what_is_wrong_is_named_with_the_file_and_what_would_be_right(
    tmp_path: Path, changes: dict[str, bytes], problem: str
) -> None:
    message = complaint(write(tmp_path, **changes))
    assert message.startswith(f"{tmp_path}/emnist-balanced-")
    assert problem in message


def test_a_huge_count_in_the_head_is_no_reason_to_run_out_of_memory(tmp_path: Path) -> None:
    head = struct.pack(">4I", 0x0803, 2**32 - 1, 28, 28)
    assert "where 4,294,967,295 items need 3,367,254,359,280" in complaint(write(tmp_path, test_images=head))


# --- features


def test_features_are_the_rows_of_the_picture_from_zero_to_one() -> None:
    pictures = np.arange(2 * 784).reshape(2, 28, 28).astype(np.uint8)
    features = images.encode(pictures)
    assert (features.shape, features.dtype) == ((2, 784), np.float32)
    np.testing.assert_allclose(features, pictures.reshape(2, 784) / 255, rtol=1e-6)
    assert images.encode(np.full((1, 28, 28), 255, np.uint8)).max() == 1.0
    assert images.encode(np.zeros((0, 28, 28), np.uint8)).shape == (0, 784)


def test_jax_encodes_as_numpy_does_to_the_bit_traced_or_not() -> None:
    pictures = np.arange(2 * 784).reshape(2, 28, 28).astype(np.uint8)
    for encode in (images.encode, jax.jit(images.encode), jax.jit(jax.vmap(images.encode))):
        features = encode(jnp.asarray(pictures))
        assert features.dtype == jnp.float32
        np.testing.assert_array_equal(np.asarray(features), images.encode(pictures))


def test_batches_of_batches_can_be_encoded() -> None:
    assert images.encode(np.zeros((3, 4, 28, 28), np.uint8)).shape == (3, 4, 784)
