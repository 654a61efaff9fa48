"""Local SGD in JAX against the same SGD written out in NumPy, and which samples it sees."""

from __future__ import annotations

import itertools
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from dracofl import rng
from dracofl.compute.batches import Batches
from dracofl.compute.classification import ClassificationProblem
from dracofl.compute.quadratic import QuadraticProblem
from dracofl.compute.scores import accuracy_and_f1
from dracofl.datasets import poker, synthetic
from dracofl.datasets.samples import Classification
from dracofl.models.mlp import Mlp

STEP, LOCAL_STEPS, BATCH = 0.5, 3, 16


def make_problem(data: Classification, model: Mlp, l2: float = 0.0) -> tuple[ClassificationProblem, Batches]:
    rows = [np.arange(0, 50), np.arange(50, 100)]
    batches = Batches(rows, BATCH, LOCAL_STEPS, "reshuffle", seed=1)
    problem = ClassificationProblem(
        data,
        model,
        batches,
        step=STEP,
        local_steps=LOCAL_STEPS,
        batch=BATCH,
        l2=l2,
        evaluation_samples=100,
        seed=1,
    )
    return problem, batches


def numpy_sgd(flat: np.ndarray, sizes: tuple[int, ...], x: np.ndarray, y: np.ndarray, l2: float) -> np.ndarray:
    """One step by hand: forward, softmax cross-entropy, backward, in float64."""
    layers, start = [], 0
    for inputs, outputs in itertools.pairwise(sizes):
        weights = flat[start : start + inputs * outputs].reshape(inputs, outputs)
        start += inputs * outputs
        layers.append((weights, flat[start : start + outputs]))
        start += outputs
    activations = [x]
    for index, (weights, bias) in enumerate(layers):
        z = activations[-1] @ weights + bias
        activations.append(np.maximum(z, 0) if index < len(layers) - 1 else z)
    logits = activations[-1] - activations[-1].max(axis=1, keepdims=True)
    probabilities = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    slope = (probabilities - np.eye(sizes[-1])[y]) / len(y)
    gradients = []
    for index in reversed(range(len(layers))):
        gradients.append((activations[index].T @ slope, slope.sum(axis=0)))
        if index:
            slope = (slope @ layers[index][0].T) * (activations[index] > 0)
    gradient = np.concatenate([part.ravel() for pair in reversed(gradients) for part in pair])
    return flat - STEP * (gradient + l2 * flat)


@pytest.mark.parametrize("hidden", [(), (7,), (9, 5)])
@pytest.mark.parametrize("l2", [0.0, 0.1])
def test_a_local_update_is_mini_batch_sgd(hidden: tuple[int, ...], l2: float) -> None:
    data = poker.generate(seed=4, train_count=100, test_count=100)
    model = Mlp((85, *hidden, 10))
    problem, batches = make_problem(data, model, l2)
    start = rng.generator(1, "some model").standard_normal(model.parameter_count).astype(np.float32) * 0.3
    point = start.astype(np.float64)
    for rows in batches.rows(1, 2):
        features = poker.encode(data.train.inputs[rows]).astype(np.float64)
        point = numpy_sgd(point, model.sizes, features, data.train.labels[rows], l2)
    delta = np.asarray(problem.local_update(start, 1, 2))
    assert delta.dtype == np.float32
    np.testing.assert_allclose(delta, point - start, atol=2e-6)


def test_the_papers_network_has_12910_parameters() -> None:
    assert Mlp((85, 75, 75, 10)).parameter_count == 12_910
    assert 4 * Mlp((85, 75, 75, 10)).parameter_count == 51_640


def test_a_model_survives_unflattening_and_flattening() -> None:
    model = Mlp((6, 5, 4, 3))
    flat = model.init(rng.generator(0, "init"))
    assert flat.shape == (model.parameter_count,)
    assert flat.dtype == np.float32
    assert np.asarray(model.flatten(model.unflatten(flat))).tobytes() == flat.tobytes()


def test_softmax_regression_starts_from_zero_and_an_mlp_does_not() -> None:
    assert not Mlp((85, 10)).init(rng.generator(0, "init")).any()
    weights, biases = Mlp((400, 300, 10)).unflatten(Mlp((400, 300, 10)).init(rng.generator(0, "init")))[0]
    assert weights.std() == pytest.approx(np.sqrt(2 / 400), rel=0.02)
    assert not biases.any()


def test_everybody_starts_from_the_same_seeded_model() -> None:
    data = poker.generate(seed=4, train_count=100, test_count=100)
    problem, _ = make_problem(data, Mlp((85, 7, 10)))
    assert problem.init().tobytes() == problem.init().tobytes()


def test_an_epoch_uses_every_sample_at_most_once_and_leaves_out_the_remainder() -> None:
    rows = np.arange(100, 150)
    batches = Batches([rows], batch=16, local_steps=3, order="reshuffle", seed=1)  # 3 whole batches, 2 samples over
    epochs = [batches.rows(0, number) for number in range(20)]
    for epoch in epochs:
        assert epoch.shape == (3, 16)
        assert max(Counter(epoch.ravel().tolist()).values()) == 1
        assert set(epoch.ravel()) <= set(rows)
    assert epochs[0].tolist() != epochs[1].tolist()
    assert set(np.concatenate(epochs).ravel()) == set(rows)  # nobody is left out of every epoch


