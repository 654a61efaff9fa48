"""Every scheme gives each user rows of its own, as many as said, the same ones every time."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dracofl.datasets import partition
from dracofl.errors import DataError

# A new scheme adds a row.
SCHEMES: dict[str, dict[str, Any]] = {
    "iid": {"scheme": "iid"},
    "dirichlet, few classes": {"scheme": "dirichlet", "alpha": 0.05},
    "dirichlet, one class": {"scheme": "dirichlet", "alpha": 1e-9},
    "dirichlet, even": {"scheme": "dirichlet", "alpha": 1e12},
    "one shard": {"scheme": "shards", "shards_per_user": 1},
    "shards": {"scheme": "shards", "shards_per_user": 3},
    "quantity": {"scheme": "quantity", "alpha": 0.5},
    "quantity, one has all": {"scheme": "quantity", "alpha": 1e-9, "minimum": 2},
    "quantity, even": {"scheme": "quantity", "alpha": 1e12, "minimum": 3},
}
EQUAL_SIZES = [name for name, options in SCHEMES.items() if options["scheme"] != "quantity"]

every_scheme = pytest.mark.parametrize("name", SCHEMES)


@dataclasses.dataclass(frozen=True)
class Case:
    labels: np.ndarray
    users: int
    samples_per_user: int
    seed: int


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Any training set that is large enough, often just so; classes may be missing or rare."""
    users, samples_per_user = draw(st.integers(1, 8)), draw(st.integers(3, 25))
    rows = users * samples_per_user + draw(st.sampled_from([0, 1, 50]))
    weights = draw(st.lists(st.integers(0, 20), min_size=1, max_size=6).filter(any))
    shares = np.array(weights) / sum(weights)
    labels = np.random.default_rng(draw(st.integers(0, 1_000))).choice(len(weights), rows, p=shares)
    return Case(labels.astype(np.int32), users, samples_per_user, draw(st.integers(0, 2**40)))


def split(case: Case, name: str) -> tuple[np.ndarray, ...]:
    return partition.partition(case.labels, case.users, case.samples_per_user, seed=case.seed, **SCHEMES[name])


def balanced(classes: int, each: int) -> np.ndarray:
    return np.repeat(np.arange(classes, dtype=np.int32), each)


def shares(labels: np.ndarray, rows: np.ndarray, classes: int) -> np.ndarray:
    return np.bincount(labels[rows], minlength=classes) / len(rows)


# --- what holds for all


@every_scheme
@settings(deadline=None, max_examples=60)
@given(case=cases())
def test_rows_exist_belong_to_one_user_and_are_as_many_as_asked_for(case: Case, name: str) -> None:
    result = split(case, name)
    assert len(result) == case.users
    assert all(rows.dtype == np.int32 and rows.ndim == 1 for rows in result)
    everything = np.concatenate(result)
    assert len(everything) == case.users * case.samples_per_user
    assert len(np.unique(everything)) == len(everything)
    assert everything.min() >= 0
    assert everything.max() < len(case.labels)
    if name in EQUAL_SIZES:
        assert {len(rows) for rows in result} == {case.samples_per_user}
    assert min(len(rows) for rows in result) >= SCHEMES[name].get("minimum", 1)


@every_scheme
@settings(deadline=None, max_examples=15)
@given(case=cases())
def test_the_same_arguments_give_the_same_rows(case: Case, name: str) -> None:
    for one, other in zip(split(case, name), split(case, name), strict=True):
        np.testing.assert_array_equal(one, other)


@every_scheme
def test_another_seed_gives_other_rows(name: str) -> None:
    one, other = (split(Case(balanced(5, 100), 10, 30, seed), name) for seed in (1, 2))
    assert {tuple(rows) for rows in one} != {tuple(rows) for rows in other}


@every_scheme
def test_a_users_rows_are_in_no_order(name: str) -> None:
    labels = balanced(5, 100)
    largest = max(split(Case(labels, 4, 100, 3), name), key=len)
    assert (np.diff(largest) < 0).mean() == pytest.approx(0.5, abs=0.2)
    of_one_class = len(np.unique(labels[largest])) == 1
    assert of_one_class or (np.diff(labels[largest]) < 0).any()


