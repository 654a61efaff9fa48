"""A grid of runs: every combination of the values of some keys, and one value for all of others.

    method.psi=5,20,none     a list         model.hidden=[32],[64,64]   commas within brackets or quotes do not count
    seed=1..5                a range, both ends included; 1..3,7 is a list with a range in it
    users=10                 the same for all

A sweep folder holds `sweep.json` (what was asked), `runs/` with every run folder, `results.parquet`, `table.md` and
`sweep.png`. Running it again continues it.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dracofl.build import build_problem, build_simulator, build_world
from dracofl.config.load import load_config
from dracofl.config.schema import Config
from dracofl.errors import ConfigError
from dracofl.experiments import work_folder
from dracofl.experiments.engine import Announce, Engine, Job, OnRun, run_all
from dracofl.telemetry.run import Run

MOST_RUNS = 10_000
_MOST_PROBLEMS = 12
_RANGE = re.compile(r"([+-]?\d{1,19})\.\.([+-]?\d{1,19})")
_LONGEST_NAME = 120


@dataclass(frozen=True)
class Axis:
    """A key that varies, and what it is set to, as it was written."""

    key: str
    values: tuple[str, ...]


@dataclass(frozen=True)
class Point:
    """One run of the grid: a value for each axis."""

    values: tuple[str, ...]
    config: Config


@dataclass(frozen=True)
class Grid:
    """What is to be run, all of it checked."""

    source: str
    axes: tuple[Axis, ...]
    fixed: tuple[tuple[str, str], ...]
    points: tuple[Point, ...]

    @property
    def dimensions(self) -> tuple[Axis, ...]:
        """Seeds are averaged over."""
        return tuple(axis for axis in self.axes if axis.key != "seed")

    @property
    def asked(self) -> dict[str, Any]:
        """The same whatever the order of the keys and their values."""
        return {
            "source": self.source,
            "grid": {axis.key: sorted(axis.values) for axis in sorted(self.axes, key=lambda axis: axis.key)},
            "fixed": dict(sorted(self.fixed)),
        }

    @property
    def default_folder(self) -> Path:
        digest = hashlib.sha256(json.dumps(self.asked).encode()).hexdigest()
        return Path("runs") / f"sweep-{Path(self.source).stem}-{digest[:8]}"

    def run_folder(self, point: Point) -> Path:
        """Within the folder of the sweep."""
        named = sorted(zip((axis.key for axis in self.axes), point.values, strict=True))
        exact = ",".join(f"{key}={value}" for key, value in named)
        safe = ",".join(f"{key}={re.sub(r'[^A-Za-z0-9._+-]', '_', value)}" for key, value in named)
        if safe != exact or len(safe) > _LONGEST_NAME:
            safe = f"{safe[:_LONGEST_NAME]}-{hashlib.sha256(exact.encode()).hexdigest()[:8]}"
        return Path("runs") / safe


def read_grid(source: str | Path, arguments: Sequence[str]) -> Grid:
    """From `key=value`, `key=a,b,c` and `key=1..5`; raises if anything is wrong with any of the runs."""
    problems: list[str] = []
    several: dict[str, list[str]] = {}
    fixed: dict[str, str] = {}
    for argument in arguments:
        key, equals, text = argument.partition("=")
        key, text = key.strip(), text.strip()
        if not equals or not all(key.split(".")):
            problems.append(f'"{argument}" must look like key=value, key=a,b,c or key=1..5, as in method.psi=5,20')
        elif key in several or key in fixed:
            problems.append(f"{key} is given twice; give all its values at once: {key}=a,b,c")
        else:
            try:
                values = parse_values(key, text)
            except ConfigError as error:
                problems += error.problems
                values = []
            if values == [text]:
                fixed[key] = text
            else:
                several[key] = values
    if problems:
        raise ConfigError(problems)
    if not several:
        raise ConfigError(
            "nothing varies: give a key several values, as in method.psi=5,20 or seed=1..5; for one run: draco run"
        )
    _refuse_too_many({key: len(values) for key, values in several.items()})
    axes = tuple(Axis(key, tuple(values)) for key, values in several.items())
    points = _load(str(source), axes, tuple(fixed.items()))
    return Grid(str(source), axes, tuple(fixed.items()), points)


def parse_values(key: str, text: str) -> list[str]:
    """What the key is set to, one after the other."""
    found: list[str] = []
    for part in split_at_commas(key, text):
        span = _RANGE.fullmatch(part)
        if not part:
            raise ConfigError(f'{key}: "{text}" has an empty value in it')
        if span is not None:
            first, last = int(span[1]), int(span[2])
            if last < first:
                raise ConfigError(f"{key}: the range {part} is empty; write the smaller number first")
            _refuse_too_many({key: last - first + 1})
            found += map(str, range(first, last + 1))
        elif _looks_like_a_range(part):
            raise ConfigError(f"{key}: {part} is not a range of whole numbers; list the values, as in {key}=0.1,0.2")
        else:
            found.append(part)
    return found


def split_at_commas(key: str, text: str) -> list[str]:
    """Parts between the commas that are outside of brackets and quotes."""
    if "," not in text:
        return [text]
    parts, quote, depth = [""], "", 0
    for character in text:
        if quote:
            quote = "" if character == quote else quote
        elif character in "\"'" and (depth or not parts[-1].strip()):  # within a word it is an apostrophe
            quote = character
        elif character in "[{":
            depth += 1
        elif character in "]}":
            depth = max(depth - 1, 0)
        elif character == "," and not depth:
            parts.append("")
            continue
        parts[-1] += character
    if quote or depth:
        raise ConfigError(f"{key}: in {text} a bracket or a quote is not closed")
    return [part.strip() for part in parts]


def _looks_like_a_range(text: str) -> bool:
    first, dots, last = text.partition("..")
    try:
        return bool(dots) and math.isfinite(float(first) + float(last.lstrip(".")))
    except ValueError:
        return False


def _refuse_too_many(counts: dict[str, int]) -> None:
    total = math.prod(counts.values())
    if total > MOST_RUNS:
        each = ", ".join(f"{key}: {count:,}" for key, count in counts.items())
        raise ConfigError(f"the grid has {total:,} runs ({each}); at most {MOST_RUNS:,}")


def _load(source: str, axes: Sequence[Axis], fixed: Sequence[tuple[str, str]]) -> tuple[Point, ...]:
    points: list[Point] = []
    known: dict[Config, tuple[str, ...]] = {}
    problems: dict[str, None] = {}
    for values in itertools.product(*(axis.values for axis in axes)):
        named = [*fixed, *((axis.key, value) for axis, value in zip(axes, values, strict=True))]
        try:
            config = load_config(source, [f"{key}={value}" for key, value in named])
        except ConfigError as error:
            problems |= dict.fromkeys(error.problems)
            continue
        twin = known.setdefault(config, values)
        if twin is not values:
            pairs = zip(axes, twin, values, strict=True)
            problems |= {
                f"{axis.key}: {one} and {other} are the same value, for the same run": None
                for axis, one, other in pairs
                if one != other or axis.values.count(one) > 1
            }
        points.append(Point(values, config))
    if problems:
        shown = list(problems)[:_MOST_PROBLEMS]
        rest = len(problems) - len(shown)
        raise ConfigError([*shown, *([f"and {rest:,} more of the kind"] if rest else [])])
    return tuple(points)


def run_sweep(
    grid: Grid, folder: Path, announce: Announce, engine: Engine | None = None, on_run: OnRun | None = None
) -> list[Run]:
    """Run it all, or what is left of it; the runs in the order of the points."""
    work_folder.begin_or_continue("sweep", grid.asked, folder, lambda: _check(grid, announce))
    jobs = [Job(point.config, folder / grid.run_folder(point)) for point in grid.points]
    return run_all(jobs, announce(f"sweeping {len(jobs)} runs"), engine, on_run)


def _check(grid: Grid, announce: Announce) -> None:
    """Find now what would otherwise end it hours from now: in the data, the graphs."""
    on_progress: Callable[[float, float], None] | None = None
    sizes: dict[tuple[Any, ...], int] = {}
    for number, point in enumerate(grid.points):
        config = point.config
        data = (config.users, config.task, config.data, config.model, config.train, config.evaluate)
        if data not in sizes:  # whatever the seed, it is as much
            sizes[data] = build_problem(config).parameter_count
        build_simulator(config, build_world(config), sizes[data])
        if number % 100 == 99:
            on_progress = on_progress or announce(f"checking {len(grid.points)} configurations")
            on_progress(number + 1, len(grid.points))
