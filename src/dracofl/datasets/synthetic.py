"""Problems whose constants are known, for tests of convergence against theory.

`Quadratic` is a least-squares objective for each user; nothing about it is random once it is made. The
logistic data is a two-class problem for softmax regression, the convex end of what the networks do.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from dracofl import rng
from dracofl.datasets.samples import Classification, Samples

Vector = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Quadratic:
    """f_i(x) = 1/2 (x - b_i)' A (x - b_i), A = diag(curvatures) the same for all users, b_i = optima[i].

    f is the mean of the f_i. Because A is shared, all constants are exact: f is mu-strongly convex and
    L-smooth with mu and L the least and the largest curvature (so is every f_i), its minimiser is the mean of
    the b_i, and the gradient of f_i differs from that of f by A (mean b - b_i) at every x. Gradients carry no
    noise of their own.
    """

    curvatures: Vector
    """Shape (dimension,), all positive."""
    optima: Vector
    """Shape (users, dimension)."""

    def __post_init__(self) -> None:
        if self.curvatures.ndim != 1 or self.optima.ndim != 2 or self.optima.shape[1] != self.curvatures.size:
            raise ValueError(
                f"curvatures have shape {self.curvatures.shape} and optima {self.optima.shape}; "
                "they must be (dimension,) and (users, dimension)"
            )
        if self.optima.size == 0:
            raise ValueError(f"optima have shape {self.optima.shape}; users and dimension must be 1 or more")
        if not (np.isfinite(self.curvatures).all() and self.curvatures.min() > 0):
            raise ValueError(f"curvatures are {self.curvatures.tolist()}; all must be positive and finite")

    @classmethod
    def generate(
        cls,
        seed: int,
        users: int,
        dimension: int,
        strong_convexity: float,
        smoothness: float,
        heterogeneity: float,
    ) -> Quadratic:
        """Curvatures spaced geometrically from strong_convexity to smoothness, both ends exact.

        Optima are heterogeneity * N(0, I), each a function of the seed and the user: adding users moves
        nobody's.
        """
        if not 0 < strong_convexity <= smoothness < math.inf:
            raise ValueError(
                f"strong_convexity is {strong_convexity} and smoothness {smoothness}; "
                "it must be 0 < strong_convexity <= smoothness"
            )
        if dimension == 1 and strong_convexity != smoothness:
            raise ValueError("one dimension has one curvature; strong_convexity and smoothness must be equal there")
        if not 0 <= heterogeneity < math.inf:
            raise ValueError(f"heterogeneity is {heterogeneity}; it must be 0 or more")
        draws = [rng.generator(seed, "quadratic-optimum", user).standard_normal(dimension) for user in range(users)]
        curvatures = np.geomspace(strong_convexity, smoothness, dimension)
        # Rounding may put a point inside the range a hair outside of it.
        return cls(
            curvatures=np.clip(curvatures, strong_convexity, smoothness),
            optima=heterogeneity * np.array(draws).reshape(users, dimension),
        )

    @property
    def users(self) -> int:
        return int(self.optima.shape[0])

    @property
    def dimension(self) -> int:
        return int(self.optima.shape[1])

    @property
    def strong_convexity(self) -> float:
        """mu, of f and of every f_i."""
        return float(self.curvatures.min())

    @property
    def smoothness(self) -> float:
        """L, of f and of every f_i."""
        return float(self.curvatures.max())

    @property
    def optimum(self) -> Vector:
        """The minimiser of f."""
        return np.asarray(self.optima.mean(axis=0), dtype=np.float64)

    @property
    def minimum(self) -> float:
        """f at its minimiser: 0 if all users have the same optimum."""
        return float(0.5 * ((self.optima - self.optimum) ** 2 @ self.curvatures).mean())

    @property
    def gradient_divergence(self) -> float:
        """zeta^2 = max over i of ||grad f_i(x) - grad f(x)||^2, the same at every x."""
        return float((((self.optima - self.optimum) * self.curvatures) ** 2).sum(axis=1).max())

    def objective(self, models: npt.ArrayLike) -> Vector:
        """f at each row of models (..., dimension), in float64: 1/2 (x - x*)' A (x - x*) + minimum."""
        offsets = np.asarray(models, dtype=np.float64) - self.optimum
        return np.asarray(0.5 * (offsets**2 @ self.curvatures) + self.minimum, dtype=np.float64)

    def gradient(self, user: int, x: npt.ArrayLike) -> Vector:
        """grad f_user at x of shape (..., dimension): A (x - b_user)."""
        return np.asarray(self.curvatures * (np.asarray(x, dtype=np.float64) - self.optima[user]), dtype=np.float64)


