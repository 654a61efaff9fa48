"""One peer of a cluster, as a process that its parent talks to in lines.

It says in JSON on standard output when it is ready and how it does; on standard input it is told when second 0 is. When
that closes, it stops as on a Ctrl-C: a parent that dies takes its peers with it.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
import threading
import time
from typing import Any

from dracofl.config.node import Node, load_node
from dracofl.errors import DracoError
from dracofl.experiments.node import run_node
from dracofl.experiments.picture import end_with_picture
from dracofl.runtime.service import Service

_TELL_EVERY_S = 0.5


class _Parent:
    """A watcher on the other end of two pipes."""

    def __init__(self, pipe: int) -> None:
        self._pipe = pipe
        self._gone = threading.Event()
        self._told = 0.0
        self._neighbours: tuple[int, ...] = ()

    def ready(self) -> float | None:
        self._say({"ready": True})
        line = sys.stdin.readline()
        threading.Thread(target=self._wait_for_the_end, daemon=True).start()
        return float(line) if line.strip() else None

    def began(self, node: Node, neighbours: tuple[int, ...], folder: str, resumed: bool) -> None:
        self._neighbours = neighbours
        self._say({"began": folder, "resumed": resumed, "user": node.user})

    def passed(self, service: Service, now_s: float) -> None:
        if time.monotonic() - self._told < _TELL_EVERY_S:
            return
        self._told = time.monotonic()
        self._say(status_of(service, now_s, self._neighbours))

    def wants_to_stop(self) -> bool:
        return self._gone.is_set()

    def _wait_for_the_end(self) -> None:
        sys.stdin.read()
        self._gone.set()

    def _say(self, what: dict[str, Any]) -> None:
        with contextlib.suppress(BrokenPipeError):  # it is gone, as standard input will tell
            os.write(self._pipe, json.dumps(what).encode() + b"\n")


def status_of(service: Service, now_s: float, neighbours: tuple[int, ...]) -> dict[str, Any]:
    peer = service.peer
    node = peer.core.node
    return {
        "user": peer.user,
        "time_s": now_s,
        "reaches": list(peer.core.reachable()),
        "neighbours": list(neighbours),
        "updates": node.state.finished,
        "applied": peer.applied,
        "refused": peer.refused,
        "accepted": node.state.accepted,
        "psi": node.rules.psi,
        "period": peer.core.state.period,
        "accuracy": service.scores.get("accuracy"),
    }


def _own_standard_output() -> int:
    """The pipe to the parent, for us alone: whatever a learner prints goes to the log, where its errors go."""
    pipe = os.dup(1)
    os.dup2(2, 1)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)
    return pipe


def main() -> None:
    pipe = _own_standard_output()
    try:
        ended = run_node(*load_node(sys.argv[1]), _Parent(pipe))
    except DracoError as error:
        print(f"draco: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    end_with_picture(ended.folder)


if __name__ == "__main__":
    main()
