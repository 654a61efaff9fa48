"""Peers in virtual time do exactly what the simulator does, to the last row and the last bit."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dracofl.build import build_medium, build_peer_core, build_problem, build_simulator, build_world
from dracofl.compute.reference import ReferenceExecutor
from dracofl.config.load import load_config
from dracofl.protocol.headers import shape_of
from dracofl.protocol.peer import PeerState
from dracofl.runtime.journal import Line, MemoryJournal
from dracofl.runtime.peer import Peer
from dracofl.runtime.ports import Limits
from dracofl.runtime.records import records_of
from dracofl.runtime.virtual import VirtualNetwork
from dracofl.trace import EventRow, MessageRow
from dracofl.types import Fate

EIGHT = ["users=8", "duration_s=300", "compute.snapshot=start", "method.hub=round-robin", "evaluate.users=0"]
WORLDS = {
    "complete, wireless": ["method.psi=20", "channel.message_bytes=2000000"],
    "cycle, no budget": ["topology.kind=cycle"],
    "directed, delays": ["topology.kind=directed-cycle", "channel.kind=exponential", "channel.rate=0.1"],
    "losses": ["channel.kind=lossy", "channel.loss=0.3", "channel.delay_s=2"],
    "window": ["method.window_s=5", "method.psi=20", "method.period_s=40"],
    "poisson": ["transmit.when=poisson", "transmit.rate=0.05"],
    "poisson, latest": ["transmit.when=poisson", "transmit.backlog=latest", "topology.kind=k-out"],
    "random hub": ["method.hub=random", "topology.kind=grid"],
    "no unification": ["method.unification=off"],
    "own weight 0, ideal": ["method.own_weight=0", "channel.kind=ideal"],
}


@pytest.mark.parametrize("changes", WORLDS.values(), ids=WORLDS)
def test_eight_peers_give_the_simulators_trace_and_models(changes: list[str]) -> None:
    config = load_config("tiny", [*EIGHT, *changes])
    world, problem = build_world(config), build_problem(config)

    simulator = build_simulator(config, world, problem.parameter_count)
    executor = ReferenceExecutor(problem, config.users, 0)
    simulator.start()
    events: list[EventRow] = []
    messages: list[MessageRow] = []
    while not simulator.state.done:
        stretch = simulator.next_stretch()
        executor.play(stretch.operations)
        events += stretch.events
        messages += stretch.messages

    network = VirtualNetwork(lambda model, user, number: np.asarray(problem.local_update(model, user, number)))
    lines: list[tuple[int, Line]] = []
    limits = Limits(shape_of("test"), problem.parameter_count, norm=1e6, deadline_s=math.inf)
    for user in range(config.users):
        core = build_peer_core(config, world, problem.parameter_count, user, PeerState(epoch=1))
        journal = MemoryJournal(user, lines)
        journal.write("start", 0.0, {"epoch": 1})
        medium = build_medium(config, world)
        network.peers[user] = Peer(core, problem.init(), medium, limits, network.ports_of(user), journal)
    network.start(epoch=1)
    network.run(until_s=config.duration_s)
    records = records_of(lines, everybody=True)

    assert records.contradictions == []
    assert set(records.refused) <= {"not_newer"}  # models that two neighbours hand on
    assert records.events == events
    settled = [row for row in messages if row.fate != Fate.PENDING]
    assert [str(row) for row in records.messages if row.fate != Fate.PENDING] == [str(row) for row in settled]
    # What is on its way at the end has no order of its own.
    pending = [
        sorted(_identity(row) for row in rows if row.fate == Fate.PENDING) for rows in (records.messages, messages)
    ]
    assert pending[0] == pending[1]
    for user in range(config.users):
        np.testing.assert_array_equal(network.peers[user].model, executor.vectors[user])
    assert {len(peer.vectors) for peer in network.peers.values()} <= set(range(1, 40))


def _identity(row: MessageRow) -> tuple[object, ...]:
    return row.sender, row.receiver, row.number, row.updates, row.weight, row.sent_s, str(row.arrived_s)
