"""How errors are told to a person: a sentence, and an exit code that a script can tell apart."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

import typer

from dracofl.errors import ConfigError, DivergedError, DracoError, Interrupted


@contextmanager
def errors_explained(debug: bool) -> Iterator[None]:
    """A sentence and the right exit code for every error that is the user's to mend."""
    try:
        yield
    except DracoError as error:
        if debug:
            traceback.print_exc()
        fail(error)
    except KeyboardInterrupt:
        typer.echo("stopped; repeat the same command to go on", err=True)
        raise typer.Exit(Interrupted.exit_code) from None


def fail(error: DracoError) -> NoReturn:
    if isinstance(error, ConfigError) and len(error.problems) > 1:
        typer.echo(f"draco: {len(error.problems)} things are wrong with the configuration:", err=True)
        for problem in error.problems:
            typer.echo(f"  - {problem}", err=True)
    elif isinstance(error, Interrupted):
        typer.echo(str(error), err=True)
    elif isinstance(error, DivergedError):
        typer.echo(f"draco: the run diverged: {error}", err=True)
        typer.echo("  try a smaller train.step, fewer train.local_steps or a smaller method.own_weight", err=True)
        if error.folder:
            typer.echo(f"  everything up to there is in {error.folder}", err=True)
    else:
        typer.echo(f"draco: {error}", err=True)
    raise typer.Exit(error.exit_code)
