"""What a person sees of real peers while they run. The eyes of `cli_peers`."""

from __future__ import annotations

import math
import sys
import time
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.progress import BarColumn, Progress, TextColumn
from rich.table import Table

from dracofl.config.node import Node
from dracofl.config.schema import Config
from dracofl.runtime.service import Service
from dracofl.telemetry.run import Run

_LINE_EVERY_S = 10.0
_LOUD_AFTER_S = 3.0  # real seconds after which it is told who is missing


class NodeScreen:
    """One peer: how many neighbours it reaches, whenever that changes, and how it does, now and then."""

    def __init__(self) -> None:
        self._console = Console(stderr=True, highlight=False, soft_wrap=True)
        self._neighbours: tuple[int, ...] = ()
        self._addresses: tuple[str, ...] = ()
        self._reached: tuple[int, ...] | None = None
        self._deaf: set[int] = set()
        self._began = self._told = time.monotonic()

    def ready(self) -> float | None:
        return None

    def began(self, node: Node, neighbours: tuple[int, ...], folder: str, resumed: bool) -> None:
        self._neighbours, self._addresses = neighbours, node.connect
        self._began = self._told = time.monotonic()
        how = "goes on" if resumed else "begins"
        self._say(f"peer {node.user} {how}, listens at {', '.join(node.listen)}, and writes to {folder}")

    def passed(self, service: Service, now_s: float) -> None:
        reached = service.peer.core.reachable()
        waited = time.monotonic() - self._began > _LOUD_AFTER_S
        if reached != self._reached and (waited or len(reached) == len(self._neighbours)):
            self._reached = reached
            self._tell_neighbours(service.peer.user, reached)
        if service.peer.deaf_to_us != self._deaf:
            self._deaf = set(service.peer.deaf_to_us)
            self._tell_deaf(service.peer.user)
        if time.monotonic() - self._told > _LINE_EVERY_S:
            self._told = time.monotonic()
            node = service.peer.core.node.state
            score = service.scores.get("accuracy", math.nan)
            shown = "" if math.isnan(score) else f", accuracy {score:.4f}"  # not a number: no classes
            self._say(
                f"t = {now_s:.0f} s: {node.finished} updates, {service.peer.applied} applied, "
                f"{service.peer.refused} refused{shown}"
            )

    def wants_to_stop(self) -> bool:
        return False

    def _tell_neighbours(self, user: int, reached: tuple[int, ...]) -> None:
        missing = [other for other in self._neighbours if other not in reached]
        said = f"PEER {user} REACHES {len(reached)} OF {len(self._neighbours)} NEIGHBOURS"
        if missing:
            said += (
                f": not {', '.join(map(str, missing))}. Are they running, are the addresses right "
                f"({', '.join(self._addresses) or 'none is given'}), and are their certificates of the same authority?"
            )
        self._say(said)

    def _tell_deaf(self, user: int) -> None:
        if not self._deaf:
            self._say(f"PEER {user} IS HEARD BY ALL AGAIN")
            return
        self._say(
            f"PEER {user} IS NOT HEARD BY {', '.join(map(str, sorted(self._deaf)))}: a peer {user} was started after "
            f"this one. Is another device user {user}, too (node.user)? Stop one of them, and start the other again. "
            "Or did this device lose its folder, and is its clock wrong?"
        )

    def _say(self, text: str) -> None:
        self._console.print(text, markup=False)


class ClusterScreen:
    """A line a peer, live; where there is no terminal, lines now and then."""

    def __init__(self) -> None:
        self._console = Console(stderr=True, highlight=False, soft_wrap=True)
        self._live: Live | None = None
        self._told = time.monotonic()
        self._duration_s = 0.0

    def said(self, sentence: str) -> None:
        self._console.print(f"note: {sentence}", markup=False)

    def began(self, folder: str, config: Config, time_scale: float) -> None:
        self._duration_s = config.duration_s
        real_s = config.duration_s / time_scale
        self._console.print(
            f"{config.users} peers, each a process of its own, in {folder}; {config.duration_s:g} s at "
            f"{time_scale:.3g} times the speed take {real_s:.0f} s, once they are ready",
            markup=False,
        )
        if sys.stderr.isatty():
            self._live = Live(console=self._console, auto_refresh=False)
            self._live.start()

    def passed(self, statuses: dict[int, dict[str, Any]]) -> None:
        if self._live is not None:
            self._live.update(self._table(statuses), refresh=True)
        elif statuses and time.monotonic() - self._told > _LINE_EVERY_S:
            self._told = time.monotonic()
            for user in sorted(statuses):
                self._console.print("  ".join(self._cells(statuses[user])))

    def ended(self) -> None:
        if self._live is not None:
            self._live.stop()

    def _table(self, statuses: dict[int, dict[str, Any]]) -> Table:
        table = Table(box=None, pad_edge=False)
        for title in ("peer", "time", "reaches", "updates", "applied", "budget", "accuracy"):
            table.add_column(title, justify="right")
        for user in sorted(statuses):
            table.add_row(*(cell.split(" ", 1)[1] for cell in self._cells(statuses[user])))
        return table

    def _cells(self, status: dict[str, Any]) -> list[str]:
        """Each begins with what it is, which the head of the table says there."""
        budget = f"{status['accepted']} of {status['psi']}" if status["psi"] is not None else "no limit"
        accuracy = status["accuracy"]
        return [
            f"peer {status['user']}",
            f"time {max(status['time_s'], 0.0):.0f} of {self._duration_s:g} s",
            f"reaches {len(status['reaches'])} of {len(status['neighbours'])}",
            f"updates {status['updates']}",
            f"applied {status['applied']}",
            f"budget {budget}",
            f"accuracy {'-' if accuracy is None or math.isnan(accuracy) else format(accuracy, '.4f')}",
        ]


def show_settlement(run: Run) -> None:
    """How the counts of senders and receivers agree."""
    summary = run.summary
    messages, refused = summary["messages"], {key: n for key, n in summary["refused"].items() if key != "not_newer"}
    console = Console(highlight=False, soft_wrap=True)
    fates = ", ".join(f"{messages[fate]} {fate.replace('_', ' ')}" for fate in _FATES if messages[fate])
    console.print(f"settled: {messages['sent']} messages sent = {fates or 'none'}")
    if summary["contradictions"]:
        console.print(f"journals that contradict each other: {len(summary['contradictions'])}")
    if refused:
        console.print("refused: " + ", ".join(f"{count} {why}" for why, count in refused.items()))
    console.print(f"once more from the journals: draco replay {run.folder}", markup=False)


_FATES = ("applied", "over_budget", "late", "lost", "pending")


class ReplayProgress:
    def __init__(self) -> None:
        console = Console(stderr=True)
        self._progress = Progress(
            TextColumn("replaying"),
            BarColumn(),
            TextColumn("{task.percentage:.0f}%"),
            console=console,
            disable=not console.is_terminal,
            transient=True,
        )
        self._task = self._progress.add_task("", total=None)

    def __enter__(self) -> ReplayProgress:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def advanced(self, done: int, of: int) -> None:
        self._progress.update(self._task, completed=done, total=of)