@every_scheme
def test_too_few_rows_are_explained(name: str) -> None:
    case = Case(np.zeros(25_010, np.int32), 25, 1_100, 0)
    with pytest.raises(DataError) as caught:
        split(case, name)
    assert str(caught.value) == (
        "asked for 25 x 1,100 = 27,500 training samples, but the training set has 25,010; "
        "lower data.samples_per_user or users"
    )


@every_scheme
@pytest.mark.parametrize(("users", "samples_per_user"), [(0, 5), (-1, 5), (5, 0)])
def test_nobody_and_nothing_are_rejected(name: str, users: int, samples_per_user: int) -> None:
    with pytest.raises(ValueError, match="must be 1"):
        split(Case(balanced(2, 10), users, samples_per_user, 0), name)


@every_scheme
def test_labels_must_be_a_plain_row(name: str) -> None:
    with pytest.raises(ValueError, match=r"labels have shape \(10, 2\)"):
        split(Case(np.zeros((10, 2), np.int32), 2, 4, 0), name)


def test_an_unknown_scheme_is_rejected() -> None:
    with pytest.raises(ValueError, match="scheme is 'fair'; it must be iid, dirichlet, shards or quantity"):
        partition.partition(balanced(2, 10), 2, 4, scheme="fair", seed=0)  # type: ignore[arg-type]


@pytest.mark.parametrize("scheme", ["dirichlet", "quantity"])
@pytest.mark.parametrize("alpha", [0.0, -1.0, float("nan"), float("inf")])
def test_alpha_must_be_positive_and_not_huge(scheme: partition.Scheme, alpha: float) -> None:
    with pytest.raises(ValueError, match=f"alpha is {alpha}; it must be positive and at most 1e"):
        partition.partition(balanced(2, 10), 2, 4, scheme=scheme, seed=0, alpha=alpha)


@pytest.mark.parametrize("name", ["iid", "dirichlet, few classes"])
def test_adding_users_takes_nothing_from_those_there(name: str) -> None:
    few, many = (split(Case(balanced(5, 200), users, 40, 9), name) for users in (6, 25))
    for one, other in zip(few, many[:6], strict=True):
        np.testing.assert_array_equal(one, other)


# --- iid


def test_iid_users_have_the_mix_of_the_whole() -> None:
    labels = np.repeat(np.arange(3, dtype=np.int32), [6_000, 3_000, 1_000])
    for rows in partition.iid(labels, 5, 2_000, seed=0):
        np.testing.assert_allclose(shares(labels, rows, 3), [0.6, 0.3, 0.1], atol=0.05)


# --- dirichlet


def test_the_smaller_alpha_the_fewer_classes_a_user_has() -> None:
    labels = balanced(10, 2_000)
    largest = [
        np.mean([shares(labels, rows, 10).max() for rows in partition.dirichlet(labels, 20, 200, seed=1, alpha=alpha)])
        for alpha in (0.01, 0.3, 10.0, 1e4)
    ]
    assert largest == sorted(largest, reverse=True)
    assert largest[0] > 0.9
    assert largest[-1] < 0.2


def test_large_alpha_is_nearly_uniform_over_the_classes() -> None:
    labels = balanced(10, 4_000)
    for rows in partition.dirichlet(labels, 10, 2_000, seed=1, alpha=1e6):
        np.testing.assert_allclose(shares(labels, rows, 10), 0.1, atol=0.035)


def test_shares_have_the_variance_of_the_dirichlet_distribution() -> None:
    classes, alpha = 5, 2.0
    labels = balanced(classes, 40_000)
    users = partition.dirichlet(labels, 400, 200, seed=1, alpha=alpha)
    observed = np.array([shares(labels, rows, classes) for rows in users])
    mean = 1 / classes
    variance = mean * (1 - mean) / (classes * alpha + 1)
    variance += (mean * (1 - mean) - variance) / 200  # two hundred draws a user on top
    np.testing.assert_allclose(observed.mean(axis=0), mean, atol=0.03)
    assert observed.var(axis=0).mean() == pytest.approx(variance, rel=0.1)


