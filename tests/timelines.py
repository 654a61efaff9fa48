"""Random small configurations, and the control plane played on its own: no JAX, just what happens when."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

from dracofl.build import build_simulator, build_world
from dracofl.config.load import load_config
from dracofl.config.schema import Config
from dracofl.sim.simulator import Simulator
from dracofl.tape import Combine, Compress, Copy, Evaluate, Free, Operation, Train
from dracofl.trace import EventRow, MessageRow

MODEL_LENGTH = 10


@dataclass
class Timeline:
    config: Config
    simulator: Simulator
    operations: list[Operation] = field(default_factory=list)
    events: list[EventRow] = field(default_factory=list)
    messages: list[MessageRow] = field(default_factory=list)


def play(config: Config) -> Timeline:
    simulator = build_simulator(config, build_world(config), MODEL_LENGTH)
    timeline = Timeline(config, simulator)
    simulator.start()
    while not simulator.state.done:
        stretch = simulator.next_stretch()
        timeline.operations += stretch.operations
        timeline.events += stretch.events
        timeline.messages += stretch.messages
    return timeline


Update = tuple[int, int]
"""Who made it, and which of its local updates it is."""


@dataclass
class Contents:
    """What every vector is made of, when the tape is played with names in the place of numbers."""

    vectors: dict[int, Counter[Update]] = field(default_factory=dict)
    applied: dict[int, list[Counter[Update]]] = field(default_factory=dict)  # user -> what it added to its model


def contents(timeline: Timeline) -> Contents:
    found = Contents({user: Counter() for user in range(timeline.config.users)})
    found.applied = {user: [] for user in range(timeline.config.users)}
    for operation in timeline.operations:
        match operation:
            case Train():
                found.vectors[operation.destination] = Counter({(operation.user, operation.number): 1})
            case Combine():
                total: Counter[Update] = Counter()
                for vector, _ in operation.terms:
                    total += found.vectors[vector]
                if operation.destination in found.applied:
                    others = [vector for vector, _ in operation.terms if vector != operation.destination]
                    found.applied[operation.destination] += [Counter(found.vectors[vector]) for vector in others]
                found.vectors[operation.destination] = total
            case Copy() | Compress():
                found.vectors[operation.destination] = Counter(found.vectors[operation.source])
            case Free():
                del found.vectors[operation.vector]
            case Evaluate():
                pass
    return found


def _none_or(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(st.just("none"), strategy)


_TOPOLOGIES = st.sampled_from(
    [
        {"kind": kind}
        for kind in ("cycle", "directed-cycle", "complete", "star", "grid", "torus", "exponential", "erdos-renyi")
    ]
    + [{"kind": "k-out", "k": 1}, {"kind": "geometric", "range_m": 200.0}]
)
_CHANNELS = st.one_of(
    st.just({"kind": "ideal"}),
    st.fixed_dictionaries(
        {
            "kind": st.just("exponential"),
            "rate": st.floats(0.1, 5.0),
            "deadline_s": _none_or(st.floats(0.5, 6.0)),
        }
    ),
    st.fixed_dictionaries({"kind": st.just("lossy"), "loss": st.floats(0.0, 0.9), "delay_s": st.floats(0.0, 4.0)}),
    st.fixed_dictionaries(
        {
            "kind": st.just("wireless"),
            "interference": st.sampled_from(["nearby", "concurrent", "none"]),
            "interference_radius_m": st.floats(0.0, 600.0),
            "bandwidth": st.sampled_from(["each", "shared"]),
            "message_bytes": st.integers(1, 40_000_000),
            "deadline_s": st.floats(0.5, 12.0),
        }
    ),
)


@st.composite
def configurations(draw: st.DrawFn, **sections: Any) -> Config:
    """A small configuration in which much may go wrong; `sections` fixes keys of some sections."""
    period_s = draw(_none_or(st.floats(4.0, 40.0)))
    psi = draw(_none_or(st.integers(1, 6))) if period_s != "none" else "none"
    raw: dict[str, Any] = {
        "users": draw(st.integers(2, 7)),
        "duration_s": draw(st.floats(10.0, 100.0)),
        "seed": draw(st.integers(0, 2**40)),
        "task": {"kind": "quadratic"},
        "compute": {"rate": draw(st.floats(0.1, 1.0)), "snapshot": draw(st.sampled_from(["finish", "start"]))},
        "transmit": {
            "when": draw(st.sampled_from(["on-update", "poisson"])),
            "rate": draw(st.floats(0.05, 1.0)),
            "backlog": draw(st.sampled_from(["sum", "latest"])),
        },
        "method": {
            "psi": psi,
            "period_s": period_s,
            "own_weight": draw(st.sampled_from([0.0, 0.5, 1.0])),
            "window_s": draw(st.sampled_from([0.0, 0.0, 0.3, 3.0, 9.0])),
            "weights": draw(st.sampled_from(["uniform", "delivered"])),
            "hub": draw(st.sampled_from(["random", "round-robin", "best-heard"])),
            "unification": draw(st.sampled_from(["reliable", "radio", "off"])),
        },
        "topology": draw(_TOPOLOGIES),
        "channel": draw(_CHANNELS),
        "evaluate": {
            "every_s": draw(_none_or(st.floats(3.0, 50.0))),
            "every_events": draw(_none_or(st.integers(1, 40))),
        },
    }
    for section, keys in sections.items():
        if isinstance(keys, dict):
            raw[section] = keys if "kind" in keys else {**raw[section], **keys}
        else:
            raw[section] = keys
    return load_config(raw)
