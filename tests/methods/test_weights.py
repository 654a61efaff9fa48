"""Rows of weights: uniform, decided at sending, or read from a file that is refused unless each row sums to 1."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dracofl.errors import ConfigError, DataError
from dracofl.methods.weights import weight_rows
from dracofl.types import Graph

GRAPH = Graph(((1, 2), (2,), (0, 1)))
MATRIX = np.array([[0.0, 0.25, 0.75], [0.0, 0.0, 1.0], [0.5, 0.5, 0.0]])
ROWS = [(0.25, 0.75), (1.0,), (0.5, 0.5)]


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def write(text: str, name: str = "w.csv") -> str:
    Path(name).write_text(text)
    return name


def problems(matrix: str | np.ndarray, graph: Graph = GRAPH) -> tuple[str, ...]:
    if isinstance(matrix, str):
        write(matrix)
    else:
        np.savetxt("w.csv", matrix, delimiter=",")
    with pytest.raises(ConfigError) as caught:
        weight_rows("w.csv", graph)
    return caught.value.problems


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    users = draw(st.integers(1, 8))
    others = [[other for other in range(users) if other != user] for user in range(users)]
    return Graph(tuple(tuple(other for other in row if draw(st.booleans())) for row in others))


# Rules


@given(graphs())
@settings(deadline=None)
def test_uniform_weights_share_equally_and_sum_to_1(graph: Graph) -> None:
    rows = weight_rows("uniform", graph)
    assert len(rows) == graph.users
    for receivers, row in zip(graph.successors, rows, strict=True):
        assert row is not None
        assert len(row) == len(receivers)
        assert len(set(row)) <= 1
        assert not receivers or sum(row) == pytest.approx(1.0)


def test_a_uniform_weight_is_one_over_the_out_degree() -> None:
    assert weight_rows("uniform", Graph(((1, 2, 3), (0,), (), (0, 1)))) == [(1 / 3,) * 3, (1.0,), (), (0.5, 0.5)]


@given(graphs())
@settings(deadline=None)
def test_delivered_weights_are_left_to_the_moment_of_sending(graph: Graph) -> None:
    assert weight_rows("delivered", graph) == [None] * graph.users


# Files that are good


@pytest.mark.parametrize("delimiter", [",", " ", "\t", "   ", ", "], ids=repr)
@pytest.mark.parametrize("name", ["w.csv", "w.txt", "weights"])
def test_a_matrix_is_read_from_text(name: str, delimiter: str) -> None:
    np.savetxt(name, MATRIX, delimiter=delimiter)
    assert weight_rows(name, GRAPH) == ROWS


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_a_matrix_is_read_from_numpy(dtype: type) -> None:
    np.save("w.npy", MATRIX.astype(dtype))
    assert weight_rows("w.npy", GRAPH) == ROWS


def test_whole_numbers_are_numbers() -> None:
    np.save("w.npy", np.array([[0, 1, 0], [0, 0, 1], [1, 0, 0]]))
    assert weight_rows("w.npy", GRAPH) == [(1.0, 0.0), (1.0,), (1.0, 0.0)]


def test_comments_and_empty_lines_are_passed_over() -> None:
    write("# from, to\n0, 0.25, 0.75\n\n0, 0, 1  # the last link\n0.5, 0.5, 0\n")
    assert weight_rows("w.csv", GRAPH) == ROWS


def test_the_weights_are_plain_floats_in_the_order_of_the_out_neighbours() -> None:
    np.save("w.npy", MATRIX)
    rows = weight_rows("w.npy", GRAPH)
    assert all(type(weight) is float for row in rows for weight in row or ())
    assert [len(row or ()) for row in rows] == [len(receivers) for receivers in GRAPH.successors]


def test_an_out_neighbour_may_have_no_weight() -> None:
    write("0,1,0\n0,0,1\n0,1,0\n")
    assert weight_rows("w.csv", GRAPH) == [(1.0, 0.0), (1.0,), (0.0, 1.0)]


@given(st.integers(2, 8), st.integers(0, 1000))
@settings(deadline=None, max_examples=25)
def test_every_row_of_an_accepted_file_sums_to_1(users: int, seed: int) -> None:
    matrix = np.random.default_rng(seed).random((users, users))
    np.fill_diagonal(matrix, 0.0)
    np.save("w.npy", matrix / matrix.sum(axis=1, keepdims=True))
    complete = Graph(tuple(tuple(other for other in range(users) if other != user) for user in range(users)))
    assert [sum(row or ()) for row in weight_rows("w.npy", complete)] == pytest.approx([1.0] * users)


@pytest.mark.parametrize("excess", [0.9e-6, -0.9e-6, 0.0])
def test_a_row_may_miss_1_by_a_millionth(excess: float) -> None:
    matrix = MATRIX.copy()
    matrix[1, 2] += excess
    np.save("w.npy", matrix)
    assert weight_rows("w.npy", GRAPH)[1] == (1.0 + excess,)


# Files that are refused


@pytest.mark.parametrize("excess", [1.1e-6, -1.1e-6])
def test_a_row_may_not_miss_1_by_more_than_a_millionth(excess: float) -> None:
    matrix = MATRIX.copy()
    matrix[1, 2] += excess
    np.save("w.npy", matrix)
    with pytest.raises(ConfigError, match=re.escape('method.weights = "w.npy": row 1 sums to ')):
        weight_rows("w.npy", GRAPH)


def test_a_sum_that_is_refused_is_not_reported_as_1() -> None:
    matrix = MATRIX.copy()
    matrix[1, 2] += 2e-6
    assert "sums to 1;" not in problems(matrix)[0]


@pytest.mark.parametrize(("weight", "total"), [(0.9, "0.9"), (1.5, "1.5"), (0.0, "0")])
def test_a_row_that_does_not_sum_to_1_is_refused(weight: float, total: str) -> None:
    matrix = MATRIX.copy()
    matrix[1, 2] = weight
    assert problems(matrix) == (f'method.weights = "w.csv": row 1 sums to {total}; every row must sum to 1',)


@pytest.mark.parametrize(
    ("text", "shape"),
    [
        ("0,1\n1,0\n", "(2, 2)"),
        ("0,1,0\n1,0,0\n", "(2, 3)"),
        ("0,1,0,0\n1,0,0,0\n0,0,0,1\n0,0,1,0\n", "(4, 4)"),
        ("1\n", "(1, 1)"),
    ],
)
def test_a_matrix_of_the_wrong_shape_is_refused(text: str, shape: str) -> None:
    assert problems(text) == (f'method.weights = "w.csv" holds a {shape} matrix; 3 users need (3, 3)',)


@pytest.mark.parametrize("shape", [(3,), (3, 3, 1), ()])
def test_an_array_that_is_no_matrix_is_refused(shape: tuple[int, ...]) -> None:
    np.save("w.npy", np.zeros(shape))
    with pytest.raises(ConfigError, match=re.escape(f"holds a {shape} matrix; 3 users need (3, 3)")):
        weight_rows("w.npy", GRAPH)


@pytest.mark.parametrize("row", ["0,-0.5,1.5", "0,nan,1", "0,inf,0", "0,-inf,1"])
def test_a_negative_or_infinite_weight_is_refused_even_if_the_row_sums_to_1(row: str) -> None:
    found = problems(f"{row}\n0,0,1\n0.5,0.5,0\n")
    assert found == ('method.weights = "w.csv": row 0 has an entry that is negative or not a number',)


def test_a_weight_for_a_user_that_is_no_out_neighbour_is_refused() -> None:
    assert problems("0,0.25,0.75\n0.5,0,0.5\n0.5,0.5,0\n") == (
        'method.weights = "w.csv": row 1 weighs [0], no out-neighbours of user 1 '
        "(its own share is method.own_weight, not the diagonal)",
    )


def test_a_weight_on_the_diagonal_is_refused() -> None:
    assert problems("0.5,0.25,0.25\n0,0,1\n0.5,0.5,0\n") == (
        'method.weights = "w.csv": row 0 weighs [0], no out-neighbours of user 0 '
        "(its own share is method.own_weight, not the diagonal)",
    )


def test_no_more_than_five_strangers_are_named() -> None:
    ring = Graph(tuple(((user + 1) % 9,) for user in range(9)))
    found = problems(np.full((9, 9), 1 / 9), ring)
    assert "row 0 weighs [0, 2, 3, 4, 5], no out-neighbours" in found[0]
    assert len(found) == 9


def test_all_bad_rows_are_reported_at_once() -> None:
    found = problems("0.5,0.5,0.5\n0,0,nan\n0.25,0.25,0\n")
    assert [re.sub(r"^.*: (row \d \w+).*$", r"\1", problem) for problem in found] == [
        "row 0 weighs",
        "row 0 sums",
        "row 1 has",
        "row 2 sums",
    ]


def test_a_missing_file_is_named_with_what_would_be_right() -> None:
    with pytest.raises(DataError) as caught:
        weight_rows("nowhere/w.csv", GRAPH)
    assert str(caught.value) == (
        'method.weights = "nowhere/w.csv": No such file or directory; give "uniform", "delivered" or a readable file'
    )


@pytest.mark.parametrize("name", ["w.csv", "w.npy"])
def test_a_folder_is_no_matrix(name: str) -> None:
    Path(name).mkdir()
    with pytest.raises(DataError, match=re.escape(f'method.weights = "{name}": Is a directory; give "uniform"')):
        weight_rows(name, GRAPH)


def test_a_misspelt_rule_is_taken_for_a_file_and_the_rules_are_named() -> None:
    with pytest.raises(DataError, match=r'method\.weights = "unifrom": No such file.*give "uniform", "delivered" or'):
        weight_rows("unifrom", GRAPH)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"from,to,weight\n0,1,0.5\n", "could not convert string 'from'"),
        (b"0,1,0\n0,1\n", "the number of columns changed"),
        (b"0,,1\n0,0,1\n1,0,0\n", "could not convert string ''"),
        (b"\xff\xfe\x00\x01", "can't decode"),
    ],
)
def test_text_that_is_not_numbers_is_refused(content: bytes, why: str) -> None:
    Path("w.csv").write_bytes(content)
    with pytest.raises(DataError) as caught:
        weight_rows("w.csv", GRAPH)
    assert str(caught.value).startswith('method.weights = "w.csv" is not a matrix of numbers: ')
    assert why in str(caught.value)


def test_a_numpy_file_that_is_none_or_holds_no_numbers_is_refused() -> None:
    np.save("whole.npy", MATRIX)
    Path("cut.npy").write_bytes(Path("whole.npy").read_bytes()[:150])
    Path("garbage.npy").write_bytes(b"0,1\n1,0\n")
    np.save("words.npy", np.full((3, 3), "a"))
    np.save("objects.npy", np.full((3, 3), None), allow_pickle=True)
    for name in ["cut.npy", "garbage.npy", "words.npy", "objects.npy"]:
        with pytest.raises(DataError, match=re.escape(f'method.weights = "{name}" is not a matrix of numbers: ')):
            weight_rows(name, GRAPH)


def test_an_empty_file_is_refused_without_a_warning_from_below() -> None:
    write("")
    with pytest.raises((ConfigError, DataError), match=r'method\.weights = "w\.csv"'):
        weight_rows("w.csv", GRAPH)


def test_an_empty_numpy_file_is_refused() -> None:
    Path("w.npy").write_bytes(b"")
    with pytest.raises(DataError, match=re.escape('method.weights = "w.npy"')):
        weight_rows("w.npy", GRAPH)


def test_a_numpy_file_of_records_is_refused() -> None:
    np.save("w.npy", np.zeros((3, 3), dtype=[("weight", "f8"), ("note", "f8")]))
    with pytest.raises(DataError, match=re.escape('method.weights = "w.npy"')):
        weight_rows("w.npy", GRAPH)


def test_a_user_without_out_neighbours_has_a_row_of_zeros() -> None:
    write("0,1\n0,0\n")
    assert weight_rows("w.csv", Graph(((1,), ()))) == [(1.0,), ()]
