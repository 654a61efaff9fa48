"""A learner of one's own in plain NumPy: logistic regression, on data that every peer draws for itself.

Alone: `python examples/numpy_learner.py`. As a peer's: `learner = "numpy_learner:learner"` in its node file.
"""

import numpy as np


def draw(who: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Points on two sides of a plane that is the same for everybody."""
    normal = np.random.default_rng(0).normal(size=20)
    points = np.random.default_rng([1, who]).normal(size=(count, 20))
    return points.astype(np.float32), (points @ normal > 0).astype(np.float32)


class LogisticRegression:
    def __init__(self, user: int, users: int) -> None:
        self.user = user
        self.points, self.labels = draw(user, 500)
        self.test_points, self.test_labels = draw(users, 2000)  # nobody's own, and the same for everybody

    def init(self) -> np.ndarray:
        return np.zeros(20, np.float32)

    def local_update(self, model: np.ndarray, number: int) -> np.ndarray:
        weights = model.copy()
        for rows in np.random.default_rng([2, self.user, number]).integers(500, size=(10, 32)):
            points, labels = self.points[rows], self.labels[rows]
            weights -= 0.1 * points.T @ (1 / (1 + np.exp(-points @ weights)) - labels) / len(rows)
        return weights - model

    def evaluate(self, model: np.ndarray, final: bool) -> dict[str, float]:
        logits, labels = self.test_points @ model, self.test_labels
        loss = np.mean(np.logaddexp(0, logits) - labels * logits)
        return {"accuracy": np.mean((logits > 0) == labels), "loss": loss, "samples": len(labels)}


def learner(user: int, users: int) -> LogisticRegression:
    return LogisticRegression(user, users)


if __name__ == "__main__":
    alone = learner(0, 1)
    model = alone.init()
    for number in range(20):
        model += alone.local_update(model, number)
    print(f"accuracy {alone.evaluate(model, True)['accuracy']:.3f} after 20 local updates alone")
