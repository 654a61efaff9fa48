"""Supervised classification by mini-batch SGD on cross-entropy, with an optional L2 penalty."""

from __future__ import annotations

import functools

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

    def compile_evaluation(self) -> None:
        flat = self.init()
        for final in (False, True):
            self._confusion(flat, *self.test(final))[1].block_until_ready()

    def local_update(self, model: np.ndarray, user: int, number: int) -> jax.Array:
        delta: jax.Array = self._compiled_delta(model, self.pool, self.batch(user, number))
        return delta

    def batch(self, user: int, number: int) -> np.ndarray:
        return self.batches.rows(user, number)

    def delta(self, flat: jax.Array, pool: tuple[jax.Array, ...], batch: jax.Array) -> jax.Array:
        """`batch` has a row of the pool's indices for each SGD step. Parameters are flat only at the ends of the
        loop: inside it that would cost a third of its speed."""
        inputs, labels = pool

        def sgd(parameters: Parameters, mini_batch: tuple[jax.Array, jax.Array]) -> tuple[Parameters, None]:
            gradient = jax.grad(self._objective)(parameters, *mini_batch)
            return jax.tree.map(lambda value, slope: value - self._step * slope, parameters, gradient), None

        # All mini-batches are fetched at once, in their compact form: XLA takes a look-up in a large array for much
        # work and hands it to several threads, which must not happen in every step.
        parameters, _ = jax.lax.scan(sgd, self._model.unflatten(flat), (inputs[batch], labels[batch]))
        return self._model.flatten(parameters) - flat

    def _objective(self, parameters: Parameters, inputs: jax.Array, labels: jax.Array) -> jax.Array:
        loss = _cross_entropy(self._model.apply(parameters, self._data.encode(inputs)), labels)
        if self._l2:
            squares = [jnp.vdot(leaf, leaf) for leaf in jax.tree.leaves(parameters)]
            loss += 0.5 * self._l2 * sum(squares)
        return loss

    def evaluate(self, models: np.ndarray, final: bool) -> list[Scores]:
        inputs, labels = self.test(final)
        confusions, losses = zip(*[self._confusion(model, inputs, labels) for model in models], strict=True)
        # All at once, as it takes a processor from those that are still to be measured.
        accuracies, f1s = accuracy_and_f1(np.stack(confusions))
        return [Scores(*map(float, scores)) for scores in zip(accuracies, f1s, losses, strict=True)]

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

    def test(self, final: bool) -> tuple[jax.Array, jax.Array]:
        return self._whole_test if final else self._periodic_test

    @functools.cached_property
    def _compiled_delta(self) -> jax.stages.Wrapped:
        return jax.jit(self.delta, compiler_options=COMPILER_OPTIONS)

    def logits(self, flat: jax.Array, inputs: jax.Array) -> jax.Array:
        """The bare forward pass."""
        return self._model.apply(self._model.unflatten(flat), self._data.encode(inputs))

    @functools.cached_property
    def _confusion(self) -> jax.stages.Wrapped:
        classes = jnp.arange(self._data.classes)[:, None]

        def confusion(flat: jax.Array, inputs: jax.Array, labels: jax.Array) -> tuple[jax.Array, jax.Array]:
            scores = self.logits(flat, inputs).T
            truth = (classes == labels).astype(jnp.float32)
            prediction = (classes == jnp.argmax(scores, axis=0)).astype(jnp.float32)
            # The mean cross-entropy once more: it needs no gradient here, and XLA is quicker at products than at sums.
            shifted = scores - scores.max(axis=0)
            log_sums = jnp.log(jnp.ones(len(scores)) @ jnp.exp(shifted))
            loss = (jnp.ones(len(labels)) @ log_sums - jnp.vdot(truth, shifted)) / len(labels)
            # Sums of ones in float32 are exact up to 2^24 samples.
            return truth @ prediction.T, loss

        return jax.jit(confusion, compiler_options=COMPILER_OPTIONS)


def _cross_entropy(logits: jax.Array, labels: jax.Array) -> jax.Array:
    """The mean over samples. Samples are the last axis, as they are inside the models, so XLA turns nothing round."""
    scores = logits.T
    shifted = scores - jax.lax.stop_gradient(scores.max(axis=0))
    is_label = jnp.arange(len(scores))[:, None] == labels
    of_label = jnp.where(is_label, shifted, 0.0).sum(axis=0)
    return (jnp.log(jnp.exp(shifted).sum(axis=0)) - of_label).mean()
