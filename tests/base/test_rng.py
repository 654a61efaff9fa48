"""A draw is a function of (seed, purpose, who, index): each of them matters, and nothing else does."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from dracofl import rng

SEEDS = [0, 1, 2024, 2**63 + 5]
DRAWS = 20_000
PURPOSES = ["position", "compute", "fading-update", "fading-model", "delay-update", "hub", "a", "b", ""]

every_seed = pytest.mark.parametrize("seed", SEEDS)
any_seed = st.integers(0, 2**64 - 1)
any_purpose = st.text(max_size=12)
any_user = st.integers(0, 2**63 - 1)


def correlation(a: np.ndarray, b: np.ndarray) -> float:
    """In standard errors of what independence gives."""
    return float(abs(np.corrcoef(a, b)[0, 1]) * math.sqrt(len(a)))


def draws(key: int, count: int = DRAWS) -> np.ndarray:
    return np.array([rng.uniform(key, index) for index in range(count)])


def is_plausible(sample: Sequence[float] | np.ndarray, law: str | Callable[..., object]) -> bool:
    """By Kolmogorov and Smirnov. The seeds are fixed, so the answer is always the same."""
    return bool(stats.kstest(sample, law).pvalue > 1e-3)


def are_unrelated(a: np.ndarray, b: np.ndarray) -> bool:
    """Uncorrelated, and neither is the other one shifted: they have no draw in common."""
    return correlation(a, b) < 4.0 and not np.isin(a, b).any()


# What a draw depends on


@given(any_seed, any_purpose, st.lists(any_user, max_size=3), st.integers(0, 2**40))
@settings(deadline=None)
def test_the_same_name_is_the_same_draw(seed: int, purpose: str, who: list[int], index: int) -> None:
    first = rng.uniform(rng.stream(seed, purpose, *who), index)
    assert rng.uniform(rng.stream(seed, purpose, *who), index) == first


def test_draws_may_be_taken_in_any_order() -> None:
    key = rng.stream(3, "compute", 1)
    forward = [rng.uniform(key, index) for index in range(100)]
    backward = [rng.uniform(key, index) for index in reversed(range(100))]
    assert backward[::-1] == forward


def test_no_two_names_share_a_stream() -> None:
    """Every mixture of a few seeds, purposes, users and links, and near misses of each other among them."""
    seeds = [0, 1, 2, 2**32, 2**63]
    whos = [(), (0,), (1,), (97,), (98,), (0, 0), (0, 1), (1, 0), (1, 1), (97, 98), (0, 0, 0), (0, 1, 0)]
    purposes = [*PURPOSES, "ab", "ba", "aa"]
    names = list(itertools.product(seeds, purposes, whos))
    keys = {rng.stream(seed, purpose, *who) for seed, purpose, who in names}
    assert len(keys) == len(names)


@pytest.mark.parametrize(
    ("seed", "purpose", "who", "index"),
    [
        (8, "fading-update", (3, 4), 5),
        (7, "fading-model", (3, 4), 5),
        (7, "fading-update", (4, 3), 5),
        (7, "fading-update", (3, 5), 5),
        (7, "fading-update", (2, 4), 5),
        (7, "fading-update", (3,), 5),
        (7, "fading-update", (3, 4, 0), 5),
        (7, "fading-update", (3, 4), 6),
    ],
)
def test_each_part_of_the_name_matters(seed: int, purpose: str, who: tuple[int, ...], index: int) -> None:
    here = rng.stream(7, "fading-update", 3, 4)
    there = rng.stream(seed, purpose, *who)
    assert rng.uniform(there, index) != rng.uniform(here, 5)
    assert rng.exponential(there, index) != rng.exponential(here, 5)


def test_all_bits_of_a_seed_matter() -> None:
    keys = {rng.stream(1 << bit, "compute", 0) for bit in range(64)}
    assert len(keys) == 64


def test_all_bits_of_a_user_matter() -> None:
    keys = {rng.stream(1, "compute", 1 << bit) for bit in range(64)}
    assert len(keys) == 64


def test_the_parts_of_a_stream_have_streams_of_their_own() -> None:
    keys = [rng.stream(1, "fading-update", 0, receiver) for receiver in range(50)]
    parts = {rng.substream(key, user) for key in keys for user in range(50)}
    assert len(parts) == 2500
    assert parts.isdisjoint(keys)


def test_it_is_splitmix64() -> None:
    """The first outputs for seed 1234567, as published with the reference implementation."""
    published = [6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431]
    assert [rng.uniform(1234567, index) for index in range(4)] == [(word >> 11) * 2.0**-53 for word in published]


# How draws are distributed


@every_seed
def test_uniform_draws_are_uniform_along_a_stream(seed: int) -> None:
    sample = draws(rng.stream(seed, "compute", 0))
    assert sample.min() >= 0.0
    assert sample.max() < 1.0
    assert is_plausible(sample, "uniform")


@every_seed
@pytest.mark.parametrize("index", [0, 1, 1000])
def test_uniform_draws_are_uniform_across_users(seed: int, index: int) -> None:
    sample = [rng.uniform(rng.stream(seed, "compute", user), index) for user in range(5000)]
    assert is_plausible(sample, "uniform")


@pytest.mark.parametrize("index", [0, 7])
def test_uniform_draws_are_uniform_across_links(index: int) -> None:
    pairs = itertools.product(range(70), repeat=2)
    assert is_plausible([rng.uniform(rng.stream(1, "fading-update", *pair), index) for pair in pairs], "uniform")


def test_uniform_draws_are_uniform_across_seeds() -> None:
    assert is_plausible([rng.uniform(rng.stream(seed, "compute", 0), 0) for seed in range(5000)], "uniform")


def test_every_bit_of_a_draw_is_fair() -> None:
    sample = np.array([int(rng.uniform(rng.stream(5, "compute", 0), index) * 2**53) for index in range(DRAWS)])
    ones = np.array([((sample >> bit) & 1).mean() for bit in range(53)])
    assert np.abs(ones - 0.5).max() < 4.0 * 0.5 / math.sqrt(DRAWS)


@every_seed
def test_exponential_draws_are_exponential(seed: int) -> None:
    key = rng.stream(seed, "compute", 0)
    sample = np.array([rng.exponential(key, index) for index in range(DRAWS)])
    assert (sample >= 0.0).all()
    assert is_plausible(sample, "expon")
    assert abs(sample.mean() - 1.0) < 4.0 / math.sqrt(DRAWS)
    # The fourth central moment of Exp(1) is 9, so the variance of the sample variance is (9 - 1) / n.
    assert abs(sample.var() - 1.0) < 4.0 * math.sqrt(8.0 / DRAWS)


@given(any_seed, st.integers(0, 2**50))
@settings(deadline=None)
def test_an_exponential_draw_is_the_uniform_one_inverted(key: int, index: int) -> None:
    assert rng.exponential(key, index) == -math.log1p(-rng.uniform(key, index))


def test_the_smallest_draw_is_zero_and_that_is_no_trouble() -> None:
    golden_ratio = 0x9E3779B97F4A7C15
    assert rng.uniform(2**64 - golden_ratio, 0) == 0.0
    assert rng.exponential(2**64 - golden_ratio, 0) == 0.0


# Independence


@every_seed
@pytest.mark.parametrize("lag", [1, 2, 3, 10])
def test_neighbouring_draws_are_unrelated(seed: int, lag: int) -> None:
    sample = draws(rng.stream(seed, "compute", 0))
    assert correlation(sample[:-lag], sample[lag:]) < 4.0


def test_pairs_of_neighbouring_draws_fill_the_square() -> None:
    sample = draws(rng.stream(1, "compute", 0))
    counts, _, _ = np.histogram2d(sample[::2], sample[1::2], bins=10, range=[[0, 1], [0, 1]])
    assert stats.chisquare(counts.ravel()).pvalue > 1e-3


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ((0, "compute", 3), (1, "compute", 3)),
        ((0, "compute", 3), (0, "compute", 4)),
        ((0, "compute", 3), (0, "transmit", 3)),
        ((0, "fading-update", 3, 4), (0, "fading-update", 4, 3)),
        ((0, "fading-update", 3, 4), (0, "fading-update", 3, 5)),
        ((0, "fading-update", 3, 4), (0, "fading-model", 3, 4)),
        ((0, "compute", 3), (0, "compute", 3, 0)),
    ],
    ids=str,
)
def test_streams_that_differ_a_little_are_unrelated(one: tuple[int, ...], other: tuple[int, ...]) -> None:
    assert are_unrelated(draws(rng.stream(*one)), draws(rng.stream(*other)))


def test_a_stream_is_unrelated_to_its_parts() -> None:
    key = rng.stream(0, "fading-update", 3, 4)
    whole, *parts = draws(key), draws(rng.substream(key, 0)), draws(rng.substream(key, 1))
    assert are_unrelated(parts[0], parts[1])
    assert all(are_unrelated(whole, part) for part in parts)


@pytest.mark.parametrize("index", [0, 3])
def test_neighbouring_users_are_unrelated(index: int) -> None:
    sample = np.array([rng.uniform(rng.stream(0, "compute", user), index) for user in range(DRAWS)])
    assert correlation(sample[:-1], sample[1:]) < 4.0


def test_neighbouring_seeds_are_unrelated() -> None:
    sample = np.array([rng.uniform(rng.stream(seed, "compute", 0), 0) for seed in range(DRAWS)])
    assert correlation(sample[:-1], sample[1:]) < 4.0


# Exponential gaps make a Poisson process


def counts_in_windows(key: int, rate: float, window_s: float, windows: int) -> np.ndarray:
    counts = np.zeros(windows, dtype=int)
    index, time_s = 0, rng.exponential(key, 0) / rate
    while time_s < windows * window_s:
        counts[int(time_s / window_s)] += 1
        index += 1
        time_s += rng.exponential(key, index) / rate
    return counts


@pytest.mark.parametrize(("rate", "window_s"), [(0.1, 10.0), (0.1, 50.0), (2.0, 0.25), (0.5, 20.0)])
def test_points_with_exponential_gaps_are_poisson_in_every_window(rate: float, window_s: float) -> None:
    windows, mean = 4000, rate * window_s
    counts = counts_in_windows(rng.stream(9, "compute", 2), rate, window_s, windows)
    assert abs(counts.mean() - mean) < 4.0 * math.sqrt(mean / windows)
    # The variance of the sample variance of a Poisson law is (m + 2 m^2) / n.
    assert abs(counts.var() - mean) < 4.0 * math.sqrt((mean + 2.0 * mean**2) / windows)
    assert histogram_is_poisson(counts, mean)


def test_counts_of_different_users_in_one_window_are_poisson() -> None:
    counts = np.array([counts_in_windows(rng.stream(9, "compute", user), 0.1, 30.0, 1)[0] for user in range(4000)])
    assert abs(counts.mean() - 3.0) < 4.0 * math.sqrt(3.0 / 4000)
    assert histogram_is_poisson(counts, 3.0)


def histogram_is_poisson(counts: np.ndarray, mean: float) -> bool:
    """By chi-square, the two tails joined into the first and the last class that expect at least 10."""
    values = np.arange(counts.max() + 50)
    usual = values[len(counts) * stats.poisson.pmf(values, mean) >= 10.0]
    low, high = usual[0], usual[-1]
    inner = np.arange(low + 1, high)
    shares = [stats.poisson.cdf(low, mean), *stats.poisson.pmf(inner, mean), stats.poisson.sf(high - 1, mean)]
    seen = np.bincount(np.clip(counts, low, high) - low, minlength=high - low + 1)
    return bool(stats.chisquare(seen, np.array(shares) * len(counts)).pvalue > 1e-3)


# The array twin


@given(
    any_seed,
    any_purpose,
    any_user,
    st.lists(any_user, max_size=20),
)
@settings(deadline=None)
def test_the_array_twin_agrees_bit_for_bit(seed: int, purpose: str, who: int, others: list[int]) -> None:
    one_by_one = [rng.uniform(rng.stream(seed, purpose, who, other), 0) for other in others]
    at_once = rng.uniforms(seed, purpose, who, np.array(others, dtype=np.int64))
    assert at_once.dtype == np.float64
    assert at_once.tolist() == one_by_one


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.uint32, np.uint64])
def test_the_array_twin_takes_any_integers(dtype: type) -> None:
    one_by_one = [rng.uniform(rng.stream(4, "edge", 2, other), 0) for other in range(30)]
    assert rng.uniforms(4, "edge", 2, np.arange(30, dtype=dtype)).tolist() == one_by_one


# Generators for bulk draws


def mix(z: int) -> int:
    """The SplitMix64 finaliser, written out again."""
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB % 2**64
    return z ^ (z >> 31)


def key_of(generator: np.random.Generator) -> tuple[int, int]:
    first, second = generator.bit_generator.state["state"]["key"]
    return int(first), int(second)


def key_for(first: int) -> tuple[int, int]:
    return first, mix(first ^ 0x9E3779B97F4A7C15)


@pytest.mark.parametrize("first_is_large", [True, False])
@pytest.mark.parametrize("second_is_large", [True, False])
def test_a_generator_has_its_key_to_the_last_bit(first_is_large: bool, second_is_large: bool) -> None:
    """NumPy rounds a list with integers on both sides of 2**63 to floats, and with it the low bits of the key."""
    tried = 0
    for user in range(200):
        exact = key_for(rng.stream(3, "batches", user))
        if [half >= 2**63 for half in exact] == [first_is_large, second_is_large]:
            assert key_of(rng.generator(3, "batches", user)) == exact
            tried += 1
    assert tried >= 20


def test_the_low_bits_of_a_key_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    start = next(key for key in range(2**62 + 12345, 2**63) if key_for(key)[1] >= 2**63)
    seen = {}
    for key in [start, start ^ 1, start ^ 2, start ^ 512]:
        monkeypatch.setattr(rng, "stream", lambda *_, key=key: key)
        generator = rng.generator(0, "batches", 0)
        assert key_of(generator) == key_for(key)
        seen[key] = tuple(generator.random(4))
    assert len(set(seen.values())) == len(seen)


def test_a_generator_is_the_same_whenever_it_is_made() -> None:
    first = rng.generator(3, "batches", 1, 2).random(100)
    rng.generator(3, "batches", 1, 2).random(7)
    assert (rng.generator(3, "batches", 1, 2).random(100) == first).all()


def test_different_names_give_different_generators() -> None:
    names = [
        (3, "batches", 1, 2),
        (4, "batches", 1, 2),
        (3, "partition", 1, 2),
        (3, "batches", 2, 1),
        (3, "batches", 1, 3),
        (3, "batches", 2, 2),
        (3, "batches", 1),
        (3, "batches"),
    ]
    samples = [rng.generator(*name).random(2000) for name in names]
    for one, other in itertools.combinations(samples, 2):
        assert are_unrelated(one, other)


def test_shuffles_are_those_of_a_new_generator_each_time() -> None:
    shuffles, values = rng.Shuffles(), np.arange(37)
    for user in range(3):
        shuffled = shuffles.permutations(values, range(4, 7), 5, "batches", user)
        fresh = [rng.generator(5, "batches", user, epoch).permutation(values) for epoch in range(4, 7)]
        assert shuffled.tolist() == np.array(fresh).tolist()


@given(seed=st.integers(0, 2**63), who=st.integers(0, 10**6), others=st.lists(st.integers(0, 10**6)))
def test_streams_of_many_links_are_those_of_each(seed: int, who: int, others: list[int]) -> None:
    assert rng.streams(seed, "fading", who, others) == [rng.stream(seed, "fading", who, other) for other in others]
