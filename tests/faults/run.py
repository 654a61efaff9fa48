"""One seed, played and judged; and many of them, on several cores."""

from __future__ import annotations

import gc
import multiprocessing
import traceback
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from faults.laws import Violation
from faults.schedule import draw_schedule
from faults.world import Summary, World

_CHUNK = 20
CRASHED = "NoPeerFails"


@dataclass(frozen=True, slots=True)
class Verdict:
    seed: int
    summary: Summary | None  # None if a law was broken
    law: str = ""
    text: str = ""


def judge(seed: int, tell: Callable[[str], None] | None = None) -> Verdict:
    """An exception from a peer's own code breaks a law like any other: none of this is reason enough to fail."""
    try:
        return Verdict(seed, World(draw_schedule(seed), tell).play())
    except Violation as violation:
        return Verdict(seed, None, violation.law, str(violation))
    except Exception:
        return Verdict(seed, None, CRASHED, traceback.format_exc())


def first_broken(seeds: Iterable[int]) -> Verdict | None:
    return next((verdict for verdict in map(judge, seeds) if verdict.summary is None), None)


def judge_all(seeds: Iterable[int], workers: int) -> Iterator[Verdict]:
    # Spawned and not forked: the numerical libraries that a fork would copy have threads.
    context = multiprocessing.get_context("spawn")
    with context.Pool(workers, initializer=gc.disable) as pool:
        yield from pool.imap_unordered(_judge_and_sweep, seeds, chunksize=_CHUNK)


def _judge_and_sweep(seed: int) -> Verdict:
    """A schedule's objects hold on to each other: they are collected between schedules, and not all the time."""
    verdict = judge(seed)
    if seed % _CHUNK == 0:
        gc.collect()
    return verdict
