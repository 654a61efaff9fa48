"""The command `draco`: the only place that talks to a person.

Results go to standard output, everything else to standard error. Heavy imports wait until a command needs them, so
that `draco --help` answers at once.
"""

from __future__ import annotations

import sys
import traceback
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dracofl import cli_peers
from dracofl.cli_errors import errors_explained, fail
from dracofl.errors import ConfigError, DivergedError, DracoError, Interrupted

if TYPE_CHECKING:
    from dracofl.telemetry.run import Run

app = typer.Typer(
    name="draco",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="Train machine-learning models across devices with no server, no rounds and no shared clock.",
)


class Listing(StrEnum):
    METHODS = "methods"
    TOPOLOGIES = "topologies"
    CHANNELS = "channels"
    TASKS = "tasks"
    PRESETS = "presets"


class EngineName(StrEnum):
    LOCAL = "local"
    RAY = "ray"


EngineOption = Annotated[
    EngineName,
    typer.Option(
        "--engine", help="local: a process a core; ray: a Ray cluster whose machines share the folder of runs"
    ),
]
AddressOption = Annotated[
    str | None,
    typer.Option("--address", help="HOST:PORT of the Ray cluster; default RAY_ADDRESS, or the one on this machine"),
]


@app.command()
def run(
    source: Annotated[
        str,
        typer.Argument(metavar="PRESET | FILE.toml | RUN_FOLDER", help="what to run, or a run to continue"),
    ] = "poker",
    overrides: Annotated[
        list[str] | None, typer.Argument(metavar="key=value", help="changes, as in method.psi=20")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="of all random draws; the same as seed=N")] = None,
    out: Annotated[Path | None, typer.Option(help="the run folder to make; by default a new one in runs/")] = None,
    json: Annotated[bool, typer.Option("--json", help="print summary.json on standard output, nothing else")] = False,
    profile: Annotated[bool, typer.Option("--profile", help="show where the time went, on standard error")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="no progress or warnings on standard error")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="show the traceback of an error")] = False,
) -> None:
    """Simulate a network and show how well its users learned.

    \b
    draco run                           the preset poker
    draco run tiny method.psi=20        a preset with a change
    draco run my.toml --seed 7          a file of yours (draco show poker > my.toml)
    draco run runs/poker-seed1-...      continue a run that was stopped

    Ctrl-C saves the run. Exit codes: 0 finished, 2 bad input or a refused write, 3 diverged, 130 stopped and saved.
    """
    try:
        finished = _run(source, overrides or [], seed, out, quiet)
        if json:
            sys.stdout.write((finished.folder / "summary.json").read_text())
        else:
            from dracofl.screen import show_results

            show_results(finished)
        if profile:
            from dracofl.screen import show_profile

            show_profile(finished)
        if finished.summary["diverged"] is not None:  # a folder of old, as a new run would have raised
            raise DivergedError(**finished.summary["diverged"])
    except DracoError as error:
        if debug:
            traceback.print_exc()
        if json and isinstance(error, DivergedError) and error.folder:
            sys.stdout.write((Path(error.folder) / "summary.json").read_text())
        fail(error)
    except KeyboardInterrupt:  # before there was a run to save, or for the second time
        typer.echo("stopped at once; what was saved before is intact", err=True)
        raise typer.Exit(Interrupted.exit_code) from None


@app.command("list")
def list_(what: Annotated[Listing, typer.Argument(help="what to list")]) -> None:
    """List what there is to choose from, a line each."""
    from dracofl.config import kinds
    from dracofl.config.presets import PRESETS

    if what is Listing.PRESETS:
        lines = {name: preset.summary for name, preset in PRESETS.items()}
    else:
        section = {"methods": "method", "topologies": "topology", "channels": "channel", "tasks": "task"}[what]
        lines = {name: kinds.summary(member) for name, member in kinds.sections()[section].items()}
    width = max(map(len, lines))
    for name, line in lines.items():
        typer.echo(f"{name:<{width}}  {line}")


