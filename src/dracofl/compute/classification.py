"""Supervised classification by mini-batch SGD on cross-entropy, with an optional L2 penalty."""

from __future__ import annotations

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from dracofl import rng
from dracofl.compute.batches import Batches
from dracofl.compute.problem import COMPILER_OPTIONS, Scores
from dracofl.compute.scores import accuracy_and_f1
from dracofl.datasets.samples import Classification
from dracofl.models.interface import Model, Parameters


class ClassificationProblem:
    """One pool of samples for all users; a batch is a row of indices into it, gathered inside the compiled step."""

    def __init__(
        self,
        data: Classification,
        model: Model,
        batches: Batches,
        *,
        step: float,
        local_steps: int,
        batch: int,
        l2: float,
        evaluation_samples: int | None,
        seed: int,
    ) -> None:
        self._data, self._model, self.batches = data, model, batches
        self._step, self._l2 = step, l2
        self.local_steps = local_steps
        self._batch = batch
        self._seed = seed
        total = len(data.test)
        self._periodic_samples = total if evaluation_samples is None else evaluation_samples

    @property
    def parameter_count(self) -> int:
        return self._model.parameter_count

    def init(self) -> np.ndarray:
        return self._model.init(rng.generator(self._seed, "init"))

    def compile(self) -> None:
        flat = self.init()
        self.local_update(flat, 0, 0).block_until_ready()
        for final in (False, True):
            self._confusion(flat, *self._test(final))[1].block_until_ready()

    def local_update(self, model: np.ndarray, user: int, number: int) -> jax.Array:
        delta: jax.Array = self._compiled_delta(model, *self.pool, self.batches.rows(user, number))
        return delta

    def evaluate(self, models: np.ndarray, final: bool) -> list[Scores]:
        inputs, labels = self._test(final)
        measured = [self._confusion(model, inputs, labels) for model in models]
        return [Scores(*accuracy_and_f1(np.asarray(confusion)), float(loss)) for confusion, loss in measured]

    def test_samples(self, final: bool) -> int:
        return len(self._data.test) if final else self._periodic_samples

    @functools.cached_property
    def pool(self) -> tuple[jax.Array, jax.Array]:
        return jnp.asarray(self._data.train.inputs), jnp.asarray(self._data.train.labels)

    @functools.cached_property
    def _whole_test(self) -> tuple[jax.Array, jax.Array]:
        return jnp.asarray(self._data.test.inputs), jnp.asarray(self._data.test.labels)

    @functools.cached_property
    def _periodic_test(self) -> tuple[jax.Array, jax.Array]:
        inputs, labels = self._whole_test
        return inputs[: self._periodic_samples], labels[: self._periodic_samples]

    def _test(self, final: bool) -> tuple[jax.Array, jax.Array]:
        return self._whole_test if final else self._periodic_test

    @functools.cached_property
    def _compiled_delta(self) -> jax.stages.Wrapped:
        return jax.jit(self.delta, compiler_options=COMPILER_OPTIONS)

    @functools.cached_property
    def delta(self) -> Callable[..., jax.Array]:
        """(model, pool's inputs, pool's labels, rows) -> update: pure, to be compiled alone or inside a loop."""
        model, encode, step, l2 = self._model, self._data.encode, self._step, self._l2

        def objective(parameters: Parameters, inputs: jax.Array, labels: jax.Array) -> jax.Array:
            loss = _cross_entropy(model.apply(parameters, encode(inputs)), labels)
            if l2:
                squares = [jnp.vdot(leaf, leaf) for leaf in jax.tree.leaves(parameters)]
                loss += 0.5 * l2 * sum(squares)
            return loss

        def delta(flat: jax.Array, inputs: jax.Array, labels: jax.Array, rows: jax.Array) -> jax.Array:
            def sgd(parameters: Parameters, batch: jax.Array) -> tuple[Parameters, None]:
                gradient = jax.grad(objective)(parameters, inputs[batch], labels[batch])
                return jax.tree.map(lambda value, slope: value - step * slope, parameters, gradient), None

            parameters, _ = jax.lax.scan(sgd, model.unflatten(flat), rows)
            return model.flatten(parameters) - flat

        return delta

    @functools.cached_property
    def _confusion(self) -> jax.stages.Wrapped:
        model, data = self._model, self._data

        def confusion(flat: jax.Array, inputs: jax.Array, labels: jax.Array) -> tuple[jax.Array, jax.Array]:
            logits = model.apply(model.unflatten(flat), data.encode(inputs))
            truth = jax.nn.one_hot(labels, data.classes)
            prediction = jax.nn.one_hot(jnp.argmax(logits, axis=-1), data.classes)
            # Sums of ones in float32 are exact up to 2^24 samples.
            return truth.T @ prediction, _cross_entropy(logits, labels)

        return jax.jit(confusion, compiler_options=COMPILER_OPTIONS)


def _cross_entropy(logits: jax.Array, labels: jax.Array) -> jax.Array:
    log_probabilities = jax.nn.log_softmax(logits)
    return -jnp.take_along_axis(log_probabilities, labels[:, None], axis=1).mean()
