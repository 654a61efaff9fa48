"""A peer learns with a built-in task or with any object that keeps its promises; one that does not is told by name."""

from __future__ import annotations

import ast
import math
import os
import runpy
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from dracofl.build import build_problem
from dracofl.config.load import load_config
from dracofl.errors import ConfigError, DracoError
from dracofl.runtime.learners import MEASURES, Checked, TaskLearner, load_learner

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"

GOOD = """\
import numpy as np

class Good:
    def init(self):
        return np.zeros(3, np.float32)

    def local_update(self, model, number):
        return np.ones(3, np.float32)

    def evaluate(self, model, final):
        return {"loss": 0.5}

def learner(user, users):
    return Good()
"""

Write = Callable[[str], str]


@pytest.fixture
def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Writes a module into the current directory, and names its `learner`. Its name is its own in this process."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))

    def write(text: str) -> str:
        name = f"learner_{abs(hash((text, tmp_path)))}"
        (tmp_path / f"{name}.py").write_text(text)
        return f"{name}:learner"

    return write


def refusal(spec: str) -> str:
    with pytest.raises(ConfigError) as refused:
        load_learner(spec, 0, 2)
    (problem,) = refused.value.problems
    assert problem.startswith(f'learner "{spec}": ')
    assert "\n" not in problem
    return problem.removeprefix(f'learner "{spec}": ')


# Built-in tasks


@pytest.mark.parametrize("task", ["quadratic", "logistic"])
def test_a_built_in_task_gives_its_users_numbers(task: str) -> None:
    model = ["model.kind=softmax"] if task == "logistic" else []
    problem = build_problem(load_config("tiny", [f"task.kind={task}", *model]))
    learner = TaskLearner(problem, user=3)
    learner.warm_up()
    start = learner.init()
    update = learner.local_update(start, 5)
    assert isinstance(update, np.ndarray)
    assert update.dtype == np.float32
    assert update.tobytes() == np.asarray(problem.local_update(start, 3, 5)).tobytes()
    scores = learner.evaluate(start, final=True)
    assert tuple(scores) == MEASURES
    assert scores["loss"] == problem.evaluate(start[None], True)[0].loss
    assert scores["samples"] == problem.test_samples(True)


def test_a_built_in_task_keeps_the_promises_asked_of_users() -> None:
    problem = build_problem(load_config("tiny", ["task.kind=quadratic"]))
    Checked(TaskLearner(problem, user=0), "quadratic").try_out()


# A user's own


def test_a_module_of_the_current_directory_is_found_and_told_who_it_is(written: Write) -> None:
    spec = written(GOOD.replace("return Good()", "good = Good()\n    good.who = user, users\n    return good"))
    learner = load_learner(spec, 1, 4)
    assert learner._learner.who == (1, 4)
    assert learner.init().tolist() == [0, 0, 0]
    assert learner.local_update(np.zeros(3, np.float32), 0).tolist() == [1, 1, 1]


def test_what_is_not_measured_is_not_a_number(written: Write) -> None:
    scores = load_learner(written(GOOD), 0, 2).evaluate(np.zeros(3, np.float32), False)
    assert tuple(scores) == MEASURES
    assert scores["loss"] == 0.5
    assert math.isnan(scores["accuracy"])
    assert scores["samples"] == 0


