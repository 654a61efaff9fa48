"""dracofl: machine learning across devices with no server, no rounds and no shared clock.

    import dracofl

    run = dracofl.run("tiny", ["method.psi=20"], seed=7)
    print(run.summary["accuracy"])

Importing this package is cheap; JAX and the rest are imported when a run starts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dracofl.config.schema import Config
    from dracofl.experiments.sweep_results import Sweep
    from dracofl.telemetry.run import Run

__version__ = "0.1.0"
__all__ = ["__version__", "configure", "load", "run", "sweep"]


def configure(source: str | Path | Mapping[str, Any] = "poker", overrides: Sequence[str] = ()) -> Config:
    """A checked configuration from a preset's name, a TOML file or nested keys, with overrides `key=value`."""
    from dracofl.config.load import load_config

    return load_config(source, overrides)


def run(
    config: Config | str | Path | Mapping[str, Any] = "poker",
    overrides: Sequence[str] = (),
    *,
    seed: int | None = None,
    out: str | Path | None = None,
) -> Run:
    """Simulate, and return what was found. The run folder is `out`, or a new one under `runs/`.

    Ctrl-C saves the run and raises `dracofl.errors.Interrupted`; `draco run FOLDER` continues it.
    """
    from dracofl.experiments.run import run_config

    return run_config(config, overrides, seed=seed, out=out)


def sweep(
    source: str | Path,
    overrides: Sequence[str],
    *,
    out: str | Path | None = None,
    workers: int | None = None,
    engine: str = "local",
    address: str | None = None,
) -> Sweep:
    """Run every combination of `key=a,b,c` and `key=1..5`, one process a core or (`engine="ray"`) on a Ray cluster.

    The folder is `out`, or one under `runs/` that the grid names: calling it again continues there. Ctrl-C saves the
    runs and raises KeyboardInterrupt. Worker processes import the script that calls this, so in a script the call
    belongs below `if __name__ == "__main__":`.
    """
    from dracofl.experiments.engine import open_engine
    from dracofl.experiments.sweep import read_grid, run_sweep
    from dracofl.experiments.sweep_results import write_results

    grid = read_grid(source, overrides)
    folder = grid.default_folder if out is None else Path(out)
    with open_engine(engine, address, workers) as pool:
        return write_results(grid, run_sweep(grid, folder, lambda _: lambda done, total: None, pool), folder)


def load(folder: str | Path) -> Run:
    """A finished run, read back from its folder."""
    from dracofl.telemetry.run import Run

    return Run(Path(folder))
