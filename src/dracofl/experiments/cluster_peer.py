"""One peer of a cluster, as a process that its parent talks to in lines.

It says in JSON on standard output when it is ready and how it does; on standard input it is told when second 0 is. When
that closes, it stops as on a Ctrl-C: a parent that dies takes its peers with it.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from typing import Any

from dracofl.config.node import Node, load_node
from dracofl.errors import DracoError
from dracofl.experiments.node import run_node
from dracofl.runtime.service import Service

_TELL_EVERY_S = 0.5


class _Parent:
    """A watcher on the other end of two pipes."""

    def __init__(self) -> None:
        self._gone = threading.Event()
        self._told = 0.0
        self._neighbours: tuple[int, ...] = ()
        self._psi: int | None = None

    def ready(self) -> float | None:
        _say({"ready": True})
        line = sys.stdin.readline()
        threading.Thread(target=self._wait_for_the_end, daemon=True).start()
        return float(line) if line.strip() else None

    def began(self, node: Node, neighbours: tuple[int, ...], folder: str, resumed: bool) -> None:
        self._neighbours = neighbours
        _say({"began": folder, "resumed": resumed, "user": node.user})

    def passed(self, service: Service, now_s: float) -> None:
        if time.monotonic() - self._told < _TELL_EVERY_S:
            return
        self._told = time.monotonic()
        _say(status_of(service, now_s, self._neighbours))

    def wants_to_stop(self) -> bool:
        return self._gone.is_set()

    def _wait_for_the_end(self) -> None:
        sys.stdin.read()
        self._gone.set()


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


def _say(what: dict[str, Any]) -> None:
    print(json.dumps(what), flush=True)


def main() -> None:
    try:
        run_node(*load_node(sys.argv[1]), _Parent())
    except DracoError as error:
        print(f"draco: {error}", file=sys.stderr)
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
