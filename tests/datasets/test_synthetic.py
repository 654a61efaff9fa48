"""The constants said to be known are right: each is checked against the definition."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dracofl.datasets.samples import Samples
from dracofl.datasets.synthetic import (
    Quadratic,
    encode,
    generate_logistic,
    logistic_constants,
    logistic_weights,
)


@st.composite
def quadratics(draw: st.DrawFn) -> Quadratic:
    strong_convexity = draw(st.floats(0.01, 1.0))
    return Quadratic.generate(
        seed=draw(st.integers(0, 1_000)),
        users=draw(st.integers(1, 6)),
        dimension=draw(st.integers(2, 8)),
        strong_convexity=strong_convexity,
        smoothness=strong_convexity * draw(st.floats(1.0, 100.0)),
        heterogeneity=draw(st.floats(0.0, 5.0)),
    )


def slow_objective(problem: Quadratic, x: np.ndarray) -> float:
    """The mean of the users' objectives as they are defined, with the whole matrix A."""
    matrix = np.diag(problem.curvatures)
    return float(np.mean([0.5 * (x - b) @ matrix @ (x - b) for b in problem.optima]))


# --- the quadratic


@settings(deadline=None)
@given(quadratics(), st.integers(0, 100))
def test_objective_gradient_and_divergence_match_their_definitions(problem: Quadratic, seed: int) -> None:
    x = np.random.default_rng(seed).normal(size=problem.dimension)
    assert problem.objective(x) == pytest.approx(slow_objective(problem, x))
    gradients = np.array([problem.gradient(user, x) for user in range(problem.users)])
    for axis, step in enumerate(1e-3 * np.eye(problem.dimension)):
        slope = (slow_objective(problem, x + step) - slow_objective(problem, x - step)) / 2e-3
        assert gradients.mean(axis=0)[axis] == pytest.approx(slope, rel=1e-6, abs=1e-7)
    divergence = ((gradients - gradients.mean(axis=0)) ** 2).sum(axis=1).max()
    assert problem.gradient_divergence == pytest.approx(divergence, rel=1e-9, abs=1e-12)


@settings(deadline=None)
@given(quadratics(), st.integers(0, 100))
def test_no_point_is_better_than_the_optimum_and_the_curvature_bounds_hold(problem: Quadratic, seed: int) -> None:
    x = problem.optimum + np.random.default_rng(seed).normal(size=problem.dimension)
    assert problem.objective(problem.optimum) == problem.minimum
    assert problem.minimum == pytest.approx(slow_objective(problem, problem.optimum))
    gap = float(problem.objective(x)) - problem.minimum
    distance = float(((x - problem.optimum) ** 2).sum())
    slack = 1e-9 * (1.0 + problem.minimum)
    assert 0.5 * problem.strong_convexity * distance <= gap + slack
    assert gap <= 0.5 * problem.smoothness * distance + slack


def test_many_models_are_evaluated_at_once_in_double_precision() -> None:
    problem = Quadratic.generate(1, 4, 5, 0.5, 8.0, 1.0)
    models = np.random.default_rng(0).normal(size=(3, 7, 5)).astype(np.float32)
    values = problem.objective(models)
    assert values.shape == (3, 7)
    assert values.dtype == np.float64
    assert values[2, 3] == pytest.approx(slow_objective(problem, models[2, 3].astype(np.float64)), rel=1e-12)
    assert problem.gradient(0, models).shape == (3, 7, 5)
    assert problem.gradient(0, models).dtype == np.float64


@pytest.mark.parametrize(("low", "high"), [(0.1, 10.0), (1 / 3, 77.7), (2.0, 2.0)])
def test_curvatures_run_geometrically_between_exact_ends(low: float, high: float) -> None:
    problem = Quadratic.generate(0, 1, 9, low, high, 0.0)
    assert (problem.strong_convexity, problem.smoothness) == (low, high)
    assert (problem.curvatures[0], problem.curvatures[-1]) == (low, high)
    ratios = problem.curvatures[1:] / problem.curvatures[:-1]
    np.testing.assert_allclose(ratios, (high / low) ** (1 / 8))


@pytest.mark.parametrize("dimension", range(2, 12))
def test_rounding_puts_no_curvature_outside_of_the_range(dimension: int) -> None:
    low = 5.003959178739594  # NumPy's geomspace(low, low, 6) is not constant
    problem = Quadratic.generate(0, 1, dimension, low, low, 0.0)
    assert (problem.strong_convexity, problem.smoothness) == (low, low)


