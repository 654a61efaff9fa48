"""Who sees whom. That somebody is gone is noticed late, and news of it may be overtaken by news of another start."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from faults.life import Life
from faults.schedule import Schedule

if TYPE_CHECKING:
    from faults.world import World

_SLOWEST_NEWS_S = 0.3


def are_in_touch(schedule: Schedule, one: int, other: int) -> bool:
    """Whether each is to learn that the other is there."""
    successors = schedule.setting.graph.successors
    return schedule.sees_all or other in successors[one] or one in successors[other]


class News:
    def __init__(self, world: World) -> None:
        self._world = world
        self._told: set[tuple[int, int]] = set()  # (epoch of who sees, epoch of who is seen), when all news is there
        self._last_s: dict[tuple[int, int], float] = {}

    def look_after(self, user: int, wait_s: float) -> None:
        """Something changed about this user: a while later the others see it, and it sees them."""
        world = self._world
        mine = world.by_epoch[world.newest_epochs[user]]
        for other in world.lives.values():
            if other is not mine and are_in_touch(world.schedule, user, other.user):
                for pair in ((mine, other), (other, mine)):
                    world.at(world.now_s + wait_s, None, partial(self._look, *pair))

    def _look(self, observer: Life, other: Life) -> None:
        """At how things are now: what was cut and has healed since has not been noticed."""
        world = self._world
        is_awake = other.alive and other.frozen_until_s <= world.now_s
        is_there = is_awake and not world.is_cut(other.user, observer.user)
        pair = (observer.epoch, other.epoch)
        if not observer.alive or is_there == (pair in self._told):
            return
        self._told ^= {pair}
        # News of one life comes in order; news of two, even of one user, may overtake each other.
        news_s = max(self._last_s.get(pair, 0.0), world.now_s + world.chance.uniform(0.0, _SLOWEST_NEWS_S))
        self._last_s[pair] = news_s
        world.at(news_s, observer, lambda: world.bring_news(observer, other, is_there))
