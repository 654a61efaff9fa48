"""Methods side by side: the same configuration, seeds and air, each with the options that suit it best.

Fairness: for each method the step size, and for some one more option, is chosen from a small grid by the accuracy on
the validation split, with seeds other than the reported ones. The grid and the choice are part of the result.

A comparison folder holds `comparison.json` (what was asked), `tuning/` and `runs/` with every run folder, `tuning.json`
(the grid and what was chosen), `results.json`, `table.md` and the figures. Running it again continues it.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dracofl.build import build_problem, build_simulator, build_world
from dracofl.config import kinds
from dracofl.config.load import load_config
from dracofl.config.schema import Config
from dracofl.errors import ConfigError, DataError
from dracofl.experiments import work_folder
from dracofl.experiments.engine import Announce, Engine, Job, Progress, run_all
from dracofl.experiments.work_folder import write_json
from dracofl.telemetry.run import Run

LITERAL = "draco-literal"
VARIANTS: dict[str, tuple[str, tuple[str, ...]]] = {
    # The paper's text taken word for word.
    LITERAL: ("draco", ("method.weights=delivered", "method.own_weight=0.0", "method.hub=random")),
}
STEP_FACTORS = (0.25, 0.5, 1.0)  # of the configuration's train.step
SECOND_OPTION: dict[str, tuple[str, tuple[float | int, ...]]] = {
    "sync-symm": ("gamma", (0.5, 1.0)),
    "async-symm": ("iteration_s", (2.0, 10.0)),
    "async-push": ("local_updates", (1, 5)),
}
TUNING_SEEDS = (1001,)
TUNING_SHARE = 0.5  # of the duration


@dataclass(frozen=True)
class Comparison:
    """What is to be compared."""

    source: str
    methods: tuple[str, ...]
    seeds: tuple[int, ...]
    overrides: tuple[str, ...] = ()
    tune: bool = True

    def __post_init__(self) -> None:
        problems = []
        known = _known_methods()
        problems += [
            f'"{name}" is not a method; choose from {", ".join(known)}' for name in self.methods if name not in known
        ]
        if not self.methods:
            problems.append(f"no methods to compare; choose from {', '.join(known)}")
        if len(set(self.methods)) < len(self.methods):
            problems.append(f"a method is named twice in {', '.join(self.methods)}")
        if not self.seeds:
            problems.append("no seeds to run: --seeds must be at least 1")
        if set(self.seeds) & set(TUNING_SEEDS):
            problems.append(f"seeds {TUNING_SEEDS} are for choosing options; report others")
        if problems:
            raise ConfigError(problems)

    def config(self, method: str, seed: int, *changes: str) -> Config:
        """This method's configuration. `method.key` overrides go to the methods that have the key."""
        kind, variant = VARIANTS.get(method, (method, ()))
        fields = kinds.sections()["method"][kind].model_fields
        mine = []
        for override in self.overrides:
            section, name = _split_key(override)
            if not name or section not in ("method", *_known_methods()):
                mine.append(override)
            elif section == method:
                mine.append(f"method.{override.partition('.')[2]}")
            elif section == "method" and name in fields:
                mine.append(override)
        return load_config(self.source, [f"method.kind={kind}", *variant, *mine, f"seed={seed}", *changes])

    def tuning_config(self, method: str, seed: int, *changes: str) -> Config:
        """The same for choosing options: shorter, and judged on the validation split."""
        duration_s = TUNING_SHARE * self.config(method, seed).duration_s
        return self.config(method, seed, *changes, f"duration_s={duration_s!r}", "evaluate.split=validation")

    def gives(self, method: str, name: str) -> bool:
        """Whether an override sets this option of the method: then there is nothing to choose."""
        return any(_split_key(override) in (("method", name), (method, name)) for override in self.overrides)

    def configs(self) -> list[Config]:
        """Of every run, with options not yet chosen; raises if anything is wrong with any of them."""
        self._refuse_keys_of_nobody()
        found = [self.config(method, seed) for method in self.methods for seed in self.seeds]
        if self.tune:
            found += [self.tuning_config(method, seed) for method in self.methods for seed in TUNING_SEEDS]
        return found

    def _refuse_keys_of_nobody(self) -> None:
        members = kinds.sections()["method"]
        present = {VARIANTS.get(method, (method, ()))[0] for method in self.methods}
        owned = {name for kind in present for name in members[kind].model_fields}
        problems = []
        for override in self.overrides:
            section, name = _split_key(override)
            if (section, name) == ("seed", ""):
                problems.append("seed is what is averaged over: say how many with --seeds")
            elif not name or section not in ("method", *_known_methods()):
                continue
            elif name == "kind":
                problems.append(f"{section}.kind is what is compared: name the methods with --methods")
            elif section == "method" and name not in owned:
                problems.append(f"method.{name}: none of {', '.join(self.methods)} has this key")
            elif section not in ("method", *self.methods):
                problems.append(f"{override}: {section} is not among the methods compared ({', '.join(self.methods)})")
        if problems:
            raise ConfigError(problems)


def _known_methods() -> tuple[str, ...]:
    return (*kinds.sections()["method"], *VARIANTS)


def _split_key(override: str) -> tuple[str, str]:
    """Section and name, as in method.psi=20."""
    section, _, name = override.partition("=")[0].partition(".")
    return section.strip(), name.strip()


