"""A run: the simulator writes the tape, the executor plays it, the recorder keeps what happened.

The simulator runs ahead in a thread of its own. Where it waits for the executor, between two stretches of tape, both
planes are at the same point; that is where a run is saved and may be stopped.
"""

from __future__ import annotations

import datetime
import itertools
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import pyarrow as pa

import dracofl
from dracofl.build import build_executor, build_problem, build_simulator, build_world, doubts_about
from dracofl.compute.evaluation import Evaluation
from dracofl.compute.executor import hash_of
from dracofl.compute.timings import Timings
from dracofl.config.consistency import doubts
from dracofl.config.load import load_config
from dracofl.config.render import to_toml
from dracofl.config.schema import Config
from dracofl.errors import DivergedError, Interrupted, RunFolderError
from dracofl.experiments import checkpoint
from dracofl.experiments.ahead import ControlThread
from dracofl.experiments.figures import draw_curves
from dracofl.experiments.watch import Silent, Stop, Watcher, stop_on_signals
from dracofl.sim.simulator import Stretch
from dracofl.telemetry.folder import RunFolder
from dracofl.telemetry.recorder import Recorder
from dracofl.telemetry.run import Run
from dracofl.telemetry.summary import summarise
from dracofl.telemetry.tables import MetricRow, concatenate, cut_at

_HAPPENINGS = ("events", "messages")
"""The tables that the control plane writes."""


def run_config(
    config: Config | str | Path | Mapping[str, Any],
    overrides: Sequence[str] = (),
    *,
    seed: int | None = None,
    out: str | Path | None = None,
    watcher: Watcher | None = None,
) -> Run:
    """Begin a run. Everything that can be wrong with the configuration is found before a folder is made."""
    name = config if isinstance(config, str) else "run"
    if isinstance(config, Config):
        config = config.model_dump()
    if seed is not None:
        overrides = [*overrides, f"seed={seed}"]
    checked = load_config(config, overrides)
    session = _Session(checked, watcher or Silent())
    path = Path(out) if out is not None else _new_path(Path(name).stem, checked.seed)
    folder = RunFolder.create(path, session.config_toml)
    return session.begin(folder)


def continue_run(path: str | Path, watcher: Watcher | None = None) -> Run:
    """Go on where a run was saved; a finished one is just read."""
    folder = RunFolder.open(Path(path))
    if folder.finished:
        return Run(folder.path)
    if (folder.path / "journal.jsonl").exists() or (folder.path / "peers").exists():
        raise RunFolderError(f"{folder.path} holds real peers, not a simulation: a peer goes on with draco node")
    session = _Session(load_config(folder.config_file), watcher or Silent())
    return session.begin(folder)


def _new_path(name: str, seed: int) -> Path:
    stamp = datetime.datetime.now().strftime("%Y%m%d-%H%M%S")
    base = Path("runs") / f"{name}-seed{seed}-{stamp}"
    others = (base.with_name(f"{base.name}-{number}") for number in itertools.count(2))
    return next(path for path in itertools.chain([base], others) if not path.exists())


