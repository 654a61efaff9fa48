"""How many events a second the control plane gets through on its own.

    python -m benchmarks.control [--quick] [--json]

Everything but the data plane is on: every user's core, the radio, the trace hash, the records as Arrow tables. An
event is a row of the table of events. Beside it stands what Python's heap alone would manage: a bare loop that pops,
pushes and appends a row as many times, in the same process and in turns with it.
"""

from __future__ import annotations

import heapq
import math
import time
from typing import NamedTuple

import dracofl
from benchmarks.figure import Figure, main
from dracofl.build import World, build_simulator, build_world
from dracofl.config.schema import Config
from dracofl.experiments.ahead import YOUNG_OBJECTS
from dracofl.experiments.memory import few_collections
from dracofl.telemetry.recorder import Recorder

PARAMETERS = 7285  # of the network of the preset poker, which the control plane knows by its length alone
TARGET = 150_000


class Case(NamedTuple):
    topology: str
    users: int
    updates: int  # local updates of all users together
    target: float | None


CASES = [Case("cycle", 1000, 30_000, TARGET), Case("complete", 100, 4_000, None)]
REPEATS = 15  # of a second each: the machine may be half as fast for some seconds


def configuration(case: Case) -> Config:
    """The preset poker for more users, standing as densely as its 25 do, and disturbed from as far."""
    rate = 0.1
    return dracofl.configure(
        "poker",
        [
            f"users={case.users}",
            f"topology.kind={case.topology}",
            f"field.radius_m={500.0 * math.sqrt(case.users / 25)}",
            "channel.interference_radius_m=50",
            f"compute.rate={rate}",
            f"duration_s={case.updates / case.users / rate}",
        ],
    )


def simulate(config: Config, world: World) -> tuple[int, float]:
    """A whole run of the control plane; its events, and the seconds of CPU."""
    simulator, recorder = build_simulator(config, world, PARAMETERS), Recorder()
    with few_collections(YOUNG_OBJECTS):  # as a run has it
        began = time.process_time()
        simulator.start()
        while not simulator.state.done:
            stretch = simulator.next_stretch()
            recorder.add("events", stretch.events)
            recorder.add("messages", stretch.messages)
        events = len(recorder.take()["events"])
        simulator.trace.hexdigest()
        return events, time.process_time() - began


def bare_heap(users: int, events: int) -> float:
    """The same number of turns of a heap as large as the number of users, and nothing else; the seconds of CPU."""
    heap = [(10.0 * user / users, user, user) for user in range(users)]
    rows: list[tuple[float, int]] = []
    began = time.process_time()
    for serial in range(users, users + events):
        time_s, _, user = heapq.heappop(heap)
        rows.append((time_s, user))
        heapq.heappush(heap, (time_s + (serial * 7919 % 1000) / 50.0, serial, user))
    return time.process_time() - began


def measure(quick: bool) -> list[Figure]:
    figures = []
    for case in CASES:
        if quick:
            case = case._replace(users=case.users // 10, updates=case.updates // 100)
        config = configuration(case)
        world = build_world(config)
        rates, bare_rates, events = [], [], 0
        for _ in range(1 if quick else REPEATS):
            events, seconds = simulate(config, world)
            rates.append(events / seconds)
            bare_rates.append(events / bare_heap(case.users, events))
        figures.append(
            Figure(
                benchmark="control",
                name=f"events a second, {case.topology} graph of {case.users} users",
                values=rates,
                bound=None if case.target is None else "at least",
                target=case.target,
                detail={
                    "events": events,
                    "bare heap, events a second": bare_rates,
                    "share of the bare heap's rate": [
                        rate / bare for rate, bare in zip(rates, bare_rates, strict=True)
                    ],
                },
            )
        )
    return figures


if __name__ == "__main__":
    main(__doc__, measure)
