"""What `compute` needs of a model. Outside `compute` and `models` a model is a flat float32 vector, nothing else."""

from __future__ import annotations

from typing import Any, Protocol, TypeAlias

import jax
import numpy as np

Parameters: TypeAlias = Any
"""A pytree of arrays: quicker than a flat vector inside a loop of SGD steps."""


class Model(Protocol):
    @property
    def parameter_count(self) -> int: ...

    def init(self, generator: np.random.Generator) -> np.ndarray:
        """A flat vector to start from."""
        ...

    def unflatten(self, flat: jax.Array) -> Parameters: ...

    def flatten(self, parameters: Parameters) -> jax.Array: ...

    def apply(self, parameters: Parameters, features: jax.Array) -> jax.Array:
        """Logits, one row a sample."""
        ...
