"""What the simulator needs of a method, and what a method gets to know of the world."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, Protocol

from dracofl import rng
from dracofl.protocol.commands import Command, Happening
from dracofl.protocol.messages import Message
from dracofl.protocol.vectors import Vectors
from dracofl.types import Graph


@dataclass(frozen=True, slots=True)
class Setting:
    """The world as every method finds it: who is there, how fast they compute, when they may send."""

    seed: int
    graph: Graph
    compute_rates: tuple[float, ...]
    snapshot: Literal["finish", "start"]
    when: Literal["on-update", "poisson"]
    transmit_rates: tuple[float, ...]
    backlog: Literal["sum", "latest"]
    parameters: int  # length of a model
    message_bytes: int | None  # of a whole model, if it is not to follow from its length

    @property
    def users(self) -> int:
        return self.graph.users

    @property
    def payload_bytes(self) -> int:
        """A whole model or update, uncompressed."""
        return self.message_bytes or 4 * self.parameters

    def computing_s(self, user: int, number: int) -> float:
        """How long local update `number` of this user takes: the same under every method."""
        return rng.exponential(rng.stream(self.seed, "compute", user), number) / self.compute_rates[user]


class Network(Protocol):
    """A method at work on a network of users. All that changes in it is in `state`."""

    vectors: Vectors

    @property
    def state(self) -> Any:
        """A dataclass of plain data; with `restore`, all that a checkpoint needs."""
        ...

    def restore(self, state: Any) -> None: ...

    def start(self) -> list[Command]: ...

    def handle(self, happening: Happening, user: int, message: Message | None, now_s: float) -> list[Command]: ...

    def held(self) -> list[Message]:
        """Messages that arrived but are neither applied nor refused yet."""
        ...

    def unifies(self, happening: Happening) -> bool:
        """Whether this happening is a unification, which evaluations precede."""
        ...
