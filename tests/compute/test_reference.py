"""The reference executor: each operation against plain arithmetic, and what it says when a model diverges."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dracofl.compute.executor import hash_of
from dracofl.compute.problem import Scores
from dracofl.compute.reference import ReferenceExecutor
from dracofl.errors import DivergedError
from dracofl.tape import Combine, Copy, Evaluate, Free, Train


class Constant:
    """Updates are (user + 1) * (number + 1) in every place; a model's accuracy is its first entry."""

    parameter_count = 3
    local_steps = 1

    def init(self) -> np.ndarray:
        return np.array([1.0, 2.0, 3.0], dtype=np.float32)

    def local_update(self, model: np.ndarray, user: int, number: int) -> np.ndarray:
        return np.full(3, (user + 1) * (number + 1), dtype=np.float32)

    def evaluate(self, models: np.ndarray, final: bool) -> list[Scores]:
        return [Scores(float(model[0]), 0.5, 0.25) for model in models]

    def test_samples(self, final: bool) -> int:
        return 20 if final else 10


def test_training_leaves_the_update_and_not_the_model() -> None:
    executor = ReferenceExecutor(Constant(), 2)
    executor.play([Train(0.0, 1, 2, source=1, destination=5)])
    assert executor.vectors[5].tolist() == [6.0, 6.0, 6.0]
    assert executor.vectors[1].tolist() == [1.0, 2.0, 3.0]


def test_combining_adds_one_weighted_vector_at_a_time_in_float32() -> None:
    executor = ReferenceExecutor(Constant(), 2)
    executor.vectors[5] = np.array([0.1, 0.2, 0.3], dtype=np.float32)
    executor.vectors[6] = np.array([7.0, 8.0, 9.0], dtype=np.float32)
    executor.play([Combine(0.0, 0, 0, ((0, 1.0), (5, 0.3), (6, 0.7)))])
    total = np.array([1.0, 2.0, 3.0], dtype=np.float32)
    total = total + np.float32(0.3) * executor.vectors[5]
    total = total + np.float32(0.7) * executor.vectors[6]
    assert executor.vectors[0].tobytes() == total.tobytes()


@given(
    st.lists(st.tuples(st.sampled_from([0, 1, 5]), st.floats(-2, 2)), min_size=1, max_size=6), st.sampled_from([0, 9])
)
def test_all_sources_are_read_before_the_write(terms: list[tuple[int, float]], destination: int) -> None:
    executor = ReferenceExecutor(Constant(), 2)
    executor.vectors[5] = np.array([4.0, -5.0, 6.0], dtype=np.float32)
    before = {name: vector.copy() for name, vector in executor.vectors.items()}
    executor.play([Combine(0.0, 0, destination, tuple(terms))])
    exact = sum(weight * before[name].astype(np.float64) for name, weight in terms)
    np.testing.assert_allclose(executor.vectors[destination], exact, atol=1e-5)
    for name in before:
        if name != destination:
            assert executor.vectors[name].tobytes() == before[name].tobytes()


def test_a_vector_straight_from_training_can_be_added_to() -> None:
    executor = ReferenceExecutor(Constant(), 2)
    executor.play([Train(0.0, 0, 0, 0, 5), Train(0.0, 1, 0, 1, 6)])
    executor.vectors[5].flags.writeable = False  # as JAX hands it out
    executor.play([Combine(0.0, 0, 5, ((5, 1.0), (6, 1.0)))])
    assert executor.vectors[5].tolist() == [3.0, 3.0, 3.0]


def test_a_copy_is_independent_of_its_source() -> None:
    executor = ReferenceExecutor(Constant(), 2)
    executor.vectors[5] = np.ones(3, dtype=np.float32)
    executor.play([Copy(0.0, 0, source=0, destination=1), Combine(0.0, 0, 0, ((0, 1.0), (5, 1.0)))])
    assert executor.vectors[1].tolist() == [1.0, 2.0, 3.0]
    assert executor.vectors[0].tolist() == [2.0, 3.0, 4.0]


def test_freeing_forgets_a_vector() -> None:
    executor = ReferenceExecutor(Constant(), 2)
    executor.play([Train(0.0, 0, 0, 0, 5), Free(5)])
    assert set(executor.vectors) == {0, 1}


def test_an_evaluation_measures_every_user_the_mean_model_and_the_distances() -> None:
    executor = ReferenceExecutor(Constant(), 2)
    executor.vectors[1] = np.array([3.0, 2.0, 3.0], dtype=np.float32)
    executor.play([Evaluate(7.0, 12, final=False), Evaluate(9.0, 13, final=True)])
    first, last = executor.evaluations(wait=True)
    assert (first.at_s, first.events, first.samples, last.samples, last.final) == (7.0, 12, 10, 20, True)
    assert [scores.accuracy for scores in first.users] == [1.0, 3.0]
    assert first.mean_model.accuracy == 2.0
    assert first.distances.tolist() == [1.0, 1.0]


def test_a_diverging_update_is_named_with_its_time_and_user() -> None:
    class Diverging(Constant):
        def local_update(self, model: np.ndarray, user: int, number: int) -> np.ndarray:
            return np.array([1.0, np.nan, 1.0], dtype=np.float32)

    executor = ReferenceExecutor(Diverging(), 2)
    with pytest.raises(DivergedError) as caught:
        executor.play([Train(4.5, 1, 3, 1, 5), Train(5.5, 0, 0, 0, 6)])
    assert (caught.value.time_s, caught.value.user, caught.value.operation) == (4.5, 1, "local update 3")


def test_an_overflow_while_applying_is_blamed_on_that_operation() -> None:
    executor = ReferenceExecutor(Constant(), 2)
    executor.vectors[5] = np.full(3, 3e38, dtype=np.float32)
    operations = [
        Combine(1.0, 1, 1, ((1, 1.0), (5, 1.0))),  # large, and still finite
        Combine(2.0, 1, 1, ((1, 1.0), (5, 1.0))),
        Train(3.0, 1, 0, 1, 6),
    ]
    with pytest.raises(DivergedError) as caught:
        executor.play(operations)
    assert (caught.value.time_s, caught.value.user, caught.value.operation) == (2.0, 1, "applying updates")


def test_the_model_hash_is_of_all_models() -> None:
    one, same, other = (ReferenceExecutor(Constant(), 2) for _ in range(3))
    other.vectors[1] = other.vectors[1] + np.float32(1e-6)
    assert hash_of(one.models()) == hash_of(same.models()) != hash_of(other.models())
