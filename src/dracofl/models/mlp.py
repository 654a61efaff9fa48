"""A multilayer perceptron with ReLU. Layers 85-75-75-10 have exactly 12,910 parameters, the paper's 51,640 bytes.

Ten SGD steps with batches of 64, in the local update of `compute`, on one core of an AMD EPYC, the best of 25 rounds in
which the forms took turns, beside other work:

    form                                                                      us
    samples first: as usual                                                  758
                   gradient written by hand                                  734
                   widths padded to 80 (to 80 and 16; to 96 and 16)   725 (739; 1032)
                   loop of steps unrolled by 2 (by 10)                  753 (897)
                   all mini-batches gathered before the loop                 781
    samples last:  scores turned back before the loss                        675

and in another such round, where samples first took 787:

    samples last:  the loss too: this file and `compute.classification`      654
                   gradient written by hand                                  647
                   widths padded to 80                                       668

and, alone on the machine, the best of 30 rounds, where this file took 617; a poker hand has ten ones among 85 numbers:

    first layer:   rows of its weights looked up and summed                  648
                   the same, ten look-ups one after the other                832
                   rows looked up, and its gradient scattered                758
"""

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
        """Weights have one row an output; in the flat vector, as is usual, one an input."""
        parameters, start = [], 0
        for inputs, outputs in self._layers():
            middle, end = start + inputs * outputs, start + (inputs + 1) * outputs
            parameters.append((flat[start:middle].reshape(inputs, outputs).T, flat[middle:end]))
            start = end
        return parameters

    def flatten(self, parameters: list[tuple[jax.Array, jax.Array]]) -> jax.Array:
        return jnp.concatenate([part.T.ravel() for layer in parameters for part in layer])

    def apply(self, parameters: list[tuple[jax.Array, jax.Array]], features: jax.Array) -> jax.Array:
        """Inside, the sample is the last axis: rows are then 64 numbers long, a multiple of what vector instructions
        take, whatever the widths of the layers."""
        *hidden, (last, last_bias) = parameters
        values = features.T
        for weights, bias in hidden:
            values = jax.nn.relu(weights @ values + bias[:, None])
        return (last @ values + last_bias[:, None]).T

    def _layers(self) -> list[tuple[int, int]]:
        return list(zip(self.sizes[:-1], self.sizes[1:], strict=True))
