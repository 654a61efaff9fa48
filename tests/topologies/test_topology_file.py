"""Graphs from files: what is understood, and what is said about what is not."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dracofl.errors import ConfigError, DataError
from dracofl.topologies.file import FromFile
from dracofl.types import Graph

RING = Graph(((1,), (2,), (0,)))
MATRIX = "0 1 0\n0 0 1\n1 0 0\n"


def build(path: Path, users: int) -> Graph:
    return FromFile(path=str(path)).build(users, 0, np.zeros((users, 2)))


def written(folder: Path, name: str, contents: str | bytes) -> Path:
    path = folder / name
    path.write_bytes(contents.encode() if isinstance(contents, str) else contents)
    return path


@pytest.mark.parametrize(
    ("name", "contents"),
    [
        ("graph.txt", "0 1\n1 2\n2 0\n"),
        ("graph.edges", "0\t1\n1\t2\n2\t0"),
        ("graph.csv", "0,1\n1 , 2\n 2, 0 \n"),
        ("comments.txt", "# a ring\n\n0 1  # first\n   \n1 2\n2 0#last\n"),
        ("any-order.txt", "2 0\n0 1\n1 2\n"),
        ("repeated.txt", "0 1\n0 1\n1 2\n2 0\n2 0\n"),
        ("to-oneself.txt", "0 0\n0 1\n1 2\n2 0\n"),
        ("windows.csv", "0,1\r\n1,2\r\n2,0\r\n"),
        ("byte-order-mark.csv", "\ufeff0,1\n1,2\n2,0\n"),
        ("old-mac.txt", "0 1\r1 2\r2 0\r"),
        ("matrix.txt", MATRIX),
        ("matrix.csv", MATRIX.replace(" ", ",")),
        ("weights.txt", "5 0.5 0\n0 5 -1e-3\n1 0 5  # the diagonal means nothing\n"),
    ],
)
def test_a_ring_is_understood_however_it_is_written(tmp_path: Path, name: str, contents: str) -> None:
    assert build(written(tmp_path, name, contents), 3) == RING


@pytest.mark.parametrize("dtype", [bool, np.int8, np.uint64, np.float32, np.float64])
def test_a_npy_matrix_says_who_sends_to_whom(tmp_path: Path, dtype: type) -> None:
    matrix = np.array([[1, 1, 0], [0, 1, 1], [1, 0, 0]], dtype=dtype)
    np.save(tmp_path / "graph.npy", matrix)
    assert build(tmp_path / "graph.npy", 3) == RING


def test_two_columns_of_text_are_an_edge_list_even_with_two_users(tmp_path: Path) -> None:
    # As a matrix this would leave user 1 without anybody to send to.
    assert build(written(tmp_path, "graph.txt", "0 1\n1 0\n"), 2) == Graph(((1,), (0,)))
    with pytest.raises(ConfigError, match="nobody"):
        build(written(tmp_path, "graph.txt", "0 1\n0 0\n"), 2)


def test_two_users_in_a_npy_are_a_matrix(tmp_path: Path) -> None:
    np.save(tmp_path / "graph.npy", np.array([[0, 1], [1, 0]]))
    assert build(tmp_path / "graph.npy", 2) == Graph(((1,), (0,)))


@given(users=st.integers(3, 8), data=st.data())
@settings(deadline=None, max_examples=50)
def test_edge_list_text_matrix_and_npy_of_the_same_graph_agree(
    tmp_path_factory: pytest.TempPathFactory, users: int, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("graphs")
    matrix = np.array(data.draw(st.lists(st.booleans(), min_size=users**2, max_size=users**2))).reshape(users, users)
    # A ring underneath, so that nobody is isolated.
    matrix |= np.roll(np.eye(users, dtype=bool), 1, axis=1)
    np.save(folder / "graph.npy", matrix)
    np.savetxt(folder / "matrix.txt", matrix, fmt="%d")
    np.savetxt(folder / "graph.edges", np.argwhere(matrix), fmt="%d")
    expected = Graph(tuple(tuple(j for j in range(users) if matrix[i, j] and i != j) for i in range(users)))
    for name in ("graph.npy", "matrix.txt", "graph.edges"):
        assert build(folder / name, users) == expected


@pytest.mark.parametrize(
    ("contents", "said"),
    [
        ("0 1\n1 x\n", 'line 2: "x" is no user; users are whole numbers from 0'),
        ("sender,receiver\n0,1\n", 'line 1: "sender" is no user'),
        ("0 1\n1 -1\n", 'line 2: "-1" is no user'),
        ("0 1\n1 2.0\n", 'line 2: "2.0" is no user'),
        ("0 1\n1 " + "9" * 5000, 'line 2: "999'),
        ("# a comment\n0 1\n\n1 2 3\n", "line 4: 3 columns, where line 2 has 2"),
        ("0 1\n1\n", "line 2: 1 column, where line 1 has 2"),
        ("0 1\n1,,2\n", "line 2: 3 columns, where line 1 has 2"),
        ("0,1\n1,\n", 'line 2: "" is no user'),
        ("0 1 0\n0 0 1\n1 oops 0\n", 'line 3: "oops" is not a finite number'),
        ("0 1 0\n0 0 nan\n1 0 0\n", 'line 2: "nan" is not a finite number'),
        ("0 1 0\n1 0 1\n", "2 rows of 3 columns, where an edge list has 2 columns and a matrix as many rows"),
        ("", "holds no links"),
        ("# nothing\n\n", "holds no links"),
        (b"0 1\n\xff\xfe\n", "line 2: not text in UTF-8; a binary matrix must be a .npy file"),
    ],
)
def test_a_text_that_makes_no_sense_is_refused_with_its_name_and_line(
    tmp_path: Path, contents: str | bytes, said: str
) -> None:
    path = written(tmp_path, "graph.txt", contents)
    with pytest.raises(DataError, match=re.escape(said)) as refused:
        build(path, 3)
    assert str(path) in str(refused.value)


@pytest.mark.parametrize(
    ("array", "said"),
    [
        (np.ones((2, 3)), "an array of float64 with shape (2, 3); it must be a square matrix of numbers"),
        (np.ones(9), "with shape (9,)"),
        (np.array([["a", "b"], ["c", "d"]]), "an array of <U1"),
        (np.array([[0.0, np.nan], [1.0, 0.0]]), "entry [0][1] is nan, where a finite number is needed"),
    ],
)
def test_a_npy_that_is_no_matrix_of_numbers_is_refused(tmp_path: Path, array: np.ndarray, said: str) -> None:
    path = tmp_path / "graph.npy"
    np.save(path, array)
    with pytest.raises(DataError, match=re.escape(said)) as refused:
        build(path, 3)
    assert str(path) in str(refused.value)


def test_a_npy_that_is_damaged_is_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "whole.npy", np.ones((3, 3)))
    whole = (tmp_path / "whole.npy").read_bytes()
    absurd_shape = whole.replace(b"(3, 3), }" + b" " * 20, b"(1048576, 1048576), }" + b" " * 8)
    for contents in (b"", b"0 1\n1 0\n", whole[:-8], whole[:20], absurd_shape):
        with pytest.raises(DataError, match=r"damaged\.npy: not a NumPy array file"):
            build(written(tmp_path, "damaged.npy", contents), 3)


def test_a_npy_of_pickled_objects_is_refused_unopened(tmp_path: Path) -> None:
    np.save(tmp_path / "graph.npy", np.array([[None, 1], [1, None]], dtype=object), allow_pickle=True)
    with pytest.raises(DataError, match="not a NumPy array file"):
        build(tmp_path / "graph.npy", 2)


@pytest.mark.parametrize("name", ["missing.txt", "missing.npy"])
def test_a_missing_file_is_named(tmp_path: Path, name: str) -> None:
    with pytest.raises(DataError, match=rf"{name}: cannot be read: No such file or directory"):
        build(tmp_path / name, 3)


def test_a_folder_is_not_a_file(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot be read: Is a directory"):
        build(tmp_path, 3)


def test_a_name_no_file_can_have_is_refused() -> None:
    with pytest.raises(DataError, match="cannot be read: embedded null byte"):
        build(Path("a\0b.txt"), 3)


def test_an_edge_list_that_names_a_user_too_many_disagrees_with_the_configuration(tmp_path: Path) -> None:
    path = written(tmp_path, "graph.txt", "0 1\n1 2\n2 3\n3 0\n")
    with pytest.raises(ConfigError) as refused:
        build(path, 3)
    assert str(refused.value) == (
        f'topology.path = "{path}": line 3 names user 3, but with users = 3 they are numbered 0 to 2'
    )


@pytest.mark.parametrize("users", [2, 4])
def test_a_matrix_of_another_size_disagrees_with_the_configuration(tmp_path: Path, users: int) -> None:
    np.save(tmp_path / "matrix.npy", np.ones((3, 3)))
    for path in (written(tmp_path, "matrix.txt", MATRIX), tmp_path / "matrix.npy"):
        with pytest.raises(ConfigError) as refused:
            build(path, users)
        assert str(refused.value) == (
            f'topology.path = "{path}": a matrix of 3 users, but users = {users}; they must agree'
        )


def test_a_file_with_isolated_users_is_refused_and_they_are_listed(tmp_path: Path) -> None:
    path = written(tmp_path, "graph.txt", "0 1\n1 0\n2 0\n")
    with pytest.raises(ConfigError) as refused:
        build(path, 4)
    cannot_send, cannot_hear = refused.value.problems
    assert cannot_send.startswith(f'topology.path = "{path}": user 3 has nobody to send to; ')
    assert cannot_hear.startswith(f'topology.path = "{path}": users 2, 3 have nobody to hear; ')


def test_a_matrix_with_nothing_off_the_diagonal_isolates_everybody(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="users 0, 1, 2 have nobody to send to"):
        build(written(tmp_path, "graph.txt", "1 0 0\n0 1 0\n0 0 1\n"), 3)


def test_a_single_user_in_a_file_has_nobody(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="user 0 has nobody to send to"):
        build(written(tmp_path, "graph.txt", "1\n"), 1)
