"""Somebody who watches a run, and may stop it."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from dracofl.compute.evaluation import Evaluation


class Watcher(Protocol):
    def began(self, folder: str, duration_s: float, now_s: float) -> None: ...

    def advanced(self, now_s: float, updates: int) -> None: ...

    def wants_to_stop(self) -> bool:
        """Asked now and then; a run that is told so saves itself and stops, as on a Ctrl-C."""
        ...

    def evaluated(self, evaluation: Evaluation) -> None: ...

    def doubted(self, doubt: str) -> None: ...

    def ended(self) -> None:
        """The run is over, well or badly; called in every case."""
        ...


class Silent:
    """Watches without a word."""

    def began(self, folder: str, duration_s: float, now_s: float) -> None: ...

    def advanced(self, now_s: float, updates: int) -> None: ...

    def wants_to_stop(self) -> bool:
        return False

    def evaluated(self, evaluation: Evaluation) -> None: ...

    def doubted(self, doubt: str) -> None: ...

    def ended(self) -> None: ...


class Stop:
    requested = False


@contextmanager
def stop_on_signals() -> Iterator[Stop]:
    """The first Ctrl-C or SIGTERM asks the run to save and stop; a second Ctrl-C does not wait."""
    stop = Stop()
    if threading.current_thread() is not threading.main_thread():
        yield stop  # only the main thread may install handlers
        return

    def request(number: int, _: object) -> None:
        stop.requested = True
        signal.signal(number, before[number])  # the next one acts as it did before

    before = {int(number): signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    for number in before:
        signal.signal(number, request)
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
