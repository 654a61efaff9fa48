"""From what is written on the command line to a grid of configurations."""

from __future__ import annotations

import itertools
import math
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dracofl.config.load import load_config
from dracofl.errors import ConfigError
from dracofl.experiments import sweep
from dracofl.experiments.sweep import Grid, parse_values, read_grid, split_at_commas


def problems(*arguments: str, source: str = "tiny") -> tuple[str, ...]:
    with pytest.raises(ConfigError) as caught:
        read_grid(source, arguments)
    return caught.value.problems


# Values


words = st.text(string.ascii_letters + string.digits + "._-/", min_size=1).filter(lambda word: ".." not in word)
bracketed = st.lists(st.integers(0, 99), min_size=1, max_size=4).map(lambda several: str(several).replace(" ", ""))
quoted = st.text(string.ascii_letters + ",[]{}' ", max_size=8).map(lambda inner: f'"{inner}"')


@given(st.lists(words | bracketed | quoted, min_size=1, max_size=8))
def test_what_is_joined_by_commas_is_split_again(values: list[str]) -> None:
    assert split_at_commas("key", ",".join(values)) == values
    assert split_at_commas("key", " , ".join(values)) == values


@given(st.integers(-50, 50), st.integers(0, 40))
def test_a_range_has_both_its_ends_and_all_between(first: int, more: int) -> None:
    assert parse_values("key", f"{first}..{first + more}") == [str(one) for one in range(first, first + more + 1)]