def compare(
    comparison: Comparison, folder: Path, announce: Announce, engine: Engine | None = None
) -> dict[str, list[Run]]:
    """Run it all, or what is left of it; the runs of each method, in the order of the seeds."""
    _open(comparison, folder)
    chosen: dict[str, tuple[str, ...]] = dict.fromkeys(comparison.methods, ())
    if comparison.tune:
        chosen = _tune(comparison, folder, announce, engine)
    jobs = {
        method: [
            Job(comparison.config(method, seed, *chosen[method]), folder / "runs" / method / f"seed-{seed}")
            for seed in comparison.seeds
        ]
        for method in comparison.methods
    }
    flat = run_all([job for several in jobs.values() for job in several], announce("comparing"), engine)
    found = iter(flat)
    return {method: [next(found) for _ in several] for method, several in jobs.items()}


def check(comparison: Comparison) -> None:
    """Find now what would otherwise end it hours from now: in the keys, the data, the graphs."""
    configs = comparison.configs()
    last = configs[-1]  # if there are options to choose, it is of a run on the validation split
    problem = build_problem(last)  # the data are the same for all methods
    if last.evaluate.split == "validation" and last.task.kind != "quadratic" and not problem.test_samples(final=True):
        raise DataError(
            f"{last.data.dir} holds no samples for validation, on which options are chosen; get more of the data, or "
            "take the options as they are with --no-tune"
        )
    for config in configs:
        build_simulator(config, build_world(config), problem.parameter_count)


def may_begin(comparison: Comparison, folder: Path) -> bool:
    """True if there is nothing in the folder yet, False if this comparison was begun there; all else is refused."""
    return work_folder.may_begin("comparison", _as_json(comparison), folder)


def _open(comparison: Comparison, folder: Path) -> None:
    work_folder.begin_or_continue("comparison", _as_json(comparison), folder, lambda: check(comparison))


def _as_json(comparison: Comparison) -> Any:
    return json.loads(json.dumps(dataclasses.asdict(comparison)))


def _tune(
    comparison: Comparison, folder: Path, announce: Announce, engine: Engine | None
) -> dict[str, tuple[str, ...]]:
    """First the step size, then, with it, the second option of the methods that have one."""
    steps = {
        method: [f"train.step={factor * comparison.config(method, 0).train.step!r}" for factor in STEP_FACTORS]
        for method in comparison.methods
    }
    options: dict[str, list[tuple[str, ...]]] = {method: [(step,) for step in steps[method]] for method in steps}
    scores = _scores(comparison, folder, options, announce("choosing step sizes"), engine)
    chosen = {method: _best(scores[method]) for method in comparison.methods}
    second = {
        method: [(*chosen[method], f"method.{SECOND_OPTION[method][0]}={value}") for value in SECOND_OPTION[method][1]]
        for method in comparison.methods
        if method in SECOND_OPTION and not comparison.gives(method, SECOND_OPTION[method][0])
    }
    more = _scores(comparison, folder, second, announce("choosing second options"), engine) if second else {}
    chosen |= {method: _best(more[method]) for method in more}
    write_json(
        folder / "tuning.json",
        {
            "seeds": list(TUNING_SEEDS),
            "duration_s": TUNING_SHARE * comparison.config(comparison.methods[0], 0).duration_s,
            "split": "validation",
            "scores": {
                method: {" ".join(option): score for option, score in (scores[method] | more.get(method, {})).items()}
                for method in comparison.methods
            },
            "chosen": {method: list(option) for method, option in chosen.items()},
        },
    )
    return chosen


Scores = dict[tuple[str, ...], float | None]


def _scores(
    comparison: Comparison,
    folder: Path,
    options: dict[str, list[tuple[str, ...]]],
    on_progress: Progress,
    engine: Engine | None,
) -> dict[str, Scores]:
    jobs, places = [], []
    for method, several in options.items():
        for option in several:
            for seed in TUNING_SEEDS:
                config = comparison.tuning_config(method, seed, *option)
                name = "-".join(part.partition(".")[2].replace("=", "-") for part in option)
                jobs.append(Job(config, folder / "tuning" / method / f"{name}-seed-{seed}"))
                places.append((method, option))
    found: dict[str, Scores] = {method: {} for method in options}
    for (method, option), run in zip(places, run_all(jobs, on_progress, engine), strict=True):
        score = quality(run)
        before = found[method].get(option, 0.0)
        found[method][option] = None if score is None or before is None else before + score / len(TUNING_SEEDS)
    return found


def quality(run: Run) -> float | None:
    """Higher is better: the users' mean accuracy, or minus their loss where there are no classes; None if diverged."""
    if run.summary["status"] != "finished":
        return None
    if run.summary["accuracy"]["mean"] is not None:
        return float(run.summary["accuracy"]["mean"])
    loss = run.summary["loss"]["mean"]
    return None if loss is None else -float(loss)


def _best(scores: Scores) -> tuple[str, ...]:
    """The best of those that did not diverge; if all did, the first, which is the most careful."""
    finished = {option: score for option, score in scores.items() if score is not None}
    return max(finished, key=lambda option: finished[option]) if finished else next(iter(scores))


def parse_methods(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def seeds_from(count: int) -> Sequence[int]:
    return range(1, count + 1)