def test_classes_that_are_absent_are_not_counted() -> None:
    labels = np.repeat(np.array([2, 7], np.int32), 1_000)
    for rows in partition.dirichlet(labels, 2, 500, seed=1, alpha=1e6):
        np.testing.assert_allclose(shares(labels, rows, 8)[[2, 7]], 0.5, atol=0.1)


def test_large_alpha_gives_every_user_the_shares_of_the_training_set() -> None:
    labels = np.repeat(np.arange(3, dtype=np.int32), [2_000, 6_000, 12_000])
    for rows in partition.dirichlet(labels, 5, 2_000, seed=1, alpha=1e6):
        np.testing.assert_allclose(shares(labels, rows, 3), [0.1, 0.3, 0.6], atol=0.04)


def test_a_class_that_runs_out_is_made_up_for_by_the_others() -> None:
    labels = balanced(3, 1_000)
    (rows,) = partition.dirichlet(labels, 1, 2_500, seed=1, alpha=0.05)
    counts = np.bincount(labels[rows])
    assert counts.max() == 1_000
    assert counts.sum() == 2_500


# --- shards


@pytest.mark.parametrize("shards_per_user", [1, 2, 5])
def test_a_user_has_few_labels_when_it_has_few_shards(shards_per_user: int) -> None:
    labels = balanced(10, 100)
    for rows in partition.shards(labels, 10, 100, seed=2, shards_per_user=shards_per_user):
        assert len(np.unique(labels[rows])) <= shards_per_user


def test_a_shard_never_spans_more_labels_than_it_must() -> None:
    rng = np.random.default_rng(0)
    labels = rng.permutation(balanced(10, 100))
    for rows in partition.shards(labels, 9, 110, seed=2, shards_per_user=3):
        assert len(np.unique(labels[rows])) <= 6  # shards of 36 or 37 rows, classes of about 99


def test_more_shards_than_samples_are_rejected() -> None:
    with pytest.raises(ValueError, match="shards_per_user is 5; it must be 1 to samples_per_user = 4"):
        partition.shards(balanced(2, 10), 2, 4, seed=0, shards_per_user=5)


# --- quantity


def test_small_alpha_makes_sizes_unequal_and_large_alpha_equal() -> None:
    labels = balanced(2, 5_000)
    spread = [
        np.std([len(rows) for rows in partition.quantity(labels, 20, 500, seed=1, alpha=alpha, minimum=64)])
        for alpha in (0.1, 1.0, 10.0, 1e9)
    ]
    assert spread == sorted(spread, reverse=True)
    assert spread[0] > 300
    assert spread[-1] <= 1


def test_everybody_gets_at_least_one_batch() -> None:
    for seed in range(20):
        result = partition.quantity(balanced(2, 1_000), 20, 100, seed=seed, alpha=0.05, minimum=64)
        assert min(len(rows) for rows in result) >= 64
        assert sum(len(rows) for rows in result) == 2_000


def test_a_minimum_of_all_leaves_equal_sizes() -> None:
    result = partition.quantity(balanced(2, 100), 4, 50, seed=0, alpha=0.1, minimum=50)
    assert [len(rows) for rows in result] == [50] * 4


def test_a_minimum_that_cannot_be_kept_is_explained() -> None:
    with pytest.raises(DataError) as caught:
        partition.quantity(balanced(2, 1_000), 25, 50, seed=0, alpha=1.0, minimum=64)
    assert str(caught.value) == (
        "every user needs at least 64 samples (one batch), but 25 x 50 = 1,250 are too few for that; "
        "raise data.samples_per_user to 64 or more"
    )


def test_a_negative_minimum_is_rejected() -> None:
    with pytest.raises(ValueError, match="minimum is -1; it must be 0 or more"):
        partition.quantity(balanced(2, 10), 2, 4, seed=0, alpha=1.0, minimum=-1)
