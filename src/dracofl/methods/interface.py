"""What the simulator needs of a method, and what a method gets to know of the world."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, Protocol

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
    transmit_rate: float
    backlog: Literal["sum", "latest"]
    payload_bytes: int


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
