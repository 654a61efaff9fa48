"""Thousands of schedules by command: `make faults`, or from the top of the project

PYTHONPATH=tests .venv/bin/python -m faults --schedules 100000 --seed 1 --workers 2
PYTHONPATH=tests .venv/bin/python -m faults --replay 17
"""

from __future__ import annotations

import argparse
import sys
import time

from faults.run import Verdict, judge, judge_all
from faults.schedule import draw_schedule

_TOLD_EVERY_S = 10.0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m faults", description="Peers in virtual time, and all goes wrong.")
    parser.add_argument("--schedules", type=int, default=10_000, help="how many (10000)")
    parser.add_argument("--seed", type=int, default=0, help="of the first; the others follow it (0)")
    parser.add_argument("--workers", type=int, default=2, help="processes (2)")
    parser.add_argument("--replay", type=int, metavar="SEED", help="one schedule, told event by event")
    options = parser.parse_args()
    if options.replay is not None:
        return _replay(options.replay)
    return _run(options.seed, options.schedules, options.workers)


def _replay(seed: int) -> int:
    print(draw_schedule(seed))
    verdict = judge(seed, print)
    print(verdict.summary if verdict.summary is not None else _complaint(verdict))
    return int(verdict.summary is None)


def _run(first: int, schedules: int, workers: int) -> int:
    began, told, broken, events = time.monotonic(), 0.0, 0, 0
    for count, verdict in enumerate(judge_all(range(first, first + schedules), workers), start=1):
        if verdict.summary is None:
            broken += 1
            print(_complaint(verdict), flush=True)
        else:
            events += verdict.summary.events
        took_s = time.monotonic() - began
        if took_s - told > _TOLD_EVERY_S or count == schedules:
            told = took_s
            pace = 60.0 * count / took_s
            print(
                f"{count} schedules, {events} events, {broken} broke a law; {pace:.0f} schedules a minute", flush=True
            )
    return int(broken > 0)


def _complaint(verdict: Verdict) -> str:
    replay = f"PYTHONPATH=tests {sys.executable} -m faults --replay {verdict.seed}"
    return f"Seed {verdict.seed} breaks {verdict.text.strip()}\n  again, event by event: {replay}"


if __name__ == "__main__":
    sys.exit(main())
