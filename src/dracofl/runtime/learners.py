"""What a real peer learns with: a built-in task, or any object of the user's with three methods.

A learner sees flat float32 vectors and nothing else of the system: no neighbours, no messages, no clock. Only NumPy is
imported here, so that a user's learner may come with whatever it likes and a peer without JAX can run it.
"""

from __future__ import annotations

import importlib
import math
import os
import sys
import sysconfig
import threading
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from dracofl.compute.arithmetic import are_finite
from dracofl.errors import ConfigError, DracoError

if TYPE_CHECKING:
    from dracofl.compute.problem import Problem

METHODS = ("init", "local_update", "evaluate")
MEASURES = ("accuracy", "f1", "loss", "samples")


class Learner(Protocol):
    """A user's is called by several threads, but never by two at once: see `Checked`."""

    def init(self) -> np.ndarray:
        """The model to begin with: flat, float32, and the same at every peer."""
        ...

    def local_update(self, model: np.ndarray, number: int) -> np.ndarray:
        """Train from this model and return the update, new minus old; keep `model` as it is, and no reference to it.

        `number` counts this peer's local updates from 0. The same one may be asked for again: number 0 is tried out
        before the clock starts.
        """
        ...

    def evaluate(self, model: np.ndarray, final: bool) -> Mapping[str, float]:
        """Any of accuracy, f1, loss and samples (how many they were measured on). `final` is for the last time."""
        ...


class TaskLearner:
    """A built-in task, as one user sees it."""

    def __init__(self, problem: Problem, user: int) -> None:
        self._problem = problem
        self._user = user

    def init(self) -> np.ndarray:
        return self._problem.init()

    def local_update(self, model: np.ndarray, number: int) -> np.ndarray:
        return np.asarray(self._problem.local_update(model, self._user, number))

    def evaluate(self, model: np.ndarray, final: bool) -> dict[str, float]:
        (scores,) = self._problem.evaluate(model[None], final)
        return {**scores._asdict(), "samples": self._problem.test_samples(final)}

    def warm_up(self) -> None:
        """Compile now what would otherwise be compiled in the first update and the first evaluation."""
        self.local_update(self.init(), 0)
        self._problem.compile_evaluation()


class Checked:
    """A user's learner, held to its word at every call: what is wrong is told by its name, here and not by neighbours.

    The models it is given cannot be written to. What it returns is copied, so it may use the memory again. Calls wait
    for each other: training and evaluation often share one model object, and each would spoil the other's numbers.
    """

    def __init__(self, learner: Learner, name: str) -> None:
        self._learner = learner
        self.name = name
        self._in_use = threading.Lock()

    def init(self) -> np.ndarray:
        with self._in_use:
            return self._vector("init()", self._call("init()", self._learner.init))

    def local_update(self, model: np.ndarray, number: int) -> np.ndarray:
        what = f"local_update(model, {number})"
        with self._in_use:
            update = self._call(what, self._learner.local_update, _read_only(model), number)
            return self._vector(what, update, len(model))

    def evaluate(self, model: np.ndarray, final: bool) -> dict[str, float]:
        """All measures. Scores that were not measured are not numbers, and samples that were not counted are 0."""
        what = f"evaluate(model, {final})"
        with self._in_use:
            found = self._call(what, self._learner.evaluate, _read_only(model), final)
            return self._scores(what, found)

    def try_out(self) -> None:
        """Use every method, before the clock starts."""
        model = self.init()
        if not np.array_equal(model, self.init()):
            raise self._error("init() returned two different models; all peers must begin with the same, so seed it")
        self.local_update(model, 0)
        self.evaluate(model, False)

    def _call(self, what: str, method: Callable[..., Any], *arguments: object) -> Any:
        try:
            return method(*arguments)
        except DracoError as error:  # a sentence already
            raise self._error(str(error)) from error
        except (Exception, SystemExit) as error:
            raise self._error(f"{what} raised {explained(error)}") from error

    def _vector(self, what: str, numbers: object, length: int | None = None) -> np.ndarray:
        if not isinstance(numbers, np.ndarray):
            raise self._error(f"{what} returned {_kind(numbers)}, not a NumPy array")
        if numbers.dtype != np.float32:
            raise self._error(f"{what} returned {numbers.dtype} numbers; make them float32 with .astype(np.float32)")
        if numbers.ndim != 1:
            raise self._error(f"{what} returned an array of shape {numbers.shape}; make it flat with .ravel()")
        if not len(numbers):
            raise self._error(f"{what} returned an empty array")
        if length is not None and len(numbers) != length:
            raise self._error(f"{what} returned {len(numbers)} numbers for a model of {length}")
        if not are_finite(numbers):
            count = np.count_nonzero(~np.isfinite(numbers))
            advice = "" if length is None else "; a smaller step may help"
            raise self._error(f"{what} returned {count} of {len(numbers)} numbers that are not finite{advice}")
        return np.array(numbers)

    def _scores(self, what: str, found: object) -> dict[str, float]:
        if not isinstance(found, Mapping):
            raise self._error(f"{what} returned {_kind(found)}, not a dict with any of {_listed(MEASURES)}")
        for unknown in [name for name in found if name not in MEASURES]:
            raise self._error(f"{what} measured {unknown!r}, which is none of {_listed(MEASURES)}")
        measured = {**dict.fromkeys(MEASURES, math.nan), "samples": 0.0}
        for name, value in found.items():
            try:
                measured[name] = float(value)
            except (TypeError, ValueError):
                raise self._error(f"{what} gave {_kind(value)} for {name}, not a number") from None
        for name in ("accuracy", "f1"):
            if measured[name] < 0 or measured[name] > 1:
                raise self._error(f"{what} gave {name} = {measured[name]:g}, which must be between 0 and 1")
        if not 0 <= measured["samples"] < math.inf:
            raise self._error(f"{what} gave samples = {measured['samples']:g}, which must be a count")
        return measured

    def _error(self, problem: str) -> DracoError:
        return DracoError(f'learner "{self.name}": {problem}')


