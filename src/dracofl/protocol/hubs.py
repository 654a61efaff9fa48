"""Who is the temporary hub at the end of a period. Periods are counted from 1, the first to end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

from dracofl import rng

HubPolicy: TypeAlias = Literal["random", "round-robin", "best-heard"]


def pick_hub(policy: HubPolicy, seed: int, period: int, accepted: Sequence[int]) -> int:
    """The hub of this period, given how many messages each user accepted in it.

    Only "best-heard" looks at the counts: the other two are a function of the period and the number of members, so
    peers agree on them without talking.
    """
    users = len(accepted)
    if policy == "round-robin":
        return (period - 1) % users
    draws = rng.stream(seed, "hub", period)
    if policy == "random":
        return int(rng.uniform(draws, 0) * users)
    most = max(accepted)
    tied = [user for user in range(users) if accepted[user] == most]
    return max(tied, key=lambda user: rng.uniform(draws, user))


def hub_rank(policy: HubPolicy, seed: int, period: int, users: int, user: int) -> int:
    """How many would be this period's hub before this user: the hub itself is 0, who follows it takes over from it.

    Only for policies that are a function of the period and the members.
    """
    assert policy != "best-heard"
    return (user - pick_hub(policy, seed, period, (0,) * users)) % users