@pytest.mark.parametrize(
    ("promise", "broken", "told"),
    [
        ("np.zeros(3, np.float32)", "np.zeros(3)", "init() returned float64 numbers; make them float32"),
        ("np.zeros(3, np.float32)", "[0.0]", "init() returned an object of type list, not a NumPy array"),
        ("np.zeros(3, np.float32)", "np.zeros((3, 1), np.float32)", "init() returned an array of shape (3, 1)"),
        ("np.zeros(3, np.float32)", "np.zeros(0, np.float32)", "init() returned an empty array"),
        ("np.zeros(3, np.float32)", "np.full(3, np.nan, np.float32)", "init() returned 3 of 3 numbers that are not"),
        ("np.zeros(3, np.float32)", "np.random.rand(3).astype('f')", "init() returned two different models"),
        ("np.ones(3, np.float32)", "np.ones(3)", "local_update(model, 0) returned float64 numbers; make them float32"),
        ("np.ones(3, np.float32)", "None", "local_update(model, 0) returned nothing, not a NumPy array"),
        ("np.ones(3, np.float32)", "np.ones(4, np.float32)", "local_update(model, 0) returned 4 numbers for a model"),
        ("np.ones(3, np.float32)", "model / np.float32(0)", "numbers that are not finite; a smaller step may help"),
        ("{'loss': 0.5}", "0.5", "evaluate(model, False) returned an object of type float, not a dict"),
        ("{'loss': 0.5}", "{'acc': 0.5}", "evaluate(model, False) measured 'acc', which is none of accuracy, f1, loss"),
        ("{'loss': 0.5}", "{'accuracy': 93.0}", "gave accuracy = 93, which must be between 0 and 1"),
        ("{'loss': 0.5}", "{'loss': None}", "gave nothing for loss, not a number"),
        ("{'loss': 0.5}", "{'samples': -1}", "gave samples = -1, which must be a count"),
        ("return Good()", "pass", "it returned nothing without init, local_update and evaluate"),
        ("def evaluate", "def measure", "it returned an object of type Good without evaluate"),
        ("learner(user, users)", "learner(user)", "its call with (0, 2) raised TypeError: learner() takes 1"),
    ],
)
@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
def test_a_broken_promise_is_told_before_anything_starts(written: Write, promise: str, broken: str, told: str) -> None:
    text = GOOD.replace('"', "'").replace(promise, broken)
    assert broken in text
    assert told in refusal(written(text))


@pytest.mark.parametrize(
    ("line", "broken", "told"),
    [
        (5, "        return undefined", "init() raised NameError at {file}:5: name 'undefined' is not defined"),
        (8, "        model += 1", "local_update(model, 0) raised ValueError at {file}:8: output array is read-only"),
        (8, "        return np.stack([])", "local_update(model, 0) raised ValueError at {file}:8: need at least one"),
        (11, "        raise RuntimeError", "evaluate(model, False) raised RuntimeError at {file}:11"),
        (14, "    return Good(user)", "its call with (0, 2) raised TypeError at {file}:14: Good() takes no arguments"),
        (2, "import no_such_library", "importing {name} raised ModuleNotFoundError at {file}:2: No module named"),
        (2, "raise SystemExit('bye')", "importing {name} raised SystemExit at {file}:2: bye"),
        (2, "a b", "importing {name} raised SyntaxError at {file}:2: invalid syntax"),
    ],
)
def test_an_exception_in_a_users_code_is_told_with_its_place(written: Write, line: int, broken: str, told: str) -> None:
    lines = GOOD.splitlines()
    lines[line - 1] = broken
    spec = written("\n".join(lines))
    name = spec.partition(":")[0]
    assert refusal(spec).startswith(told.format(file=f"{name}.py", name=name))
    with pytest.raises(ConfigError) as refused:
        load_learner(spec, 0, 2)
    assert type(refused.value.__cause__).__name__ in told  # for who wants the traceback all the same


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        ("learner", 'it must be "module:function"'),
        ("a/b.py:learner", 'it must be "module:function"'),
        ("a:", 'it must be "module:function"'),
        ("no_such_module:learner", "there is no module no_such_module, neither installed nor in "),
        ("dracofl.no_such_module:learner", "there is no module dracofl.no_such_module"),
        ("math:learner", "has no function learner"),
        ("math:pi", "has no function pi"),
    ],
)
def test_a_name_that_leads_nowhere_is_told(spec: str, told: str) -> None:
    assert told in refusal(spec)


def test_an_error_that_is_a_sentence_already_is_passed_on(written: Write) -> None:
    raising = "from dracofl.errors import DracoError\nraise DracoError('PyTorch is missing')"
    assert refusal(written(raising)) == "PyTorch is missing"


# While it runs


class Moody:
    """Fine until its update number 3."""

    def __init__(self) -> None:
        self.update = np.zeros(2, np.float32)

    def init(self) -> np.ndarray:
        return np.zeros(2, np.float32)

    def local_update(self, model: np.ndarray, number: int) -> np.ndarray:
        if number == 3:
            return np.array([1, np.inf], np.float32)
        if number == 4:
            raise OSError("the sensor is gone")
        self.update += 1
        return self.update

    def evaluate(self, model: np.ndarray, final: bool) -> dict[str, float]:
        return {}


