"""How a simulation grows with the number of its users.

    python -m benchmarks.growth [--quick] [--million]

Constant density (a disc of 500 sqrt(N / 25) m), interference within 50 m, a random geometric graph of mean degree 6,
softmax regression on poker hands, two local updates a user, everything recorded. Time per event at 10^5 users over
that at 10^3, and bytes a user: the slope of the peak of the resident memory between 10^4 and 10^5, less the samples,
over four models and 2 KB. With --million, 10^6 users for ten simulated seconds, and its peak over 24 GB.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from functools import partial

from benchmarks.child import ask
from benchmarks.figure import Figure, main

REPEATS = 3
SAMPLES_A_USER = 20
BYTES_A_SAMPLE = 10 + 4 + 4  # a hand, its label, and its number in its user's order


def overrides(users: int, duration_s: float) -> list[str]:
    radius_m = 500.0 * math.sqrt(users / 25)
    range_m = radius_m * math.sqrt(6 / (users - 1))  # a disc of this radius holds six others on average
    return [
        f"users={users}",
        f"duration_s={duration_s}",
        f"field.radius_m={radius_m}",
        "topology.kind=geometric",
        f"topology.range_m={range_m}",
        "channel.interference_radius_m=50",
        "model.kind=softmax",
        f"data.samples_per_user={SAMPLES_A_USER}",
        f"train.batch={SAMPLES_A_USER}",
        "evaluate.users=0",
        "checkpoint.every_s=none",
    ]


def measure(quick: bool) -> list[Figure]:
    sizes = [100, 200, 300, 400] if quick else [10**2, 10**3, 10**4, 10**5]
    per_event: dict[int, list[float]] = {users: [] for users in sizes}
    peaks: dict[int, list[int]] = {users: [] for users in sizes}
    parameters = 0
    # Sizes take turns: what is divided by one another is measured within minutes, as a machine changes its speed.
    for repeat in range(1 if quick else REPEATS):
        for users in sizes:
            # Short runs are lengthened until they have as many events as one can time.
            duration_s = 20.0 * max(1.0, (1000 if quick else 20_000) / users)
            answer = ask("run", preset="poker", overrides=overrides(users, duration_s))
            per_event[users].append(answer["simulated_s"] / answer["events"])
            peaks[users].append(answer["peak_bytes"])
            parameters = answer["parameters"]
            print(
                f"repeat {repeat + 1}, N = {users}: {1e6 * per_event[users][-1]:.1f} us an event, "
                f"{peaks[users][-1]:,} bytes",
                file=sys.stderr,
                flush=True,
            )
    _, small, middle, large = sizes
    ratios = [late / early for late, early in zip(per_event[large], per_event[small], strict=True)]
    slopes = [
        (high - low) / (large - middle) - SAMPLES_A_USER * BYTES_A_SAMPLE
        for high, low in zip(peaks[large], peaks[middle], strict=True)
    ]
    allowed = 4 * 4 * parameters + 2048
    detail = {
        "us_per_event": {users: [1e6 * value for value in values] for users, values in per_event.items()},
        "peak_bytes": peaks,
        "bytes_a_user": slopes,
        "allowed_bytes_a_user": allowed,
    }
    return [
        Figure("growth", f"time per event, {large:,} users / {small:,}", ratios, "at most", 1.5, detail),
        Figure(
            "growth", "bytes a user / (4 models + 2 KB)", [slope / allowed for slope in slopes], "at most", 1.0, detail
        ),
    ]


def parts() -> list[Callable[[], list[Figure]]]:
    return [partial(measure, False), measure_million]


def measure_million() -> list[Figure]:
    answer = ask("run", preset="poker", overrides=overrides(10**6, 10.0))
    share = answer["peak_bytes"] / 24e9
    return [Figure("growth", "10^6 users, 10 simulated seconds: peak memory / 24 GB", [share], "at most", 1.0, answer)]


if __name__ == "__main__":
    if "--million" in sys.argv:
        for figure in measure_million():
            print(figure.line(), figure.detail)
    else:
        main(__doc__, measure)
