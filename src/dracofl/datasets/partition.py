"""Who holds which training samples.

Each scheme returns one array of row numbers (int32) a user: no row twice, in a seeded random order, and a
function of its arguments alone. Users x samples_per_user rows are given out; what is left of the training set
goes to nobody.

- `iid`: equal sizes, labels as they come.
- `dirichlet`: equal sizes, every user its own mix of classes (after Hsu, Qi and Brown, arXiv:1909.06335).
- `shards`: equal sizes, a few runs of label-sorted rows each (McMahan et al., AISTATS 2017).
- `quantity`: unequal sizes, labels as they come.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
import numpy.typing as npt

from dracofl import rng
from dracofl.errors import DataError

Labels = npt.NDArray[np.integer]
Rows = npt.NDArray[np.int32]
Scheme = Literal["iid", "dirichlet", "shards", "quantity"]

# Beyond this shares are equal anyway, and NumPy's Dirichlet draws overflow not far below the largest float.
_LARGEST_ALPHA = 1e12


def partition(
    labels: Labels,
    users: int,
    samples_per_user: int,
    *,
    scheme: Scheme,
    seed: int,
    alpha: float = 1.0,
    shards_per_user: int = 2,
    minimum: int = 1,
    in_random_order: bool = False,
) -> tuple[Rows, ...]:
    """The rows of each user under this scheme; parameters of the other schemes are not looked at.

    `in_random_order` says that the rows were drawn independently, as generated ones are. Then "iid" deals them as
    they come, and a user's samples do not depend on how many users there are.
    """
    match scheme:
        case "iid" if in_random_order:
            total = _total(labels, users, samples_per_user)
            return tuple(np.arange(total, dtype=np.int32).reshape(users, samples_per_user))
        case "iid":
            return iid(labels, users, samples_per_user, seed=seed)
        case "dirichlet":
            return dirichlet(labels, users, samples_per_user, seed=seed, alpha=alpha)
        case "shards":
            return shards(labels, users, samples_per_user, seed=seed, shards_per_user=shards_per_user)
        case "quantity":
            return quantity(labels, users, samples_per_user, seed=seed, alpha=alpha, minimum=minimum)
        case _:
            raise ValueError(f"scheme is {scheme!r}; it must be iid, dirichlet, shards or quantity")


def iid(labels: Labels, users: int, samples_per_user: int, *, seed: int) -> tuple[Rows, ...]:
    """One shuffle of the training set, cut in equal pieces. Adding users takes nothing from those there."""
    total = _total(labels, users, samples_per_user)
    return tuple(_shuffled(labels, seed)[:total].reshape(users, samples_per_user))


def dirichlet(labels: Labels, users: int, samples_per_user: int, *, seed: int, alpha: float) -> tuple[Rows, ...]:
    """User i draws its class proportions p_i ~ Dirichlet(alpha K s) over the K classes there are, s their shares.

    With classes of equal size that is Dirichlet(alpha, ..., alpha). Small alpha: few classes a user. Large
    alpha: every user as the training set. Each of its samples is of class c with probability p_i(c); when a
    class has run out, the samples still wanted are drawn from the other classes in proportion to p_i. Users
    draw in order, so adding users takes nothing from those there. (After Hsu, Qi and Brown, arXiv:1909.06335.)
    """
    _check_alpha(alpha)
    _total(labels, users, samples_per_user)
    shuffled = _shuffled(labels, seed)
    kinds = labels[shuffled]
    pools = [shuffled[kinds == kind] for kind in np.unique(kinds)]
    sizes = np.array([len(pool) for pool in pools])
    taken = np.zeros_like(sizes)
    result = []
    for user in range(users):
        generator = rng.generator(seed, "partition-dirichlet", user)
        proportions = generator.dirichlet(alpha * len(pools) * sizes / sizes.sum())
        counts = _draw_counts(generator, proportions, sizes - taken, samples_per_user)
        rows = [pool[start : start + count] for pool, start, count in zip(pools, taken, counts, strict=True) if count]
        taken += counts
        result.append(generator.permutation(np.concatenate(rows)))
    return tuple(result)


def shards(labels: Labels, users: int, samples_per_user: int, *, seed: int, shards_per_user: int) -> tuple[Rows, ...]:
    """Rows sorted by label, cut in users x shards_per_user shards, dealt at random.

    The rows given out are a random choice, in random order within a label. If samples_per_user is no multiple
    of shards_per_user, the first few of a user's shards are one row longer.
    """
    if not 1 <= shards_per_user <= samples_per_user:
        raise ValueError(f"shards_per_user is {shards_per_user}; it must be 1 to samples_per_user = {samples_per_user}")
    total = _total(labels, users, samples_per_user)
    chosen = _shuffled(labels, seed)[:total]
    by_label = chosen[np.argsort(labels[chosen], kind="stable")]
    # Places are numbered user by user. The shards, from the lowest labels up, go to the places in random
    # order, and a shard is as long as its place: so every user comes out at samples_per_user.
    places = rng.generator(seed, "partition-shards").permutation(users * shards_per_user)
    shortest, longer = divmod(samples_per_user, shards_per_user)
    lengths = shortest + (places % shards_per_user < longer)
    owners = np.repeat(places // shards_per_user, lengths)
    return tuple(
        rng.generator(seed, "partition-order", user).permutation(by_label[owners == user]) for user in range(users)
    )


def quantity(
    labels: Labels, users: int, samples_per_user: int, *, seed: int, alpha: float, minimum: int
) -> tuple[Rows, ...]:
    """Size i is minimum + share_i * users * (samples_per_user - minimum), shares ~ Dirichlet(alpha, ...).

    So samples_per_user is the mean size. Sizes are rounded down and the rows left over go to those who lost
    the most.
    """
    _check_alpha(alpha)
    total = _total(labels, users, samples_per_user)
    if minimum < 0:
        raise ValueError(f"minimum is {minimum}; it must be 0 or more")
    if minimum > samples_per_user:
        raise DataError(
            f"every user needs at least {minimum:,} samples (one batch), but {users} x {samples_per_user:,} "
            f"= {total:,} are too few for that; raise data.samples_per_user to {minimum:,} or more"
        )
    free = total - users * minimum
    exact = free * rng.generator(seed, "partition-quantity").dirichlet(np.full(users, alpha))
    sizes = np.floor(exact).astype(np.int64)
    neediest = np.argsort(sizes - exact, kind="stable")
    sizes[neediest[: free - sizes.sum()]] += 1
    ends = np.cumsum(sizes + minimum)
    return tuple(np.split(_shuffled(labels, seed)[:total], ends[:-1]))


def _total(labels: Labels, users: int, samples_per_user: int) -> int:
    """How many rows are given out, once it is clear that there are so many."""
    if labels.ndim != 1:
        raise ValueError(f"labels have shape {labels.shape}; it must be (n,)")
    if users < 1 or samples_per_user < 1:
        raise ValueError(f"users is {users} and samples_per_user {samples_per_user}; both must be 1 or more")
    total = users * samples_per_user
    if total > len(labels):
        raise DataError(
            f"asked for {users} x {samples_per_user:,} = {total:,} training samples, but the training set "
            f"has {len(labels):,}; lower data.samples_per_user or users"
        )
    return total


def _shuffled(labels: Labels, seed: int) -> Rows:
    return rng.generator(seed, "partition").permutation(len(labels)).astype(np.int32)


def _check_alpha(alpha: float) -> None:
    if not 0 < alpha <= _LARGEST_ALPHA:
        raise ValueError(f"alpha is {alpha}; it must be positive and at most {_LARGEST_ALPHA:g}")


def _draw_counts(
    generator: np.random.Generator,
    proportions: npt.NDArray[np.float64],
    available: npt.NDArray[np.int64],
    wanted: int,
) -> npt.NDArray[np.int64]:
    """How many of each class: multinomial, what a class cannot give drawn again from those that can."""
    counts = np.zeros_like(available)
    while (missing := wanted - int(counts.sum())) > 0:
        left = available - counts
        weights = np.where(left > 0, proportions, 0.0)
        if weights.sum() == 0.0:  # tiny alpha: every class this user cares for has run out
            weights = left.astype(np.float64)
        counts += np.minimum(left, generator.multinomial(missing, weights / weights.sum()))
    return counts
