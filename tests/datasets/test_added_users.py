"""With generated data a user's samples are its own, however many users there are."""

from __future__ import annotations

import numpy as np
import pytest

from dracofl.build import build_problem
from dracofl.compute.classification import ClassificationProblem
from dracofl.config.load import load_config


@pytest.mark.parametrize("task", [["task.kind=poker"], ["task.kind=logistic", "model.kind=softmax"]])
def test_adding_users_leaves_everybodys_samples_as_they_were(task: list[str]) -> None:
    few, many = (build_problem(load_config("tiny", [*task, f"users={users}"])) for users in (4, 9))
    assert isinstance(few, ClassificationProblem)
    assert isinstance(many, ClassificationProblem)
    for user in range(4):
        for problem, other in ((few, many),):
            mine, theirs = problem.batches.rows(user, 3), other.batches.rows(user, 3)
            np.testing.assert_array_equal(problem.pool[0][mine], other.pool[0][theirs])
            np.testing.assert_array_equal(problem.pool[1][mine], other.pool[1][theirs])