def test_updates_walk_through_epochs_whatever_their_length() -> None:
    rows = np.arange(64)
    by_threes = Batches([rows], batch=16, local_steps=3, order="reshuffle", seed=1)
    by_ones = Batches([rows], batch=16, local_steps=1, order="reshuffle", seed=1)
    threes = np.concatenate([by_threes.rows(0, number) for number in range(4)])
    ones = np.concatenate([by_ones.rows(0, number) for number in range(12)])
    assert threes.tolist() == ones.tolist()


def test_which_batches_come_depends_on_the_number_of_the_update_alone() -> None:
    rows = [np.arange(64), np.arange(64, 128)]
    fresh = Batches(rows, 16, 3, "reshuffle", seed=1)
    used = Batches(rows, 16, 3, "reshuffle", seed=1)
    for number in (0, 5, 2):
        used.rows(1, number)
        used.rows(0, number)
    assert used.rows(0, 9).tolist() == fresh.rows(0, 9).tolist()


def test_with_replacement_samples_may_repeat_and_all_are_equally_likely() -> None:
    batches = Batches([np.arange(10)], batch=50, local_steps=2, order="replacement", seed=1)
    drawn = np.concatenate([batches.rows(0, number).ravel() for number in range(100)])
    counts = np.bincount(drawn, minlength=10)
    assert (abs(counts - 1000) < 4 * np.sqrt(900)).all()
    assert batches.rows(0, 0).tolist() == Batches([np.arange(10)], 50, 2, "replacement", 1).rows(0, 0).tolist()


def test_a_quadratic_step_is_exact() -> None:
    data = synthetic.Quadratic.generate(
        seed=2, users=3, dimension=4, strong_convexity=0.5, smoothness=2.0, heterogeneity=1.0
    )
    problem = QuadraticProblem(data, step=0.25, local_steps=3)
    start = np.array([1.0, -1.0, 2.0, 0.5], dtype=np.float32)
    point = start.astype(np.float64)
    for _ in range(3):
        point = point - 0.25 * data.gradient(1, point)
    np.testing.assert_allclose(np.asarray(problem.local_update(start, 1, 0)), point - start, atol=1e-6)


def test_scores_of_a_confusion_matrix() -> None:
    # Truth 0: 3 right, 1 taken for 1. Truth 1: 2 right. Class 2 does not occur, but is predicted once for truth 1.
    confusion = np.array([[3, 1, 0], [0, 2, 1], [0, 0, 0]])
    # Another model never predicts class 2, and is right of all others: a class that nobody names counts for nothing.
    without = np.array([[4, 0, 0], [0, 3, 0], [0, 0, 0]])
    accuracy, f1 = accuracy_and_f1(np.stack([confusion, without]))
    assert accuracy == pytest.approx([5 / 7, 1.0])
    assert f1 == pytest.approx([(2 * 3 / (4 + 3) + 2 * 2 / (3 + 3)) / 2, 1.0])


def test_evaluation_agrees_with_counting_by_hand() -> None:
    data = poker.generate(seed=4, train_count=100, test_count=300)
    model = Mlp((85, 7, 10))
    problem, _ = make_problem(data, model)
    flat = model.init(rng.generator(3, "init"))
    for final, count in ((False, 100), (True, 300)):
        features = poker.encode(data.test.inputs[:count])
        logits = np.asarray(model.apply(model.unflatten(flat), features), np.float64)
        predicted = logits.argmax(axis=1)
        labels = data.test.labels[:count]
        (scores,) = problem.evaluate(flat[None], final)
        assert scores.accuracy == pytest.approx((predicted == labels).mean())
        f1 = []
        for kind in np.unique(labels):
            right = ((predicted == kind) & (labels == kind)).sum()
            f1.append(2 * right / ((predicted == kind).sum() + (labels == kind).sum()))
        assert scores.f1 == pytest.approx(np.mean(f1))
        losses = np.log(np.exp(logits).sum(axis=1)) - logits[np.arange(count), labels]
        assert scores.loss == pytest.approx(losses.mean(), rel=1e-5)
        assert problem.test_samples(final) == count


def test_several_threads_are_given_the_batches_that_one_would_be() -> None:
    rows = [np.arange(500)] * 4
    numbers = [(user, number) for number in range(40) for user in range(4)]
    alone = Batches(rows, batch=16, local_steps=7, order="reshuffle", seed=1)
    expected = {one: alone.rows(*one).tolist() for one in numbers}
    shared = Batches(rows, batch=16, local_steps=7, order="reshuffle", seed=1)
    interval_s = sys.getswitchinterval()
    sys.setswitchinterval(2e-5)  # as in a run
    try:
        with ThreadPoolExecutor(3) as pool:
            found = [list(pool.map(lambda one: shared.rows(*one).tolist(), numbers)) for _ in range(3)]
    finally:
        sys.setswitchinterval(interval_s)
    assert all(rows == expected[one] for every in found for one, rows in zip(numbers, every, strict=True))
