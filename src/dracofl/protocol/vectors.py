"""Names of vectors and how many still need each: the tape frees a vector after its last reader."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class VectorsState:
    next_name: int
    references: dict[int, int] = field(default_factory=dict)


class Vectors:
    """Hands out names. The first `models` names are the users' models and are never freed."""

    def __init__(self, models: int) -> None:
        self.state = VectorsState(next_name=models)

    def new(self) -> int:
        """A fresh name with one reference, the caller's."""
        state = self.state
        name = state.next_name
        state.next_name = name + 1
        state.references[name] = 1
        return name

    def retain(self, name: int, references: int) -> None:
        self.state.references[name] += references

    def hand_over(self, name: int, receivers: int) -> bool:
        """The caller's reference becomes one for each receiver; true if there is none: the vector is to be freed."""
        references = self.state.references
        left = references[name] + receivers - 1
        if left:
            references[name] = left
            return False
        del references[name]
        return True

    def release(self, name: int) -> bool:
        """Give up one reference; true if it was the last, and the vector is to be freed."""
        references = self.state.references
        left = references[name] - 1
        if left:
            references[name] = left
            return False
        del references[name]
        return True