@dataclass(frozen=True)
class Constants:
    """Of an objective: L and mu, between which all its curvatures lie everywhere (bounds, not estimates)."""

    smoothness: float
    strong_convexity: float


def encode(rows: Any) -> Any:
    """The rows themselves, as float32."""
    return rows.astype("float32")


def logistic_weights(seed: int, dimension: int) -> Vector:
    """The true w of `generate_logistic`: uniform on the unit sphere, so that w'x is N(0, 1)."""
    draw = rng.generator(seed, "logistic-weights").standard_normal(dimension)
    return np.asarray(draw / np.linalg.norm(draw), dtype=np.float64)


def generate_logistic(
    seed: int,
    dimension: int,
    margin_noise: float,
    train_count: int,
    test_count: int = 10_000,
    validation_count: int = 10_000,
) -> Classification:
    """x ~ N(0, I), label 1 with probability sigmoid(w'x / margin_noise), else 0; w from `logistic_weights`.

    The smaller the noise, the nearer to separable. Each split has streams of its own, and a longer split
    begins with the samples of a shorter one. No model can beat E[sigmoid(|z| / margin_noise)], z ~ N(0, 1),
    in accuracy.
    """
    if dimension < 1:
        raise ValueError(f"dimension is {dimension}; it must be 1 or more")
    if not 0 < margin_noise < math.inf:
        raise ValueError(f"margin_noise is {margin_noise}; it must be positive")
    weights = logistic_weights(seed, dimension)

    def split(name: str, count: int) -> Samples:
        draws = rng.generator(seed, f"logistic-{name}").standard_normal((count, dimension))
        inputs = draws.astype(np.float32)
        # Summed row by row, as a matrix product may round differently with the number of rows.
        margins = (inputs * weights).sum(axis=1) / margin_noise
        chances = 0.5 * (1.0 + np.tanh(0.5 * margins))  # the sigmoid, without its overflow
        labels = rng.generator(seed, f"logistic-{name}-labels").random(count) < chances
        return Samples(inputs, labels.astype(np.int32))

    return Classification(
        train=split("train", train_count),
        test=split("test", test_count),
        validation=split("validation", validation_count),
        classes=2,
        features=dimension,
        encode=encode,
    )


def logistic_constants(train: Samples, l2: float) -> Constants:
    """Of F(W) = mean cross-entropy of two-class softmax regression with a bias + l2/2 ||W||^2, bias included.

    With z = (x, 1) and q = (p, 1-p) the predicted probabilities, the Hessian of one sample's loss is
    (diag(q) - q q') kron z z', and the largest eigenvalue of the first factor is 2 p (1-p) <= 1/2. So
    L = 1/2 lambda_max(Z'Z / n) + l2, reached at W = 0. The first factor is singular, so only the penalty
    makes F strongly convex: mu = l2. Inputs are taken as they are; for one user's objective pass its samples.
    """
    if train.inputs.ndim != 2 or len(train) == 0:
        raise ValueError(f"inputs have shape {train.inputs.shape}; it must be (n, features) with n 1 or more")
    if not 0 <= l2 < math.inf:
        raise ValueError(f"l2 is {l2}; it must be 0 or more")
    augmented = np.concatenate([train.inputs.astype(np.float64), np.ones((len(train), 1))], axis=1)
    largest = float(np.linalg.eigvalsh(augmented.T @ augmented / len(train))[-1])
    return Constants(smoothness=0.5 * largest + l2, strong_convexity=l2)
