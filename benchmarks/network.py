"""What the whole stack of two real peers leaves of the network's speed.

    python -m benchmarks.network [--quick] [--json]

Two peers, processes on this machine, with a learner that costs nothing. One sends updates of 149,194 numbers (600 KB)
to the other: sent, checked, applied, answered, and all of it in their journals. Beside it, in turns: two bare processes
with nothing but Zenoh's query and reply, the same bytes, the same settings, the next query when the reply is there. (A
peer has up to eight messages under way to a quick neighbour; what bare Zenoh does with as many is a figure of its own.)

A peer does not send without pause: it has timers, whose times are drawn. So it is asked for several rates about the
bare one, and the best counts (what is too much for it is summed up, which costs time and counts once). It sends the
same update again and again (transmit.backlog = "latest"): training has no part in it, and on both sides Zenoh's copy of
the numbers is made once. Then, at a pace that leaves the machine idle most of the time, how long it takes from a
finished update to the neighbour that applies it.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.figure import Figure, main
from dracofl.protocol.headers import HEADER_BYTES
from dracofl.runtime.threads import IN_FLIGHT_WHEN_QUICK

ROOT = Path(__file__).parents[1]
PARAMETERS = 149_194
MESSAGE_BYTES = HEADER_BYTES + 4 * PARAMETERS
ANSWER_BYTES = 36
TARGET = 0.7
REPEATS = 5
SECONDS, QUICK_SECONDS = 5.0, 1.5
WARM_UP_S = 1.0
OFFERED = (0.9, 1.0, 1.1)  # times what bare Zenoh carries
WAITING = 16  # updates for a neighbour that may wait, before more are summed up
_NEVER = 1e-6
CALM_RATE = 10.0  # local updates of a peer in a second, where times are measured


class Learner:
    """Learns nothing, at once."""

    def __init__(self) -> None:
        self._update = np.full(PARAMETERS, 1e-7, np.float32)

    def init(self) -> np.ndarray:
        return np.zeros(PARAMETERS, np.float32)

    def local_update(self, model: np.ndarray, number: int) -> np.ndarray:
        return self._update

    def evaluate(self, model: np.ndarray, final: bool) -> dict[str, float]:
        return {}


def learner(_user: int, _users: int) -> Learner:
    return Learner()


# Peers


class _Silent:
    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *_: None


def journals_of_two(seconds: float, *changes: str) -> dict[int, list[list[Any]]]:
    """Of two peers that ran for so long after they had warmed up."""
    from dracofl.experiments.cluster import PEERS, run_cluster
    from dracofl.experiments.node import JOURNAL
    from dracofl.runtime.journal import read_journal

    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    overrides = [
        "channel=none",
        f"duration_s={WARM_UP_S + seconds}",
        "method.unification=off",
        "method.psi=none",
        "method.own_weight=0",  # what a peer does with its own update is not a matter of the network
        "evaluate.users=0",
        "checkpoint.every_s=none",
        "time_scale=1",
        f"node.waiting={WAITING}",
        "node.learner=benchmarks.network:learner",
        *changes,
    ]
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        run_cluster("tiny", 2, overrides, out, _Silent())
        return {user: list(read_journal(out / PEERS / str(user) / JOURNAL)) for user in range(2)}


def at_rate(rate: float) -> list[str]:
    """Transmissions of peer 0 in a second, with next to no training; peer 1 has nothing to send."""
    rates = [f"compute.rate=[10.0, {_NEVER}]", f"transmit.rate=[{rate}, {_NEVER}]"]
    return [*rates, "transmit.when=poisson", "transmit.backlog=latest"]


def acknowledged(journals: dict[int, list[list[Any]]], seconds: float) -> float:
    """Updates a second whose receiver said that it applied them."""
    count = 0
    for lines in journals.values():
        for line in lines:
            if line[0] == "answered" and line[2] == "UPDATE" and line[6] == "ACCEPTED":
                count += WARM_UP_S <= line[1] < WARM_UP_S + seconds
    return count / seconds


def times_of(journals: dict[int, list[list[Any]]]) -> dict[str, list[float]]:
    """Milliseconds from the end of an update to when its neighbour applies it, and to when its sender knows that.

    Both read the same clock. A journal's times are those at which a peer takes something up: what it does then, about
    a millisecond, is in the second figure alone.
    """
    finished = {(user, line[2]): line[1] for user, lines in journals.items() for line in lines if line[0] == "finished"}
    found: dict[str, list[float]] = {"applied": [], "acknowledged": []}
    for user, lines in journals.items():
        for line in lines:
            if line[1] < WARM_UP_S:
                continue
            if line[0] == "settled" and line[4] == "applied":
                found["applied"].append(1e3 * (line[1] - finished[line[3][0], line[3][2]]))
            elif line[0] == "answered" and line[6] == "ACCEPTED":
                found["acknowledged"] += [1e3 * (line[1] - finished[user, number]) for number in line[5][:1]]
    return found


# Bare Zenoh


def bare(seconds: float, in_flight: int = 1) -> float:
    """Answered queries a second: the first process asks, so many at a time, and the second answers."""
    from dracofl.experiments.cluster import free_ports

    ports = free_ports(2)
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", "benchmarks.network", "bare", json.dumps([user, ports, seconds, in_flight])],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for user in range(2)
    ]
    try:
        for process in processes:
            assert process.stdout is not None
            if process.stdout.readline() != "ready\n":
                raise RuntimeError("a bare process did not get ready")
        return float(json.loads(processes[0].communicate("go\n", timeout=60 + seconds)[0]))
    finally:
        for process in processes:
            process.kill()
            process.wait()


def bare_process(user: int, ports: list[int], seconds: float, in_flight: int) -> None:
    """One of the two: answers what arrives, and does nothing with it; the first one asks, when it is told to."""
    import zenoh

    from dracofl.runtime.zenoh import have_threads
    from dracofl.runtime.zenoh_options import ZenohOptions, configuration

    have_threads(users=2)
    mine, other = f"tcp/127.0.0.1:{ports[user]}", f"tcp/127.0.0.1:{ports[1 - user]}"
    options = ZenohOptions("bare", user, 2, 1, listen=(mine,), connect=(other,), discovery=False)
    data, answer = zenoh.ZBytes(bytes(MESSAGE_BYTES)), bytes(ANSWER_BYTES)

    def reply(query: zenoh.Query) -> None:
        assert query.payload is not None
        assert len(query.payload.to_bytes()) == MESSAGE_BYTES
        with query:
            query.reply(query.key_expr, answer)

    def asked(session: zenoh.Session) -> bool:
        replies = session.get(
            f"bare/{1 - user}",
            payload=data,
            timeout=2.0,
            consolidation=zenoh.ConsolidationMode.NONE,
            congestion_control=zenoh.CongestionControl.DROP,
            allowed_destination=zenoh.Locality.REMOTE,
        )
        return any(reply.ok is not None for reply in replies)

    with zenoh.open(zenoh.Config.from_json5(json.dumps(configuration(options)))) as session:
        session.declare_queryable(f"bare/{user}", reply, complete=True)
        while not asked(session):
            time.sleep(0.05)
        print("ready", flush=True)
        sys.stdin.readline()
        begins = time.time() + WARM_UP_S

        def answered_in_time(_: int) -> int:
            count = 0
            while time.time() < begins + seconds:
                is_in_time = time.time() >= begins
                count += asked(session) and is_in_time
            return count

        with ThreadPoolExecutor(in_flight) as askers:
            count = sum(askers.map(answered_in_time, range(in_flight)))
    print(json.dumps(count / seconds))


class Trial(NamedTuple):
    offered: float
    acknowledged: float  # a second
    bare: float  # a second, the mean of before and after
    bare_in_flight: float  # a second, with as many under way as a peer has

    @property
    def ratio(self) -> float:
        return self.acknowledged / self.bare


def trials_of(quick: bool) -> list[Trial]:
    """Bare Zenoh and peers in turns, as the machine is now faster and now slower."""
    seconds = QUICK_SECONDS if quick else SECONDS
    trials, before = [], bare(seconds)
    for _ in range(1 if quick else REPEATS):
        for offered in OFFERED:
            found = acknowledged(journals_of_two(seconds, *at_rate(offered * before)), seconds)
            at_once = bare(seconds, IN_FLIGHT_WHEN_QUICK)
            after = bare(seconds)
            trials.append(Trial(offered, found, (before + after) / 2, at_once))
            before = after
    return trials


def best_of(trials: list[Trial]) -> list[Trial]:
    """Those at the rate that is the best in the median: the best of each repeat would be the luckiest."""
    by_rate = [[trial for trial in trials if trial.offered == offered] for offered in OFFERED]
    return max(by_rate, key=lambda some: statistics.median(trial.ratio for trial in some))


def measure(quick: bool) -> list[Figure]:
    seconds = QUICK_SECONDS if quick else SECONDS
    trials = trials_of(quick)
    best = best_of(trials)
    medians, worst, known = [], [], []
    count = 0
    for _ in range(1 if quick else REPEATS):
        times = times_of(journals_of_two(seconds, f"compute.rate={CALM_RATE}"))
        count += len(times["applied"])
        medians.append(statistics.median(times["applied"]))
        worst.append(float(np.percentile(times["applied"], 99)))
        known.append(statistics.median(times["acknowledged"]))
    detail = {
        "offered, times bare": best[0].offered,
        "acknowledged updates a second": [trial.acknowledged for trial in best],
        "bare queries a second": [trial.bare for trial in best],
        "all": [[trial.offered, trial.ratio] for trial in trials],
        "bytes a message": MESSAGE_BYTES,
        "MB/s": [trial.acknowledged * MESSAGE_BYTES / 1e6 for trial in best],
    }
    calm = {"updates": count, "local updates a second": CALM_RATE, "to the sender's knowledge, median ms": known}
    what = "from a finished update of 600 KB to the neighbour that applies it"
    ratios = [trial.ratio for trial in best]
    return [
        Figure("network", "acknowledged updates of 600 KB / bare Zenoh", ratios, "at least", TARGET, detail),
        Figure(
            "network",
            f"acknowledged updates of 600 KB / bare Zenoh with {IN_FLIGHT_WHEN_QUICK} queries at a time",
            [trial.acknowledged / trial.bare_in_flight for trial in best],
            detail={"bare queries a second": [trial.bare_in_flight for trial in best]},
        ),
        Figure("network", f"ms {what}, median", medians, detail=calm),
        Figure("network", f"ms {what}, 99 of 100 within", worst, detail=calm),
    ]


if __name__ == "__main__":
    if sys.argv[1:2] == ["bare"]:
        bare_process(*json.loads(sys.argv[2]))
    else:
        main(__doc__, measure)