def load_learner(spec: str, user: int, users: int) -> Checked:
    """The learner that "module:function", called with (user, users), returns; tried out, so that it will do.

    The module is looked for in the current directory first, as `python -m` does.
    """
    function = _find(spec)
    try:
        learner = function(user, users)
    except DracoError as error:
        raise ConfigError(f'learner "{spec}": {error}') from error
    except (Exception, SystemExit) as error:
        raise ConfigError(f'learner "{spec}": its call with ({user}, {users}) raised {explained(error)}') from error
    missing = [method for method in METHODS if not callable(getattr(learner, method, None))]
    if missing:
        raise ConfigError(
            f'learner "{spec}": it returned {_kind(learner)} without {_listed(missing)}; '
            f"a learner has the methods {_listed(METHODS)}"
        )
    checked = Checked(learner, spec)
    try:
        checked.try_out()
    except DracoError as error:
        raise ConfigError(str(error)) from error.__cause__ or error
    return checked


def explained(error: BaseException) -> str:
    """An exception of a user's code in one line: its type, the place in the user's files, and what it says."""
    said = str(error.msg if isinstance(error, SyntaxError) else error).strip()
    first = f": {said.splitlines()[0]}" if said else ""
    return f"{type(error).__name__}{_place(error)}{first}"


def _find(spec: str) -> Callable[[int, int], Any]:
    module_name, colon, name = spec.partition(":")
    if not colon or not name.isidentifier() or not all(part.isidentifier() for part in module_name.split(".")):
        raise ConfigError(f'learner "{spec}": it must be "module:function", such as "numpy_learner:learner"')
    here = os.getcwd()
    if here not in sys.path and "" not in sys.path:
        sys.path.insert(0, here)  # and there it stays: the module may import others of its folder later
    try:
        module = importlib.import_module(module_name)
    except DracoError as error:
        raise ConfigError(f'learner "{spec}": {error}') from error
    except (Exception, SystemExit) as error:
        if isinstance(error, ModuleNotFoundError) and f"{module_name}.".startswith(f"{error.name}."):
            problem = f"there is no module {error.name}, neither installed nor in {here}"
        else:
            problem = f"importing {module_name} raised {explained(error)}"
        raise ConfigError(f'learner "{spec}": {problem}') from error
    function = getattr(module, name, None)
    if not callable(function):
        file = getattr(module, "__file__", None)  # by which the wrong module of that name is known
        where = f" ({_short(file)})" if file else ""
        raise ConfigError(f'learner "{spec}": {module_name}{where} has no function {name}')
    found: Callable[[int, int], Any] = function
    return found


def _place(error: BaseException) -> str:
    """Where the user's own code stood: what is below it, in libraries, and above it, here, is not theirs to mend."""
    if isinstance(error, SyntaxError) and error.filename and not error.filename.startswith("<"):
        return f" at {_short(error.filename)}:{error.lineno}"
    ours = str(Path(__file__).parents[1]) + os.sep
    frames = [
        frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith((ours, "<"))
    ]
    libraries = tuple(sysconfig.get_paths()[key] + os.sep for key in ("stdlib", "platstdlib", "purelib", "platlib"))
    theirs = [frame for frame in frames if not frame.filename.startswith(libraries)] or frames
    return f" at {_short(theirs[-1].filename)}:{theirs[-1].lineno}" if theirs else ""


def _short(file: str) -> str:
    return file.removeprefix(os.getcwd() + os.sep)


def _read_only(model: np.ndarray) -> np.ndarray:
    view = model.view()
    view.flags.writeable = False
    return view


def _kind(value: object) -> str:
    return "nothing" if value is None else f"an object of type {type(value).__name__}"


def _listed(names: tuple[str, ...] | list[str]) -> str:
    *others, last = names
    return f"{', '.join(others)} and {last}" if others else last
