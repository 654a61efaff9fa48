"""Processes are killed, frozen and cut off; the others must not care, and who returns must find in again.

After each fault: nobody else was slower than 80% of before, no message was applied twice, what senders and receivers
wrote down agrees message by message, the losses went on falling, and who was gone has the others' model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest
from real_peers.checks import (
    Books,
    check_books,
    check_caught_up,
    check_learning_goes_on,
    check_no_silence,
    check_no_stall,
)
from real_peers.peers import LEASE_S, PERIOD_S, Peers
from real_peers.relay import Relay

from dracofl.experiments.replay import replay

PeersOf = Callable[..., Peers]

FAULT_S = 7.0  # when it comes
WINDOW_S = 6.0  # how long the others are watched before and after that
SOON_S = PERIOD_S + 1.0


def check_all(peers: Peers, gone: Iterable[int], back_s: float, within_s: float = SOON_S) -> Books:
    summary = peers.stop()
    gone = set(gone)
    ratios = check_no_stall(peers, set(peers.users) - gone, FAULT_S, WINDOW_S)
    silence_s = check_no_silence(peers, set(peers.users) - gone, FAULT_S, FAULT_S + WINDOW_S)
    books = check_books(peers)
    losses = check_learning_goes_on(peers, FAULT_S)
    took = check_caught_up(peers, gone, back_s, within_s)
    print(f"pace {ratios}, silence {silence_s} s, loss {losses}, caught up after {took}, {summary['messages']}")
    return books


def check_replay(peers: Peers) -> None:
    found = replay(peers.path)
    assert found.different == []
    assert found.numbers
    assert found.equal_models == len(peers.users)


@pytest.mark.slow
@pytest.mark.parametrize("gone", [(3,), (0, 2)], ids=["one", "half"])
def test_killed_peers_do_not_slow_the_others_and_catch_up_when_they_are_started_again(
    peers_of: PeersOf, gone: tuple[int, ...]
) -> None:
    with peers_of() as peers:
        peers.sleep_until(FAULT_S)
        peers.kill(*gone)
        peers.sleep_until(FAULT_S + 3.0)
        peers.restart(*gone)
        back_s = peers.now()
        for user in gone:
            peers.wait_until_they_reach(user, set(peers.users) - {user})
        peers.sleep_until(max(FAULT_S + WINDOW_S, peers.now() + 4.0))
        books = check_all(peers, gone, back_s)
        check_replay(peers)
    lives = {key.epoch for key in books.sent if key.sender in gone}
    assert len(lives) == 2 * len(gone)


@pytest.mark.slow
def test_a_peer_that_is_started_again_is_no_hub_before_it_has_asked_for_a_newer_model(peers_of: PeersOf) -> None:
    with peers_of(users=2) as peers:
        peers.sleep_until(1.5 * PERIOD_S)
        peers.kill(0)
        peers.restart(0, at_phase=0.01)
        peers.wait_until_they_reach(0, {1})
        lines = peers.journal(0)
        peers.stop()
    last_start = max(place for place, line in enumerate(lines) if line[0] == "start")
    kinds = [line[0] for line in lines[last_start:] if line[0] in ("given", "model", "unified")]
    assert kinds[0] != "unified"


@pytest.mark.slow
def test_a_peer_frozen_for_longer_than_the_lease_does_not_slow_the_others_and_catches_up(peers_of: PeersOf) -> None:
    with peers_of() as peers:
        peers.sleep_until(FAULT_S)
        peers.freeze(1)
        peers.sleep_until(FAULT_S + 2.5 * LEASE_S)
        assert all(1 not in peers.statuses[user]["reaches"] for user in (0, 2, 3))
        peers.thaw(1)
        back_s = peers.now()
        peers.sleep_until(back_s + 0.5)
        peers.wait_until_they_reach(1, {0, 2, 3})
        peers.sleep_until(max(FAULT_S + WINDOW_S, peers.now() + 4.0))
        check_all(peers, {1}, back_s)
        check_replay(peers)


@pytest.mark.slow
def test_a_peer_whose_links_are_cut_goes_on_alone_and_catches_up_when_they_are_healed(peers_of: PeersOf) -> None:
    with Relay(4) as relay, peers_of(links=relay) as peers:
        peers.sleep_until(FAULT_S)
        relay.cut(2)
        peers.sleep_until(FAULT_S + 2.5 * LEASE_S)
        assert peers.statuses[2]["reaches"] == []
        assert all(2 not in peers.statuses[user]["reaches"] for user in (0, 1, 3))
        relay.heal(2)
        back_s = peers.now()
        peers.wait_until_they_reach(2, {0, 1, 3})
        peers.sleep_until(max(FAULT_S + WINDOW_S, peers.now() + 4.0))
        check_all(peers, {2}, back_s, within_s=SOON_S + 2.0)  # it is connected to again after a while
        check_no_stall(peers, {2}, FAULT_S, 2.5 * LEASE_S)