class _Session:
    """One process's work on a run."""

    def __init__(self, config: Config, watcher: Watcher) -> None:
        self.config = config
        self.config_toml = to_toml(config, comments=False)
        self._watcher = watcher
        self._began = time.perf_counter()
        world = build_world(config)
        self._problem = build_problem(config)
        self._simulator = build_simulator(config, world, self._problem.parameter_count)
        self._timings = Timings()
        self._executor = build_executor(config, self._problem, self._timings)
        self._recorder = Recorder()
        self._happenings: dict[str, pa.Table] = {}  # the tables of the whole run, once it is known
        self._progress = checkpoint.Progress(
            parts=0, wall_s=0.0, setup_s=0.0, compile_s=0.0, next_checkpoint_s=config.checkpoint.every_s or float("inf")
        )
        for doubt in [*doubts(config), *doubts_about(world)]:
            watcher.doubted(doubt)

    def begin(self, folder: RunFolder) -> Run:
        with folder.lock(), stop_on_signals() as stop:
            if folder.state_file.exists():
                self._resume(folder)
            else:
                self._simulator.start()
            self._watcher.began(str(folder.path), self.config.duration_s, self._simulator.state.now_s)
            try:
                self._compile()
                self._play(folder, stop)
                self._finish(folder, None)
            except DivergedError as diverged:
                self._finish(folder, diverged)
                diverged.folder = str(folder.path)
                raise
            finally:
                self._executor.close()
                self._watcher.ended()
        return Run(folder.path)

    def _compile(self) -> None:
        before = time.perf_counter()
        self._setup_s = self._progress.setup_s + before - self._began
        self._executor.compile()
        self._compile_s = self._progress.compile_s + time.perf_counter() - before

    def _play(self, folder: RunFolder, stop: Stop) -> None:
        next_save_s = self._progress.next_checkpoint_s
        with ControlThread(
            self._simulator,
            self._executor,
            self._record_stretch,
            lambda: self._write_happenings(folder),
            self._timings,
            next_save_s=next_save_s,
        ) as control:
            for ready in control:
                self._executor.play(ready.prepared)
                self._record_evaluations(wait=ready.done)
                self._watcher.advanced(ready.now_s, ready.updates)
                if stop.requested or self._watcher.wants_to_stop():
                    control.pause()  # and play what it has written by now
                elif ready.to_be_saved:
                    self._save(folder)
                    control.saved(self._progress.next_checkpoint_s)
        if not self._simulator.state.done:
            self._save(folder)
            raise Interrupted(time_s=self._simulator.state.now_s, folder=str(folder.path))

    def _record_stretch(self, stretch: Stretch) -> None:
        self._recorder.add("events", stretch.events)
        self._recorder.add("messages", stretch.messages)

    def _record_evaluations(self, wait: bool) -> None:
        for evaluation in self._executor.evaluations(wait):
            self._record_evaluation(evaluation)

    def _record_evaluation(self, evaluation: Evaluation) -> None:
        self._recorder.add(
            "metrics",
            [
                MetricRow(
                    evaluation.at_s,
                    evaluation.events,
                    evaluation.samples,
                    evaluation.final,
                    user,
                    *scores,
                    float(distance),
                    *evaluation.mean_model,
                )
                for user, (scores, distance) in enumerate(zip(evaluation.users, evaluation.distances, strict=True))
            ],
        )
        self._watcher.evaluated(evaluation)

    def _save(self, folder: RunFolder) -> None:
        every_s, now_s = self.config.checkpoint.every_s, self._simulator.state.now_s
        progress = checkpoint.Progress(
            parts=self._progress.parts + 1,
            wall_s=self._wall_s(),
            setup_s=self._setup_s,
            compile_s=self._compile_s,
            next_checkpoint_s=(now_s // every_s + 1) * every_s if every_s else float("inf"),
        )
        self._record_evaluations(wait=True)
        with self._timings.under("writing"):
            # The rows first: until the state says so, they do not count.
            folder.write_part(self._progress.parts, self._recorder.take())
            checkpoint.save(folder, self.config_toml, progress, self._simulator, self._executor.state())
        self._progress, self._began = progress, time.perf_counter()

    def _resume(self, folder: RunFolder) -> None:
        progress, vectors, found = checkpoint.load(folder, self.config_toml, self._simulator)
        if not set(vectors) >= set(range(self.config.users)):
            raise RunFolderError(f"{folder.state_file} is damaged: it does not hold every user's model")
        self._executor.restore(vectors)
        self._progress = progress
        for doubt in found:
            self._watcher.doubted(doubt)

    def _wall_s(self) -> float:
        return self._progress.wall_s + time.perf_counter() - self._began

    def _finish(self, folder: RunFolder, diverged: DivergedError | None) -> None:
        self._record_evaluations(wait=True)
        with self._timings.under("writing"):
            tables = self._write_tables(folder, diverged)
        summary = self._summary(tables, diverged)
        if len(tables["metrics"]):
            draw_curves(tables["metrics"], summary, folder.picture_file)
        folder.write_summary(summary)

    def _write_happenings(self, folder: RunFolder) -> None:
        """All that the control plane had to say. It has said so before the data plane is done, so nobody waits."""
        with self._timings.under("writing"):
            self._happenings = self._gather(folder, _HAPPENINGS)
            folder.write_tables(self._happenings)

    def _write_tables(self, folder: RunFolder, diverged: DivergedError | None) -> dict[str, pa.Table]:
        metrics = self._gather(folder, ["metrics"])
        if diverged is None:
            folder.write_models(self._executor.models())
            folder.write_tables(metrics)
            return {**self._happenings, **metrics}
        if not self._happenings:  # they are not all written yet, and never will be
            self._recorder.add("messages", self._simulator.pending())
            self._happenings = self._gather(folder, _HAPPENINGS)
        tables = cut_at({**self._happenings, **metrics}, diverged.time_s)
        folder.write_tables(tables)
        return tables

    def _gather(self, folder: RunFolder, names: Sequence[str]) -> dict[str, pa.Table]:
        tables = self._recorder.take(names)
        if self._progress.parts:
            saved = folder.read_parts(self._progress.parts, names)
            tables = {name: concatenate(name, [saved[name], recent]) for name, recent in tables.items()}
        return tables

    def _summary(self, tables: dict[str, pa.Table], diverged: DivergedError | None) -> dict[str, Any]:
        config, found = self.config, summarise(tables, self.config.users)
        return {
            "status": "finished" if diverged is None else "diverged",
            "diverged": None
            if diverged is None
            else {"time_s": diverged.time_s, "user": diverged.user, "operation": diverged.operation},
            "method": config.method.kind,
            "task": config.task.kind,
            "topology": config.topology.kind,
            "channel": config.channel.kind,
            "executor": config.executor,
            "seed": config.seed,
            "users": config.users,
            "parameters": self._problem.parameter_count,
            "duration_s": config.duration_s,
            "wall_s": self._wall_s(),
            "setup_s": self._setup_s,
            "compile_s": self._compile_s,
            "seconds": self._timings.seconds,
            "sgd_steps": found["local_updates"] * self._problem.local_steps,
            **found,
            "trace_hash": self._simulator.trace.hexdigest() if diverged is None else None,
            "model_hash": hash_of(self._executor.models()) if diverged is None else None,
            "dracofl": dracofl.__version__,
            "jax": jax.__version__,
        }