def test_adding_users_moves_nobodys_optimum() -> None:
    few, many = (Quadratic.generate(3, users, 4, 1.0, 2.0, 1.0) for users in (5, 50))
    np.testing.assert_array_equal(few.optima, many.optima[:5])
    assert len(np.unique(many.optima[:, 0])) == 50


def test_heterogeneity_scales_the_optima_and_without_it_there_is_one_for_all() -> None:
    one, three = (Quadratic.generate(3, 2_000, 4, 1.0, 2.0, scale) for scale in (1.0, 3.0))
    np.testing.assert_array_equal(3.0 * one.optima, three.optima)
    assert one.optima.std() == pytest.approx(1.0, abs=0.05)
    alike = Quadratic.generate(3, 5, 4, 1.0, 2.0, 0.0)
    assert alike.minimum == 0.0
    assert alike.gradient_divergence == 0.0


def test_one_dimension_has_one_curvature() -> None:
    assert Quadratic.generate(0, 2, 1, 3.0, 3.0, 1.0).curvatures.tolist() == [3.0]
    with pytest.raises(ValueError, match="one dimension has one curvature"):
        Quadratic.generate(0, 2, 1, 1.0, 3.0, 1.0)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"strong_convexity": 0.0}, "0 < strong_convexity <= smoothness"),
        ({"strong_convexity": 3.0}, "strong_convexity is 3.0 and smoothness 2.0"),
        ({"smoothness": float("inf")}, "0 < strong_convexity <= smoothness"),
        ({"heterogeneity": -1.0}, "heterogeneity is -1.0; it must be 0 or more"),
        ({"users": 0}, "users and dimension must be 1 or more"),
        ({"dimension": 0}, "users and dimension must be 1 or more"),
    ],
)
def test_impossible_quadratics_are_rejected(changes: dict[str, Any], message: str) -> None:
    arguments = {"users": 2, "dimension": 3, "strong_convexity": 1.0, "smoothness": 2.0, "heterogeneity": 1.0}
    with pytest.raises(ValueError, match=message):
        Quadratic.generate(seed=0, **{**arguments, **changes})


