"""A multilayer perceptron with ReLU. Layers 85-75-75-10 have exactly 12,910 parameters, the paper's 51,640 bytes."""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np


@dataclass(frozen=True, slots=True)
class Mlp:
    """Dense layers with ReLU between them; with no hidden layer, softmax regression."""

    sizes: tuple[int, ...]  # inputs, hidden layers, classes

    @property
    def parameter_count(self) -> int:
        return sum((inputs + 1) * outputs for inputs, outputs in self._layers())

    def init(self, generator: np.random.Generator) -> np.ndarray:
        """He's normal initialisation, which keeps the scale through ReLU; zeros without hidden layers, as the loss is
        convex then; biases zero."""
        parts = []
        for inputs, outputs in self._layers():
            scale = np.sqrt(2.0 / inputs) if len(self.sizes) > 2 else 0.0
            parts += [scale * generator.standard_normal(inputs * outputs), np.zeros(outputs)]
        return np.concatenate(parts).astype(np.float32)

    def unflatten(self, flat: jax.Array) -> list[tuple[jax.Array, jax.Array]]:
        parameters, start = [], 0
        for inputs, outputs in self._layers():
            middle, end = start + inputs * outputs, start + (inputs + 1) * outputs
            parameters.append((flat[start:middle].reshape(inputs, outputs), flat[middle:end]))
            start = end
        return parameters

    def flatten(self, parameters: list[tuple[jax.Array, jax.Array]]) -> jax.Array:
        return jnp.concatenate([part.ravel() for layer in parameters for part in layer])

    def apply(self, parameters: list[tuple[jax.Array, jax.Array]], features: jax.Array) -> jax.Array:
        *hidden, last = parameters
        for weights, bias in hidden:
            features = jax.nn.relu(features @ weights + bias)
        return features @ last[0] + last[1]

    def _layers(self) -> list[tuple[int, int]]:
        return list(zip(self.sizes[:-1], self.sizes[1:], strict=True))
