"""What methods need that average over links which work both ways."""

from __future__ import annotations

from collections.abc import Iterable

from dracofl.errors import ConfigError
from dracofl.protocol.messages import Message
from dracofl.types import Graph


def require_links_both_ways(graph: Graph, method: str) -> None:
    """A clear no, before a run starts, to a graph on which the method means nothing."""
    for sender, receivers in enumerate(graph.successors):
        for receiver in receivers:
            if sender not in graph.successors[receiver]:
                raise ConfigError(
                    f'method.kind = "{method}" needs links that go both ways, and user {sender} sends to {receiver} '
                    f"but not the other way round; choose another topology.kind (cycle, complete, star, grid, torus, "
                    "geometric) or a method for directed graphs (draco, sync-push, async-push)"
                )


def metropolis_weights(graph: Graph) -> list[dict[int, float]]:
    """w(i,j) = 1 / (1 + max(degree i, degree j)): symmetric, and doubly stochastic with the rest on the diagonal."""
    degrees = [len(receivers) for receivers in graph.successors]
    return [
        {receiver: 1.0 / (1 + max(degrees[sender], degrees[receiver])) for receiver in receivers}
        for sender, receivers in enumerate(graph.successors)
    ]


def working_links(arrived: Iterable[Message]) -> dict[tuple[int, int], Message]:
    """The messages, by (sender, receiver), of the links whose both directions arrived."""
    by_link = {(message.sender, message.receiver): message for message in arrived}
    return {link: message for link, message in by_link.items() if (link[1], link[0]) in by_link}
