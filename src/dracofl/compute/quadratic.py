"""A quadratic with heterogeneous optima and exact gradients: what an algorithm does can be computed by hand."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np

from dracofl.compute.problem import COMPILER_OPTIONS, Scores
from dracofl.datasets.synthetic import Quadratic


class QuadraticProblem:
    """f_i(x) = 1/2 (x - b_i)' A (x - b_i), A diagonal; everybody starts from zero. The loss is the mean objective."""

    def __init__(self, data: Quadratic, *, step: float, local_steps: int) -> None:
        self._data = data
        self._step = step
        self.local_steps = local_steps

    @property
    def parameter_count(self) -> int:
        return len(self._data.curvatures)

    def init(self) -> np.ndarray:
        return np.zeros(self.parameter_count, dtype=np.float32)

    def compile_evaluation(self) -> None:
        """There is nothing to compile."""

    def local_update(self, model: np.ndarray, user: int, number: int) -> jax.Array:
        delta: jax.Array = self._compiled_delta(model, self.pool, self.batch(user, number))
        return delta

    def batch(self, user: int, number: int) -> np.ndarray:
        return np.array(user, dtype=np.int32)

    def delta(self, flat: jax.Array, pool: tuple[jax.Array, ...], batch: jax.Array) -> jax.Array:
        curvatures, optima = pool
        optimum = optima[batch]

        def sgd(_: int, point: jax.Array) -> jax.Array:
            return point - self._step * curvatures * (point - optimum)

        end: jax.Array = jax.lax.fori_loop(0, self.local_steps, sgd, flat)
        return end - flat

    def evaluate(self, models: np.ndarray, final: bool) -> list[Scores]:
        losses = self._data.objective(models.astype(np.float64))
        return [Scores(np.nan, np.nan, float(loss)) for loss in losses]

    def test_samples(self, final: bool) -> int:
        return 0

    @functools.cached_property
    def pool(self) -> tuple[jax.Array, ...]:
        return (
            jnp.asarray(self._data.curvatures, dtype=jnp.float32),
            jnp.asarray(self._data.optima, dtype=jnp.float32),
        )

    @functools.cached_property
    def _compiled_delta(self) -> jax.stages.Wrapped:
        return jax.jit(self.delta, compiler_options=COMPILER_OPTIONS)