@app.command()
def show(
    source: Annotated[str, typer.Argument(metavar="PRESET | FILE.toml", help="the configuration to print")] = "poker",
    overrides: Annotated[list[str] | None, typer.Argument(metavar="key=value", help="changes to it")] = None,
) -> None:
    """Print a complete configuration as TOML: every key with its unit and meaning."""
    from dracofl.config.load import load_config
    from dracofl.config.render import to_toml

    try:
        typer.echo(to_toml(load_config(source, overrides or []), comments=True), nl=False)
    except DracoError as error:
        fail(error)


@app.command()
def compare(
    source: Annotated[str, typer.Argument(metavar="PRESET | FILE.toml", help="the configuration they share")],
    overrides: Annotated[
        list[str] | None,
        typer.Argument(metavar="key=value", help="changes; draco.key=value for one method, method.key=value for all"),
    ] = None,
    methods: Annotated[
        str, typer.Option(help="what to compare, separated by commas (draco list methods; also draco-literal)")
    ] = "draco,sync-symm,sync-push,async-symm,async-push",
    seeds: Annotated[int, typer.Option(help="how many seeds: 1 to N")] = 5,
    tune: Annotated[bool, typer.Option(help="choose each method's step size on the validation split first")] = True,
    out: Annotated[
        Path | None, typer.Option(help="the folder to make or continue; default runs/compare-PRESET")
    ] = None,
    engine: EngineOption = EngineName.LOCAL,
    address: AddressOption = None,
    debug: Annotated[bool, typer.Option("--debug", help="show the traceback of an error")] = False,
) -> None:
    """Put methods side by side on the same air: a table with confidence intervals, and figures.

    The same command continues a comparison that was stopped. A run that diverges is a result, and marked as such.
    """
    with errors_explained(debug):
        from dracofl.experiments.comparison import Comparison, parse_methods, seeds_from
        from dracofl.experiments.comparison import compare as run_comparison
        from dracofl.experiments.comparison_results import markdown_table, write_results
        from dracofl.experiments.engine import open_engine
        from dracofl.screen import Headlines

        comparison = Comparison(source, parse_methods(methods), tuple(seeds_from(seeds)), tuple(overrides or ()), tune)
        folder = out or Path("runs") / f"compare-{Path(source).stem}"
        with open_engine(engine, address) as workers, Headlines() as headlines:
            runs = run_comparison(comparison, folder, headlines.announce, workers)
            results = write_results(runs, folder, f"{Path(source).stem}: {len(runs)} methods")
        typer.echo(markdown_table(results))
        typer.echo(f"figures, table and runs are in {folder}")


@app.command()
def sweep(
    source: Annotated[str, typer.Argument(metavar="PRESET | FILE.toml", help="the configuration they share")],
    arguments: Annotated[
        list[str] | None,
        typer.Argument(metavar="key=a,b,c | key=1..5 | key=value", help="what varies, and what is set for all"),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="the folder to make or continue; default runs/sweep-PRESET-HASH of the grid")
    ] = None,
    workers: Annotated[int | None, typer.Option(help="runs at a time; default one a core, or what Ray has")] = None,
    engine: EngineOption = EngineName.LOCAL,
    address: AddressOption = None,
    debug: Annotated[bool, typer.Option("--debug", help="show the traceback of an error")] = False,
) -> None:
    """Run every combination of values: one table with a row per run, and a picture.

    \b
    draco sweep tiny method.psi=5,20,none seed=1..5      15 runs: a line over psi, with intervals over seeds
    draco sweep tiny train.step=0.1,0.5 users=4..8       10 runs: a heat map
    draco sweep poker topology.kind=cycle,complete duration_s=1000
    draco sweep tiny model.hidden=[32],[64,64]           commas in brackets or quotes belong to the value
    draco sweep tiny seed=1..100 --engine ray            on a Ray cluster (ray start --head begins one)

    All configurations are checked before the first run begins. The same command continues a sweep that was stopped and
    repeats nothing. A run that diverges is a result, and marked as such. With --engine ray every machine needs dracofl
    and must see the --out folder under the same path; a run whose worker dies goes on elsewhere.
    """
    with errors_explained(debug):
        from dracofl.experiments.engine import open_engine
        from dracofl.experiments.sweep import read_grid, run_sweep
        from dracofl.experiments.sweep_results import write_results
        from dracofl.screen import Headlines, show_sweep

        grid = read_grid(source, arguments or [])
        folder = out or grid.default_folder
        with open_engine(engine, address, workers) as pool, Headlines() as headlines:
            runs = run_sweep(grid, folder, headlines.announce, pool, headlines.run_advanced)
            found = write_results(grid, runs, folder)
        show_sweep(found)


