"""Compressors of CHOCO-SGD, as what the receiver makes of the message.

top-k     the k entries of largest size, the rest 0
random-k  k entries drawn at random, the rest 0
qsgd      sign(x) ||x|| / (s tau) floor(s |x| / ||x|| + u), u uniform, s levels, tau = 1 + min(d / s^2, sqrt(d) / s)
          (Alistarh et al., 2017, scaled to be a contraction as in Koloskova et al., 2019)
"""

from __future__ import annotations

import math

import numpy as np

from dracofl.tape import Compression


def compress(vector: np.ndarray, compression: Compression, draws: int) -> np.ndarray:
    """`draws` is a stream: the same compresses the same."""
    generator = np.random.Generator(np.random.Philox(key=draws))
    if compression.kind == "qsgd":
        return _qsgd(vector, compression.amount, generator)
    if compression.kind == "top-k":
        kept = np.argsort(-np.abs(vector), kind="stable")[: compression.amount]
    else:
        kept = generator.permutation(len(vector))[: compression.amount]
    result = np.zeros_like(vector)
    result[kept] = vector[kept]
    return result


def _qsgd(vector: np.ndarray, levels: int, generator: np.random.Generator) -> np.ndarray:
    # Not by BLAS, whose sums depend on the number of threads.
    norm = math.sqrt(float(np.square(vector.astype(np.float64)).sum()))
    if norm == 0.0:
        return np.zeros_like(vector)
    length = len(vector)
    tau = 1.0 + min(length / levels**2, math.sqrt(length) / levels)
    steps = np.floor(levels * np.abs(vector.astype(np.float64)) / norm + generator.random(length))
    result: np.ndarray = (np.sign(vector) * norm / (levels * tau) * steps).astype(np.float32)
    return result
