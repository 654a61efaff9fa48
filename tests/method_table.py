"""The table that every method goes through, over every topology and channel it can do with."""

from __future__ import annotations

import pytest

SYMMETRIC = ("cycle", "complete", "star", "grid", "torus", "geometric")
DIRECTED = ("directed-cycle", "exponential", "k-out", "erdos-renyi")

# A new method adds a row: its options, and whether it can do with links that go one way.
TABLE: dict[str, tuple[list[str], bool]] = {
    "draco": (["method.psi=20", "method.period_s=30"], True),
    "sync-symm": ([], False),
    "sync-push": ([], True),
    "async-symm": (["method.iteration_s=4"], False),
    "async-push": (["method.streams=2", "method.local_updates=2"], True),
    "fedavg": ([], True),
    "local": ([], True),
}
CHANNELS = {
    "ideal": ["channel.kind=ideal"],
    "exponential": ["channel.kind=exponential", "channel.rate=0.5", "channel.deadline_s=4"],
    "lossy": ["channel.kind=lossy", "channel.loss=0.4", "channel.delay_s=1"],
    "wireless": ["channel.message_bytes=20000000"],
}

EVERYWHERE = [
    pytest.param(method, topology, channel, id=f"{method}, {topology}, {channel}")
    for method, (_, directed) in TABLE.items()
    for topology in SYMMETRIC + (DIRECTED if directed else ())
    for channel in CHANNELS
]
