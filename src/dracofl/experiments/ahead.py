"""The control plane in a thread of its own, a little ahead of the data plane.

It writes the next stretches while the last one is played, and waits when it is too far ahead, and where the run is to
be saved, because only while it stands still is its state that of a moment which the data plane reaches too.
"""

from __future__ import annotations

import contextlib
import os
import queue
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from dracofl.compute.executor import Executor
from dracofl.compute.timings import Timings
from dracofl.experiments.memory import few_collections
from dracofl.sim.simulator import Simulator, Stretch

_STRETCHES_AHEAD = 2
_SWITCH_INTERVAL_S = 2e-5
YOUNG_OBJECTS = 1_000_000
"""After how many the collector looks for garbage: a run makes none that only it would find, and with 10^5 users to look
after every 50,000 took 7% of it."""
_NICENESS = 5  # more than the others'. With much more it would fall behind on a machine with other things to do


@dataclass(frozen=True, slots=True)
class Ready:
    """A stretch to be played, and where the control plane stood after it."""

    prepared: Any
    now_s: float
    updates: int
    to_be_saved: bool  # before the control plane goes on
    done: bool


class ControlThread:
    """Iterate over what it has ready. `pause` asks it to stop; what is ready by then is still to be played."""

    def __init__(
        self,
        simulator: Simulator,
        executor: Executor,
        record: Callable[[Stretch], None],
        write_records: Callable[[], None],
        timings: Timings,
        *,
        next_save_s: float,
    ) -> None:
        """`write_records` is called when all is recorded, while the last stretches are still to be played."""
        self._simulator, self._executor, self._timings = simulator, executor, timings
        self._record, self._write_records = record, write_records
        self._next_save_s = next_save_s
        self._ready: queue.Queue[Ready | BaseException | None] = queue.Queue(maxsize=_STRETCHES_AHEAD)
        self._saved = threading.Semaphore(0)
        self._pausing = threading.Event()
        self._memory = few_collections(YOUNG_OBJECTS)
        self._thread = threading.Thread(target=self._run, name="control", daemon=True)

    def pause(self) -> None:
        """No more stretches than those ready or being written. Iterate on until they run out."""
        self._pausing.set()
        self._saved.release()

    def saved(self, next_save_s: float) -> None:
        """The run has been saved where it was to be; go on."""
        self._next_save_s = next_save_s
        self._saved.release()

    def __enter__(self) -> ControlThread:
        # A lane that comes back from XLA has a moment's work in Python. It must not wait the usual 5 ms for the
        # control plane to give way.
        self._switch_interval_s = sys.getswitchinterval()
        sys.setswitchinterval(_SWITCH_INTERVAL_S)
        self._memory.__enter__()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.pause()
        while self._thread.is_alive():
            self._drain()  # it may be waiting for room
            self._thread.join(0.01)
        self._memory.__exit__(None, None, None)
        sys.setswitchinterval(self._switch_interval_s)

    def __iter__(self) -> Iterator[Ready]:
        while (item := self._next()) is not None:
            if isinstance(item, BaseException):
                raise item
            yield item

    def _next(self) -> Ready | BaseException | None:
        with self._timings.under("waiting for control"):
            return self._ready.get()

    def _drain(self) -> None:
        while not self._ready.empty():
            self._ready.get_nowait()

    def _run(self) -> None:
        _give_way()
        simulator, state = self._simulator, self._simulator.state
        # A stretch is tens of thousands of objects, and to be rid of them takes a while. Whoever lets go of them last
        # has to do it: this thread, by the time that the data plane is surely done with them.
        played: deque[Any] = deque(maxlen=_STRETCHES_AHEAD + 2)
        try:
            while not (state.done or self._pausing.is_set()):
                with self._timings.under("control"):
                    stretch = simulator.next_stretch()
                with self._timings.under("records"):
                    self._record(stretch)
                with self._timings.under("planning"):
                    prepared = self._executor.prepare(stretch.operations)
                due = not state.done and state.now_s >= self._next_save_s
                self._ready.put(Ready(prepared, state.now_s, state.updates, due, state.done))
                played.append(prepared)
                if due:
                    self._saved.acquire()
            if state.done:
                self._write_records()
            self._ready.put(None)
        except BaseException as error:
            self._ready.put(error)


def _give_way() -> None:
    """Where there are fewer cores than threads, those that train come first: this one is ahead of them anyway."""
    if sys.platform == "linux":  # elsewhere threads have no priorities of their own
        thread = threading.get_native_id()
        with contextlib.suppress(OSError):  # a sandbox may not allow it
            os.setpriority(os.PRIO_PROCESS, thread, os.getpriority(os.PRIO_PROCESS, thread) + _NICENESS)
