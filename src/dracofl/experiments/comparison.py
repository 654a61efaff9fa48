"""Methods side by side: the same configuration, seeds and air, each with the options that suit it best.

Fairness: for each method the step size, and for some one more option, is chosen from a small grid by the accuracy on
the validation split, with seeds other than the reported ones. The grid and the choice are part of the result.

A comparison folder holds `comparison.json` (what was asked), `tuning/` and `runs/` with every run folder, `tuning.json`
(the grid and what was chosen), `results.json`, `table.md` and the figures. Running it again continues it.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dracofl.config import kinds
from dracofl.config.load import load_config
from dracofl.config.schema import Config
from dracofl.errors import ConfigError, RunFolderError
from dracofl.experiments.engine import Job, Progress, run_all
from dracofl.telemetry.run import Run
from dracofl.telemetry.storage import storage_errors, write_atomically

LITERAL = "draco-literal"
VARIANTS: dict[str, tuple[str, tuple[str, ...]]] = {
    # The paper's text taken word for word.
    LITERAL: ("draco", ("method.weights=delivered", "method.own_weight=0.0", "method.hub=random")),
}
STEP_FACTORS = (0.25, 0.5, 1.0)  # of the configuration's train.step
SECOND_OPTION: dict[str, tuple[str, tuple[float | int, ...]]] = {
    "sync-symm": ("method.gamma", (0.5, 1.0)),
    "async-symm": ("method.iteration_s", (2.0, 10.0)),
    "async-push": ("method.local_updates", (1, 5)),
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
        known = [*kinds.sections()["method"], *VARIANTS]
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
            section, _, rest = override.partition(".")
            if section == "method":
                if rest.partition("=")[0] in fields:
                    mine.append(override)
            elif section in kinds.sections()["method"] or section in VARIANTS:
                if section == method:
                    mine.append(f"method.{rest}")
            else:
                mine.append(override)
        return load_config(self.source, [f"method.kind={kind}", *variant, *mine, f"seed={seed}", *changes])

    def configs(self) -> dict[str, list[Config]]:
        """Every reported run before tuning; raises if anything is wrong with any of them."""
        self._refuse_keys_of_nobody()
        return {method: [self.config(method, seed) for seed in self.seeds] for method in self.methods}

    def _refuse_keys_of_nobody(self) -> None:
        members = kinds.sections()["method"]
        present = {VARIANTS.get(method, (method, ()))[0] for method in self.methods}
        owned = {name for kind in present for name in members[kind].model_fields}
        problems = []
        for override in self.overrides:
            section, _, rest = override.partition(".")
            name = rest.partition("=")[0]
            if section == "method" and name == "kind":
                problems.append("method.kind is what is compared: name the methods with --methods")
            elif section == "method" and name not in owned:
                problems.append(f"method.{name}: none of {', '.join(self.methods)} has this key")
            elif (section in members or section in VARIANTS) and section not in self.methods:
                problems.append(f"{override}: {section} is not among the methods compared ({', '.join(self.methods)})")
        if problems:
            raise ConfigError(problems)


Announce = Callable[[str], Progress]
"""Given a headline, returns who is to be told of the progress under it."""


def compare(comparison: Comparison, folder: Path, announce: Announce) -> dict[str, list[Run]]:
    """Run it all, or what is left of it; the runs of each method, in the order of the seeds."""
    comparison.configs()
    _open(comparison, folder)
    chosen: dict[str, tuple[str, ...]] = dict.fromkeys(comparison.methods, ())
    if comparison.tune:
        chosen = _tune(comparison, folder, announce)
    jobs = {
        method: [
            Job(comparison.config(method, seed, *chosen[method]), folder / "runs" / method / f"seed-{seed}")
            for seed in comparison.seeds
        ]
        for method in comparison.methods
    }
    flat = run_all([job for several in jobs.values() for job in several], announce("comparing"))
    found = iter(flat)
    return {method: [next(found) for _ in several] for method, several in jobs.items()}


def _open(comparison: Comparison, folder: Path) -> None:
    asked = dataclasses.asdict(comparison)
    asked = json.loads(json.dumps(asked))
    file = folder / "comparison.json"
    if file.exists():
        if json.loads(file.read_text()) != asked:
            raise RunFolderError(
                f"{folder} holds another comparison (see {file.name} there): repeat its command to continue it, or "
                "name another folder with --out"
            )
        return
    if folder.is_dir() and any(folder.iterdir()):
        raise RunFolderError(f"{folder} exists and is not a comparison; name another with --out")
    with storage_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    write_json(file, asked)


def _tune(comparison: Comparison, folder: Path, announce: Announce) -> dict[str, tuple[str, ...]]:
    """First the step size, then, with it, the second option of the methods that have one."""
    steps = {
        method: [f"train.step={factor * comparison.config(method, 0).train.step!r}" for factor in STEP_FACTORS]
        for method in comparison.methods
    }
    scores = _scores(
        comparison, folder, {m: [(step,) for step in steps[m]] for m in steps}, announce("choosing step sizes")
    )
    chosen = {method: _best(scores[method]) for method in comparison.methods}
    given = {override.partition("=")[0] for override in comparison.overrides}
    second = {
        method: [(*chosen[method], f"{SECOND_OPTION[method][0]}={value}") for value in SECOND_OPTION[method][1]]
        for method in comparison.methods
        if method in SECOND_OPTION and SECOND_OPTION[method][0] not in given
    }
    more = _scores(comparison, folder, second, announce("choosing second options")) if second else {}
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
    comparison: Comparison, folder: Path, options: dict[str, list[tuple[str, ...]]], on_progress: Progress
) -> dict[str, Scores]:
    jobs, places = [], []
    for method, several in options.items():
        for option in several:
            for seed in TUNING_SEEDS:
                base = comparison.config(method, seed)
                changes = (f"duration_s={TUNING_SHARE * base.duration_s!r}", "evaluate.split=validation")
                name = "-".join(part.partition(".")[2].replace("=", "-") for part in option)
                jobs.append(
                    Job(
                        comparison.config(method, seed, *option, *changes),
                        folder / "tuning" / method / f"{name}-seed-{seed}",
                    )
                )
                places.append((method, option))
    found: dict[str, Scores] = {method: {} for method in options}
    for (method, option), run in zip(places, run_all(jobs, on_progress), strict=True):
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


def write_json(path: Path, data: Any) -> None:
    text = json.dumps(data, indent=2, allow_nan=False) + "\n"
    write_atomically(path, lambda file: file.write(text.encode()))


def parse_methods(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def seeds_from(count: int) -> Sequence[int]:
    return range(1, count + 1)