@given(st.integers(-50, 50), st.integers(1, 40))
def test_a_range_that_runs_backwards_is_refused(first: int, less: int) -> None:
    with pytest.raises(ConfigError, match=r"key: the range .* is empty"):
        parse_values("key", f"{first}..{first - less}")


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("20", ["20"]),
        ("5, 20 ,none", ["5", "20", "none"]),
        ("1..3,7", ["1", "2", "3", "7"]),
        ("[32,32]", ["[32,32]"]),
        ("[32],[64,64]", ["[32]", "[64,64]"]),
        ("[[1,2],[3,4]],none", ["[[1,2],[3,4]]", "none"]),
        ("{kind='cycle'},{kind='k-out', k=2}", ["{kind='cycle'}", "{kind='k-out', k=2}"]),
        ('"a,b",c', ['"a,b"', "c"]),
        ("it's,mine", ["it's", "mine"]),
        ("../data,..", ["../data", ".."]),
        ("a..b", ["a..b"]),
    ],
)
def test_values(text: str, values: list[str]) -> None:
    assert parse_values("key", text) == values


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("1,,2", 'key: "1,,2" has an empty value in it'),
        ("1,", 'key: "1," has an empty value in it'),
        ("", 'key: "" has an empty value in it'),
        ("[1,2", "key: in [1,2 a bracket or a quote is not closed"),
        ('"a,b', 'key: in "a,b a bracket or a quote is not closed'),
        ("0.1..0.5", "key: 0.1..0.5 is not a range of whole numbers; list the values, as in key=0.1,0.2"),
        ("1...5", "key: 1...5 is not a range of whole numbers; list the values, as in key=0.1,0.2"),
        ("1..99999", "the grid has 99,999 runs (key: 99,999); at most 10,000"),
        ("1..9" + 17 * "0", f"the grid has {9 * 10**17:,} runs (key: {9 * 10**17:,}); at most 10,000"),
    ],
)
def test_values_that_are_refused(text: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_values("key", text)
    assert caught.value.problems == (said,)


# Grids


@given(
    st.dictionaries(
        st.sampled_from(["users", "seed", "method.psi", "train.batch", "model.hidden"]),
        st.integers(1, 3),
        min_size=1,
        max_size=3,
    )
)
def test_a_grid_is_as_large_as_the_product_of_its_axes_and_every_run_is_another(counts: dict[str, int]) -> None:
    def written(key: str, count: int) -> str:
        many = [f"[{one}, 3]" for one in range(2, count + 2)] if key == "model.hidden" else [f"2..{count + 1}"]
        return f"{key}={','.join(many)}"

    arguments = [written(key, count) for key, count in counts.items()]
    if counts == {"model.hidden": 1}:
        assert "nothing varies" in problems(*arguments)[0]
        return
    grid = read_grid("tiny", arguments)
    assert len(grid.points) == math.prod(counts.values())
    assert len({point.config for point in grid.points}) == len(grid.points)
    assert len({grid.run_folder(point) for point in grid.points}) == len(grid.points)
    assert len(grid.dimensions) == len(grid.axes) - any(axis.key == "seed" for axis in grid.axes)


def test_a_point_is_the_configuration_of_a_run_with_these_overrides() -> None:
    grid = read_grid("tiny", ["method.psi=5,none", "users=4", "seed=1..2", "model.hidden=[8],[8, 8]"])
    assert [axis.key for axis in grid.axes] == ["method.psi", "seed", "model.hidden"]
    assert grid.fixed == (("users", "4"),)
    expected = [
        load_config("tiny", [f"method.psi={psi}", "users=4", f"seed={seed}", f"model.hidden={hidden}"])
        for psi, seed, hidden in itertools.product(("5", "none"), (1, 2), ("[8]", "[8,8]"))
    ]
    assert [point.config for point in grid.points] == expected
    assert grid.run_folder(grid.points[0]).name.startswith(
        "method.psi=5,model.hidden=_8_,seed=1-"
    )  # not all as written
    assert read_grid("tiny", ["seed=1..1"]).points[0].config.seed == 1


def test_a_kind_may_vary_and_takes_its_keys_with_it() -> None:
    grid = read_grid("tiny", ["method.kind=draco,local,fedavg", "topology.kind=cycle,complete"])
    assert {(point.config.method.kind, point.config.topology.kind) for point in grid.points} == set(
        itertools.product(("draco", "local", "fedavg"), ("cycle", "complete"))
    )


def folder(grid: Grid) -> str:
    return grid.default_folder.as_posix()


def test_the_default_folder_is_of_the_grid_whatever_the_order() -> None:
    one = read_grid("tiny", ["method.psi=5,20", "seed=1..3", "users=4"])
    same = read_grid("tiny", ["users=4", "seed=3,1..2", "method.psi=20,5"])
    assert folder(one) == folder(same)
    assert folder(one).startswith("runs/sweep-tiny-")
    assert {one.run_folder(point) for point in one.points} == {same.run_folder(point) for point in same.points}
    others = [["method.psi=5,21", "seed=1..3", "users=4"], ["method.psi=5,20", "seed=1..3"], ["method.psi=5,20"]]
    assert len({folder(one), *(folder(read_grid("tiny", other)) for other in others)}) == 4
    assert folder(read_grid("poker", ["seed=1..3"])) != folder(read_grid("tiny", ["seed=1..3"]))


def test_long_values_make_short_names() -> None:
    rates = [f"[{', '.join(['0.25'] * 80)}]", f"[{', '.join(['0.5'] * 80)}]"]
    grid = read_grid("tiny", ["users=80", f"compute.rate={','.join(rates)}"])
    names = {grid.run_folder(point).name for point in grid.points}
    assert len(names) == 2
    assert all(len(name) < 200 for name in names)


# What is wrong is said at once, with the key


def test_everything_wrong_with_the_runs_is_said_once() -> None:
    assert problems("users=3,1", "method.psi=0,5", "seed=1..50") == (
        "method.psi = 0: must be at least 1; meaning: messages a user accepts in a period (Psi); none: no limit "
        "[messages]",
        "users = 1: must be at least 2; meaning: number of users (N) [users]",
    )
    assert problems("method.pssi=1,2") == ("unknown key method.pssi; did you mean method.psi?",)
    assert problems("method.kind=draco,local", "method.psi=1,2") == (
        'method.psi belongs to method.kind = "draco", not to "local"',
    )
    assert problems("users=2..3", "compute.rate=[0.1,0.2]") == (
        "compute.rate lists 2 rates for 3 users; give one for all or one each",
    )


def test_what_is_wrong_with_the_way_it_is_written_is_said_of_all_arguments() -> None:
    assert problems("users=3", "users=4,5", "seed=5..1", "psi") == (
        "users is given twice; give all its values at once: users=a,b,c",
        "seed: the range 5..1 is empty; write the smaller number first",
        '"psi" must look like key=value, key=a,b,c or key=1..5, as in method.psi=5,20',
    )


def test_a_value_twice() -> None:
    assert problems("method.psi=5,5", "seed=1..2") == ("method.psi: 5 and 5 are the same value, for the same run",)
    assert problems("train.step=0.1,0.5,0.10") == ("train.step: 0.1 and 0.10 are the same value, for the same run",)


def test_nothing_that_varies() -> None:
    for arguments in ([], ["users=4"], ["model.hidden=[8,8]"]):
        assert problems(*arguments)[0].startswith("nothing varies: give a key several values")


def test_too_many_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    assert problems("seed=1..101", "users=2..101") == (
        "the grid has 10,100 runs (seed: 101, users: 100); at most 10,000",
    )
    monkeypatch.setattr(sweep, "MOST_RUNS", 12)
    assert len(read_grid("tiny", ["seed=1..3", "users=2..5"]).points) == 12
    assert len(problems("seed=1..13")) == 1


def test_many_problems_are_not_all_told() -> None:
    said = problems("data.samples_per_user=1..31")
    assert len(said) == 13
    assert said[-1] == "and 19 more of the kind"


def test_a_source_that_is_none() -> None:
    assert '"method.psi=1,2" is neither a preset' in problems("seed=1..2", source="method.psi=1,2")[0]
