"""A fold: short sums for very many vectors at once, which never become nodes but go straight into arrays.

With many users few of those that heard something in a stretch also train in it, so at its end nearly every message
waits alone. A node for each would cost more than the message itself. None of these sums is a term of another, so they
need no order: they are cut into pieces that fit into a block each.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain

import numpy as np

from dracofl.compute.dealing import Node, Term


@dataclass(frozen=True, slots=True)
class Fold:
    """slots[destination] <- itself and its terms, added one at a time; no destination is a term of another."""

    destinations: np.ndarray
    counts: np.ndarray  # terms of each
    sources: np.ndarray  # slots of all terms, one destination's after the other's
    weights: np.ndarray
    orders: np.ndarray  # index in the stretch of the operation that asked for it

    @classmethod
    def of(cls, waiting: Mapping[int, list[Term]]) -> Fold:
        """Slots, and what is to be added to each."""
        sources, weights, orders = zip(*chain.from_iterable(waiting.values()), strict=True)
        return cls(
            np.fromiter(waiting, np.int64, len(waiting)),
            np.fromiter(map(len, waiting.values()), np.int64, len(waiting)),
            np.array(sources, np.int64),
            np.array(weights, np.float32),
            np.array(orders, np.int64),
        )

    def pieces(self, *, most_slots: int, most_sums: int, most_terms: int) -> Iterator[Fold]:
        """In each at most so many different slots, sums, and terms; what is added to is a term, too."""
        ends = np.concatenate([[0], np.cumsum(self.counts)])
        start = 0
        while start < len(self.counts):
            stop = min(start + most_sums, len(self.counts))
            counted = ends[start + 1 : stop + 1] - ends[start]  # terms of the sums up to each one
            sums = np.arange(1, stop - start + 1)
            is_new = np.zeros(counted[-1], np.int64)  # not a source of an earlier sum of the piece
            is_new[np.unique(self.sources[ends[start] : ends[stop]], return_index=True)[1]] = 1
            slots = np.cumsum(is_new)[counted - 1] + sums
            fits = (slots <= most_slots) & (counted + sums <= most_terms)
            end = start + int(fits.sum())
            assert end > start, "a sum that is too long for a fold"
            terms = slice(ends[start], ends[end])
            yield Fold(
                self.destinations[start:end],
                self.counts[start:end],
                self.sources[terms],
                self.weights[terms],
                self.orders[terms],
            )
            start = end

    def nodes(self) -> list[Node]:
        """The same one by one, for who looks for the maker of a value that is not finite."""
        terms = zip(self.sources.tolist(), self.weights.tolist(), self.orders.tolist(), strict=True)
        nodes = []
        for slot, count in zip(self.destinations.tolist(), self.counts.tolist(), strict=True):
            own = [next(terms) for _ in range(count)]
            nodes.append(Node(destination=slot, terms=[(slot, 1.0, own[0][2]), *own]))
        return nodes