def test_a_learner_is_held_to_its_word_at_every_update() -> None:
    learner = Checked(Moody(), "moody:learner")
    model = learner.init()
    learner.local_update(model, 2)
    with pytest.raises(DracoError, match=r'learner "moody:learner": local_update\(model, 3\) returned 1 of 2 numbers'):
        learner.local_update(model, 3)
    with pytest.raises(DracoError, match=r"raised OSError at .*test_learners\.py:\d+: the sensor is gone"):
        learner.local_update(model, 4)


def test_a_learner_may_use_the_memory_of_its_update_again() -> None:
    learner = Checked(Moody(), "moody:learner")
    first = learner.local_update(learner.init(), 0)
    learner.local_update(learner.init(), 1)
    assert first.tolist() == [1, 1]


class Scratchpad(Moody):
    """Trains and evaluates in the same memory, as a PyTorch module does."""

    def local_update(self, model: np.ndarray, number: int) -> np.ndarray:
        return self._through_the_pad(model)

    def evaluate(self, model: np.ndarray, final: bool) -> dict[str, float]:
        return {"loss": float(self._through_the_pad(model)[0])}

    def _through_the_pad(self, model: np.ndarray) -> np.ndarray:
        self.update[:] = model
        time.sleep(0.002)
        return self.update


def test_training_and_evaluation_in_two_threads_do_not_meet() -> None:
    learner, ones = Checked(Scratchpad(), "pad:learner"), np.ones(2, np.float32)
    with ThreadPoolExecutor(2) as threads:
        scores = [threads.submit(learner.evaluate, 2 * ones, False) for _ in range(20)]
        updates = [threads.submit(learner.local_update, ones, number) for number in range(20)]
        together = threads.map(learner.local_update, [ones, 2 * ones] * 10, range(20))
        assert {score.result()["loss"] for score in scores} == {2.0}
        assert {float(update.result()[0]) for update in updates} == {1.0}
        assert [float(update[0]) for update in together] == [1.0, 2.0] * 10


def test_the_model_of_the_peer_stays_writeable() -> None:
    learner, model = Checked(Moody(), "moody:learner"), np.zeros(2, np.float32)
    learner.local_update(model, 0)
    assert model.flags.writeable


def test_learners_are_loaded_without_jax_pydantic_or_pyarrow() -> None:
    code = (
        "import sys; from dracofl.runtime.learners import load_learner; load_learner('numpy_learner:learner', 0, 2);"
        "sys.exit(', '.join({'jax', 'torch', 'pydantic', 'pyarrow'} & set(sys.modules)) or None)"
    )
    environ = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run([sys.executable, "-c", code], cwd=EXAMPLES, env=environ, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


# The example


def test_the_numpy_example_is_a_learner_that_learns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(EXAMPLES)
    monkeypatch.setattr(sys, "path", list(sys.path))
    peers = [load_learner("numpy_learner:learner", user, 2) for user in range(2)]
    model = peers[0].init()
    assert model.tobytes() == peers[1].init().tobytes()
    before = peers[0].evaluate(model, True)
    assert before["loss"] == peers[1].evaluate(model, True)["loss"]
    for number in range(5):
        updates = [peer.local_update(model, number) for peer in peers]
        assert not np.array_equal(*updates)
        model += sum(updates) / np.float32(2)
    assert peers[0].evaluate(model, True)["loss"] < 0.7 * before["loss"]


def test_the_numpy_example_runs_on_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(EXAMPLES / "numpy_learner.py"), run_name="__main__")
    accuracy = capsys.readouterr().out.split()[1]
    assert float(accuracy) > 0.9


@pytest.mark.parametrize("name", ["numpy_learner.py", "torch_learner.py"])
def test_an_example_has_at_most_30_lines_of_code(name: str) -> None:
    text = (EXAMPLES / name).read_text()
    tree = ast.parse(text)
    documented = [node for node in ast.walk(tree) if isinstance(node, ast.Module | ast.FunctionDef | ast.ClassDef)]
    told = sum(len((ast.get_docstring(node, clean=False) or "").splitlines()) for node in documented)
    assert len([line for line in text.splitlines() if line.strip()]) - told <= 30