@pytest.mark.parametrize(
    ("curvatures", "optima", "message"),
    [
        (np.ones(3), np.ones((2, 4)), "they must be"),
        (np.ones((3, 3)), np.ones((2, 3)), "they must be"),
        (np.array([1.0, 0.0]), np.ones((2, 2)), "all must be positive"),
        (np.array([1.0, np.nan]), np.ones((2, 2)), "all must be positive"),
    ],
)
def test_a_quadratic_of_parts_that_do_not_fit_is_rejected(curvatures: Any, optima: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Quadratic(curvatures, optima)


# --- the logistic data


def test_logistic_data_has_the_sizes_asked_for() -> None:
    data = generate_logistic(0, 6, 0.5, 30, 20, 10)
    assert (len(data.train), len(data.test), len(data.validation)) == (30, 20, 10)
    assert (data.classes, data.features) == (2, 6)
    assert data.train.inputs.dtype == np.float32
    np.testing.assert_array_equal(data.encode(data.train.inputs), data.train.inputs)


def test_more_samples_leave_the_others_and_the_first_ones_as_they_were() -> None:
    few, many = generate_logistic(0, 6, 0.5, 30, 20, 10), generate_logistic(0, 6, 0.5, 3_000, 20, 10)
    np.testing.assert_array_equal(few.train.inputs, many.train.inputs[:30])
    np.testing.assert_array_equal(few.train.labels, many.train.labels[:30])
    np.testing.assert_array_equal(few.test.inputs, many.test.inputs)
    np.testing.assert_array_equal(few.test.labels, many.test.labels)


@pytest.mark.parametrize("noise", [1e-4, 0.5, 2.0])
def test_the_true_weights_are_as_accurate_as_the_noise_allows(noise: float) -> None:
    train = generate_logistic(4, 8, noise, 40_000, 1, 1).train
    weights = logistic_weights(4, 8)
    assert np.linalg.norm(weights) == pytest.approx(1.0)
    accuracy = np.mean((train.inputs @ weights > 0) == (train.labels == 1))
    z = np.random.default_rng(0).normal(size=1_000_000)
    assert accuracy == pytest.approx(np.mean(0.5 * (1 + np.tanh(np.abs(z) / noise / 2))), abs=0.01)


@pytest.mark.parametrize("dimension", [1, 8])
def test_a_label_is_as_likely_as_the_margin_says(dimension: int) -> None:
    train = generate_logistic(4, dimension, 0.5, 40_000, 1, 1).train
    margins = train.inputs @ logistic_weights(4, dimension) / 0.5
    chances = 1 / (1 + np.exp(-margins))
    for low in np.arange(0.0, 1.0, 0.1):
        chosen = (chances >= low) & (chances < low + 0.1)
        error = train.labels[chosen].mean() - chances[chosen].mean()
        assert abs(error) < 4 * np.sqrt(0.25 / chosen.sum())


@pytest.mark.parametrize(("dimension", "noise"), [(0, 1.0), (3, 0.0), (3, -1.0), (3, float("nan"))])
def test_impossible_logistic_data_is_rejected(dimension: int, noise: float) -> None:
    with pytest.raises(ValueError, match="it must be"):
        generate_logistic(0, dimension, noise, 10)


def test_rows_are_encoded_alike_by_jax_and_numpy() -> None:
    rows = np.arange(6, dtype=np.uint8).reshape(2, 3)
    features = jax.jit(encode)(jnp.asarray(rows))
    assert features.dtype == jnp.float32
    np.testing.assert_array_equal(np.asarray(features), encode(rows))


# --- its constants


def gradient(weights: np.ndarray, train: Samples, l2: float) -> np.ndarray:
    """Of the mean cross-entropy of softmax regression + l2/2 ||W||^2 at W of shape (features + 1, 2)."""
    rows = np.column_stack([train.inputs.astype(np.float64), np.ones(len(train))])
    scores = rows @ weights
    chances = np.exp(scores - scores.max(axis=1, keepdims=True))
    chances /= chances.sum(axis=1, keepdims=True)
    errors = chances - np.eye(2)[train.labels]
    return np.asarray(rows.T @ errors / len(train) + l2 * weights)


def hessian(weights: np.ndarray, train: Samples, l2: float) -> np.ndarray:
    """By central differences of the gradient, one parameter at a time."""
    columns = []
    for step in 1e-5 * np.eye(weights.size):
        ahead = gradient(weights + step.reshape(weights.shape), train, l2)
        behind = gradient(weights - step.reshape(weights.shape), train, l2)
        columns.append((ahead - behind).ravel() / 2e-5)
    return np.array(columns)


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 1_000), st.integers(1, 5), st.floats(0.0, 1.0), st.floats(0.0, 3.0))
def test_no_curvature_anywhere_leaves_the_bounds(seed: int, dimension: int, l2: float, scale: float) -> None:
    train = generate_logistic(seed, dimension, 0.5, 40, 1, 1).train
    constants = logistic_constants(train, l2)
    weights = scale * np.random.default_rng(seed).normal(size=(dimension + 1, 2))
    curvatures = np.linalg.eigvalsh(hessian(weights, train, l2))
    assert curvatures[-1] <= constants.smoothness + 1e-7
    assert curvatures[0] >= constants.strong_convexity - 1e-7


@pytest.mark.parametrize("l2", [0.0, 0.1])
def test_the_bounds_are_reached_at_zero(l2: float) -> None:
    train = generate_logistic(1, 4, 0.5, 60, 1, 1).train
    constants = logistic_constants(train, l2)
    curvatures = np.linalg.eigvalsh(hessian(np.zeros((5, 2)), train, l2))
    assert curvatures[-1] == pytest.approx(constants.smoothness, rel=1e-7)
    assert curvatures[0] == pytest.approx(constants.strong_convexity, abs=1e-7)
    assert constants.strong_convexity == l2


@pytest.mark.parametrize(("shape", "l2"), [((3, 2), -0.1), ((0, 2), 0.1), ((3, 2, 2), 0.1), ((3, 2), float("inf"))])
def test_constants_of_nothing_sensible_are_refused(shape: tuple[int, ...], l2: float) -> None:
    with pytest.raises(ValueError, match="it must be"):
        logistic_constants(Samples(np.ones(shape, np.float32), np.zeros(shape[0], np.int32)), l2)
