"""A small convolutional network. Its defaults have exactly 149,194 parameters, the paper's 596,776 bytes.

XLA's convolution is slow on a CPU and its gradient slower, so a convolution is one matrix product, weights by windows.
Inside, the sample is the last axis of every array: windows and poolings are then whole rows of 64 numbers to copy or
compare, and products are long in the axis that vector instructions run along. Five SGD steps with batches of 64, in
the local update of `compute`, on one core of an AMD EPYC (Zen 4), the best of some 50 runs:

    form                                                                       ms
    samples first: lax.conv_general_dilated, lax.reduce_window                307
                   lax.conv_general_dilated_patches, product                   78
                   windows gathered by index, product                          52
                   first layer so; second: width-only windows, three products  43
                   windows from concatenated slices, product                   42
    samples last:  a product for each place in the window, summed              60
                   windows gathered by index, product                          27
                   width-only windows, three products                          23
                   a product for each row of the output                        22
                   windows from stacked slices, product: this file             17
                   the same with the gradient of lax.reduce_window             49
                   the same with the gradient of maximum of four slices        36
                   the same with the gradient of reshape and max               22
                   the same in blocks of 32 or 16 samples                 18 or 27

Where nothing is said of pooling it is as in this file. The products are 1.1 Gflop, 10 ms at the rate of a large one.
A gradient of our own for the convolution gained nothing: that of stacked slices is a sum of padded arrays, which XLA
fuses. XLA's flags are best left alone.
"""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

BLOCK = 64
"""Samples worked on together where there are many, as in an evaluation: the windows of all test images at once would
be half a gigabyte, and out of the cache they take five times as long."""


@dataclass(frozen=True, slots=True)
class Cnn:
    """Twice convolution, ReLU, 2x2 max pooling; then dense, ReLU, dense. No padding; a pooling drops an odd last row.

    Features are grey images, (n, side * side). The paper gives the size of its model and no more. Of three networks
    of this shape with exactly that size for 47 classes, the default is the quickest and learns as well as any: 85.2
    to 85.9% of EMNIST's validation images after 10 epochs of 25,000; channels 28 and 47, hidden 112, 85.4 to 86.0% in
    2.4 times the time; kernel 5, channels 10 and 21, hidden 374, 84.7 to 85.6% in 1.5 times.
    """

    side: int = 28
    kernel: int = 3
    channels: tuple[int, int] = (14, 29)
    hidden: int = 188
    classes: int = 47

    @property
    def parameter_count(self) -> int:
        return sum((inputs + 1) * outputs for inputs, outputs in self._layers())

    def init(self, generator: np.random.Generator) -> np.ndarray:
        """He's normal initialisation, which keeps the scale through ReLU; biases zero."""
        parts = []
        for inputs, outputs in self._layers():
            parts += [np.sqrt(2.0 / inputs) * generator.standard_normal(inputs * outputs), np.zeros(outputs)]
        return np.concatenate(parts).astype(np.float32)

    def unflatten(self, flat: jax.Array) -> list[tuple[jax.Array, jax.Array]]:
        """Weights have one row an output; a convolution's columns go by row, column and channel of its window."""
        parameters, start = [], 0
        for inputs, outputs in self._layers():
            middle, end = start + inputs * outputs, start + (inputs + 1) * outputs
            parameters.append((flat[start:middle].reshape(outputs, inputs), flat[middle:end]))
            start = end
        return parameters

    def flatten(self, parameters: list[tuple[jax.Array, jax.Array]]) -> jax.Array:
        return jnp.concatenate([part.ravel() for layer in parameters for part in layer])

    def apply(self, parameters: list[tuple[jax.Array, jax.Array]], features: jax.Array) -> jax.Array:
        count = len(features)
        if count <= 2 * BLOCK:  # a training batch: one gradient, nothing kept for later blocks
            return self._block(parameters, features)
        blocks = -(-count // BLOCK)
        padded = jnp.pad(features, ((0, blocks * BLOCK - count), (0, 0))).reshape(blocks, BLOCK, -1)
        logits: jax.Array = jax.lax.map(lambda block: self._block(parameters, block), padded)
        return logits.reshape(-1, self.classes)[:count]

    def _block(self, parameters: list[tuple[jax.Array, jax.Array]], features: jax.Array) -> jax.Array:
        first, second, dense, last = parameters
        values = features.T.reshape(1, self.side, self.side, -1)
        # Only what a later pooling does not drop is worked out: 12 of the 13 rows and columns of the first one.
        used = self._last_side() * 2 + self.kernel - 1
        values = _convolve_and_pool(*first, values, self.kernel, used)
        values = _convolve_and_pool(*second, values, self.kernel, self._last_side())
        values = jax.nn.relu(dense[0] @ values.reshape(dense[0].shape[1], -1) + dense[1][:, None])
        return (last[0] @ values + last[1][:, None]).T

    def _layers(self) -> list[tuple[int, int]]:
        window, (first, second) = self.kernel**2, self.channels
        sizes = [(window, first), (window * first, second), (second * self._last_side() ** 2, self.hidden)]
        return [*sizes, (self.hidden, self.classes)]

    def _last_side(self) -> int:
        return ((self.side - self.kernel + 1) // 2 - self.kernel + 1) // 2


def _convolve_and_pool(
    weights: jax.Array, bias: jax.Array, values: jax.Array, kernel: int, pooled_side: int
) -> jax.Array:
    """(channels, side, side, n) to (channels, pooled_side, pooled_side, n). ReLU and bias after the pooling: the same
    numbers, a quarter of the work."""
    side = 2 * pooled_side
    windows = jnp.stack([values[:, y : y + side, x : x + side] for y in range(kernel) for x in range(kernel)])
    convolved = (weights @ windows.reshape(weights.shape[1], -1)).reshape(-1, side, side, values.shape[-1])
    return jax.nn.relu(_pool(convolved) + bias[:, None, None, None])


@jax.custom_vjp
def _pool(values: jax.Array) -> jax.Array:
    """The largest of every 2x2 of axes 1 and 2. Of equals, as blank paper has many, the first has the gradient."""
    a, b, c, d = _quarters(values)
    return jnp.maximum(jnp.maximum(a, b), jnp.maximum(c, d))


def _pool_forward(values: jax.Array) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
    largest = _pool(values)
    return largest, (values, largest)


def _pool_backward(saved: tuple[jax.Array, jax.Array], slope: jax.Array) -> tuple[jax.Array]:
    values, largest = saved
    a, b, c, _ = (quarter == largest for quarter in _quarters(values))
    shares = [jnp.where(won, slope, 0) for won in (a, b & ~a, c & ~(a | b), ~(a | b | c))]
    upper, lower = jnp.stack(shares[:2], axis=3), jnp.stack(shares[2:], axis=3)
    return (jnp.stack([upper, lower], axis=2).reshape(values.shape),)


_pool.defvjp(_pool_forward, _pool_backward)


def _quarters(values: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
    return values[:, ::2, ::2], values[:, ::2, 1::2], values[:, 1::2, ::2], values[:, 1::2, 1::2]
