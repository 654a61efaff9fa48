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

    def compile(self) -> None:
        self.local_update(self.init(), 0, 0).block_until_ready()

    def local_update(self, model: np.ndarray, user: int, number: int) -> jax.Array:
        delta: jax.Array = self._delta(model, self._optima[user])
        return delta

    def evaluate(self, models: np.ndarray, final: bool) -> list[Scores]:
        losses = self._data.objective(models.astype(np.float64))
        return [Scores(np.nan, np.nan, float(loss)) for loss in losses]

    def test_samples(self, final: bool) -> int:
        return 0

    @functools.cached_property
    def _optima(self) -> np.ndarray:
        return self._data.optima.astype(np.float32)

    @functools.cached_property
    def _delta(self) -> jax.stages.Wrapped:
        curvatures = jnp.asarray(self._data.curvatures, dtype=jnp.float32)
        step, local_steps = self._step, self.local_steps

        def delta(flat: jax.Array, optimum: jax.Array) -> jax.Array:
            def sgd(_: int, point: jax.Array) -> jax.Array:
                return point - step * curvatures * (point - optimum)

            end: jax.Array = jax.lax.fori_loop(0, local_steps, sgd, flat)
            return end - flat

        return jax.jit(delta, compiler_options=COMPILER_OPTIONS)
