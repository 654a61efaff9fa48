"""The commands about real peers: node, cluster, certs, replay."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dracofl.cli_errors import errors_explained
from dracofl.errors import DracoError, Interrupted

_MOST_SHOWN = 20  # differences
DebugOption = Annotated[bool, typer.Option("--debug", help="show the traceback of an error")]


def node(
    file: Annotated[Path, typer.Argument(metavar="NODE.toml", help="who this peer is, its neighbours, what it learns")],
    overrides: Annotated[
        list[str] | None, typer.Argument(metavar="key=value", help="changes, as in method.psi=20 or node.user=3")
    ] = None,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="talk to other machines though there are no certificates")
    ] = False,
    debug: DebugOption = False,
) -> None:
    """Run one real peer, until its duration is over, Ctrl-C or SIGTERM; started again, it goes on.

    \b
    NODE.toml has the keys of a configuration (draco show), and a section [node]:
      preset = "poker"                        to begin from, if not the defaults
      users = 5                               in the whole network, the same in every file
      channel = "none"                        the network as it is; "wireless" puts a radio in software before it
      compute.snapshot = "start"
      method.hub = "round-robin"
      [node]
      user = 0                                which one this is
      listen = ["tcp/0.0.0.0:7447"]           or tls/... with certificates
      connect = ["tcp/192.168.1.11:7447"]     neighbours, or any peers with discovery = true
      folder = "peer-0"                       its journal, its state and its results
      certificates = "certs"                  from draco certs; without them only this machine is listened to
      learner = "my_module:my_function"       a learner of yours; without it the task's samples of this user

    See docs/from-simulation-to-devices.md for the way from one laptop to five devices.
    """
    with errors_explained(debug):
        from dracofl.config.node import load_node
        from dracofl.experiments.node import run_node
        from dracofl.experiments.picture import end_with_picture
        from dracofl.screen import show_results
        from dracofl.screen_peers import NodeScreen

        changes = [*(overrides or []), *(["node.insecure=true"] if insecure else [])]
        config, section = load_node(file, changes)
        ended = run_node(config, section, NodeScreen())
        show_results(ended)
        if ended.summary["status"] == "stopped":  # the normal end of a peer, so no error
            typer.echo("stopped and saved; the same command goes on", err=True)
        end_with_picture(ended.folder)


def cluster(
    source: Annotated[str, typer.Argument(metavar="PRESET | FILE.toml", help="what they learn, and how")] = "poker",
    overrides: Annotated[
        list[str] | None,
        typer.Argument(metavar="key=value", help="changes; also time_scale=N, channel=none, node.key=value"),
    ] = None,
    nodes: Annotated[int, typer.Option(help="how many peers")] = 5,
    out: Annotated[Path | None, typer.Option(help="the run folder to make; by default a new one in runs/")] = None,
    debug: DebugOption = False,
) -> None:
    """Start real peers as processes on this machine, over loopback, and watch them learn together.

    \b
    draco cluster                                  five peers name poker hands, in some 90 seconds
    draco cluster tiny --nodes 8 method.psi=20     a preset with a change
    draco cluster poker channel=none               without the radio in software
    draco cluster poker time_scale=10              ten seconds of the preset in a real one

    If time_scale does not say how fast the clock runs, it makes it a minute, or longer if this machine would be too
    busy: a real millisecond is time_scale milliseconds of the preset, and what waits for a processor is late by that.

    What peers cannot do is replaced by what they can, and said. The folder is like that of `draco run`; `draco replay`
    of it does it all once more.
    """
    with errors_explained(debug):
        from dracofl.experiments.cluster import run_cluster
        from dracofl.screen import show_results
        from dracofl.screen_peers import ClusterScreen, show_settlement

        if "=" in source and not Path(source).exists():
            source, overrides = "poker", [source, *(overrides or [])]
        ended = run_cluster(source, nodes, overrides or [], out, ClusterScreen())
        show_results(ended)
        show_settlement(ended)
        if ended.summary["status"] == "stopped":
            typer.echo("stopped before its time; this is what there was until then", err=True)
            raise typer.Exit(Interrupted.exit_code)


def replay(
    folder: Annotated[Path, typer.Argument(metavar="RUN_FOLDER", help="of a cluster, or of one peer")],
    debug: DebugOption = False,
) -> None:
    """Do a real run once more from its journals, and say whether everything comes out the same.

    Every timer, arrival and finished training goes through the same cores again, in virtual time: they must decide the
    same. With the journals of all peers and built-in learners the models must be the same too, to the last bit.
    """
    with errors_explained(debug):
        from dracofl.experiments.replay import replay as play_again
        from dracofl.screen_peers import ReplayProgress

        with ReplayProgress() as progress:
            found = play_again(folder, progress.advanced)
        peers = _count(found.peers, "peer")
        for sentence in found.different[:_MOST_SHOWN]:
            typer.echo(f"different: {sentence}")
        if found.different:
            raise DracoError(f"{_count(len(found.different), 'difference')} in {found.inputs:,} inputs of {peers}")
        typer.echo(f"{peers}, {found.inputs:,} inputs: the same commands every time")
        if found.numbers:
            typer.echo(f"{found.equal_models} final models: the same to the last bit")
        else:
            typer.echo("the numbers were not made again: that needs the journals of all peers and built-in learners")


def _count(count: int, what: str) -> str:
    return f"{count:,} {what}" if count == 1 else f"{count:,} {what}s"


certs_app = typer.Typer(help="Make a private authority, and a certificate for each device.", no_args_is_help=True)


@certs_app.callback()
def _certs() -> None: ...


@certs_app.command("init")
def certs_init(
    folder: Annotated[Path, typer.Argument(help="where the authority is kept; its key stays on this machine")] = Path(
        "certs"
    ),
    days: Annotated[int, typer.Option(help="how long it is valid")] = 3650,
) -> None:
    """Make an authority of your own: authority.pem, which every device gets, and authority.key, which none does."""
    with errors_explained(debug=False):
        from dracofl.runtime.certificates import create_authority

        create_authority(folder, days=days)
        typer.echo(
            f"an authority is in {folder}; next: draco certs issue 0 --host ADDRESS_OF_DEVICE_0 --folder {folder}"
        )


@certs_app.command("issue")
def certs_issue(
    user: Annotated[int, typer.Argument(help="the number of the user that the device is (node.user)")],
    host: Annotated[list[str] | None, typer.Option("--host", help="its address or name; may be given again")] = None,
    folder: Annotated[Path, typer.Option(help="where the authority is")] = Path("certs"),
    days: Annotated[int, typer.Option(help="how long it is valid")] = 365,
) -> None:
    """Make the certificate of one device: peer-N.pem and peer-N.key, to be copied there with authority.pem."""
    with errors_explained(debug=False):
        from dracofl.runtime.certificates import issue

        made = issue(folder, user, host or ["127.0.0.1", "localhost"], days=days)
        typer.echo(f"copy {made.authority}, {made.certificate} and {made.key} to the device, and nothing else")


def add_to(app: typer.Typer) -> None:
    app.command()(node)
    app.command()(cluster)
    app.command()(replay)
    app.add_typer(certs_app, name="certs")