@app.command()
def reproduce(
    figure: Annotated[str, typer.Argument(metavar="fig3a|fig3b|fig4a|fig4b|all", help="which figure of the paper")],
    quick: Annotated[
        bool, typer.Option("--quick", help="fewer seeds, shorter, embedded data, options not tuned")
    ] = False,
    seeds: Annotated[int | None, typer.Option(help="how many seeds; default 5, or 2 if quick")] = None,
    data: Annotated[Path | None, typer.Option(help="folder with the real data in emnist/ and poker/")] = None,
    out: Annotated[Path, typer.Option(help="where the runs go; the same command continues them")] = Path(
        "runs/reproduce"
    ),
    page: Annotated[
        Path | None, typer.Option(help="where claims.md and its pictures go; default the --out folder")
    ] = None,
    engine: EngineOption = EngineName.LOCAL,
    address: AddressOption = None,
    debug: Annotated[bool, typer.Option("--debug", help="show the traceback of an error")] = False,
) -> None:
    """Make the figures of the paper's experiments, and hold its claims against them.

    \b
    fig3a  the methods on EMNIST and a cycle        fig3b  on Poker hand and the complete graph
    fig4a  DRACO's budget Psi on EMNIST             fig4b  on Poker hand
    """
    with errors_explained(debug):
        from dracofl.experiments.engine import open_engine
        from dracofl.experiments.reproduce import FIGURES, plan
        from dracofl.experiments.reproduce import reproduce as make
        from dracofl.screen import Headlines

        plans = [plan(one, quick, seeds, data) for one in (FIGURES if figure == "all" else (figure,))]
        with open_engine(engine, address) as workers, Headlines() as headlines:
            path = make(plans, out, page, headlines.announce, workers)
        typer.echo(path.read_text())
        typer.echo(f"the page is {path}, the runs are in {out}")


cli_peers.add_to(app)

data_app = typer.Typer(help="Get the real data sets.", no_args_is_help=True)
app.add_typer(data_app, name="data")


@data_app.callback()
def _data() -> None: ...


class Fetchable(StrEnum):
    EMNIST = "emnist"
    POKER = "poker"


@data_app.command("fetch")
def fetch(
    name: Annotated[Fetchable, typer.Argument(help="which data set")],
    folder: Annotated[Path | None, typer.Option(help="where to; default the cache folder")] = None,
) -> None:
    """Download a data set, verify it, and put it where runs find it. A download that broke off goes on."""
    with errors_explained(debug=False):
        from dracofl.datasets.fetch import fetch as fetch_files

        typer.echo(str(fetch_files(name.value, folder)))


def _version(asked: bool) -> None:
    if asked:
        from dracofl import __version__

        typer.echo(f"dracofl {__version__}")
        raise typer.Exit


@app.callback()
def _draco(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="print the version and exit")
    ] = False,
) -> None: ...


def _run(source: str, overrides: list[str], seed: int | None, out: Path | None, quiet: bool) -> Run:
    if "=" in source and not Path(source).exists():
        source, overrides = "poker", [source, *overrides]  # the default preset with a change
    from dracofl.experiments.run import continue_run, run_config
    from dracofl.experiments.watch import Silent
    from dracofl.screen import Screen

    watcher = Silent() if quiet else Screen()
    if not Path(source).is_dir():
        return run_config(source, overrides, seed=seed, out=out, watcher=watcher)
    if overrides or seed is not None or out is not None:
        raise ConfigError(
            f"{source} is a run to be continued as it is: no changes, --seed or --out. For a new run like it: "
            f"draco run {Path(source) / 'config.toml'} ..."
        )
    return continue_run(source, watcher)


def main() -> None:
    app()
