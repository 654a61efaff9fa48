"""sync-symm: CHOCO-SGD (Koloskova, Stich and Jaggi, ICML 2019), synchronous gossip with compressed differences.

In every round user i takes its local step, sends q(i,j) = C(x(i) - xhat(i,j)) to each neighbour j, both ends add it to
their copy of xhat(i,j), and

    x(i) += gamma * sum over j of w(i,j) (xhat(j,i) - xhat(i,j))

with Metropolis weights, symmetric and doubly stochastic.

Decided here, where the paper has no lossy radio: the public copies are one per directed link, stored separately at both
ends. A link works in a round only if both directions arrived; otherwise it rests: both ends keep their copies, which
therefore stay equal whatever is lost, and the link contributes nothing. Everybody starts from the same x0, so the
copies start there too. Without compression one broadcast of x(i) serves all links, and the new copy is x(i) itself;
with compression there is a message a link, and its bytes are paid. A message on a link that rests counts as lost.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from dracofl import rng
from dracofl.errors import ConfigError
from dracofl.methods.compression import compressed_bytes
from dracofl.methods.interface import Setting
from dracofl.methods.rounds import RoundNetwork, give_up
from dracofl.methods.sending import send_model
from dracofl.methods.symmetric import metropolis_weights, require_links_both_ways, working_links
from dracofl.protocol.commands import Command, SendUpdate, Settle
from dracofl.protocol.messages import Message
from dracofl.protocol.vectors import Vectors
from dracofl.tape import Combine, Compress, Compression, Copy, Free
from dracofl.types import Fate

LINK_RESTED = "the other direction failed"


@dataclass(frozen=True, slots=True)
class SyncSymm:
    """CHOCO-SGD: synchronous rounds, gossip over links that work both ways, optional compression."""

    gamma: float
    compressor: Literal["identity", "top-k", "random-k", "qsgd"]
    keep: float  # of the entries, by top-k and random-k
    levels: int  # of qsgd

    def open(self, setting: Setting) -> RoundNetwork:
        require_links_both_ways(setting.graph, "sync-symm")
        return RoundNetwork(setting, ChocoMixing(self, setting))

    def compression(self, parameters: int) -> Compression | None:
        if self.compressor == "identity":
            return None
        if self.compressor == "qsgd":
            return Compression("qsgd", self.levels)
        kept = max(1, round(self.keep * parameters))
        if kept > parameters:
            raise ConfigError(f"method.keep = {self.keep} is more than all entries")
        return Compression(self.compressor, kept)


class ChocoMixing:
    def __init__(self, method: SyncSymm, setting: Setting) -> None:
        self._gamma = method.gamma
        self._setting = setting
        self._weights = metropolis_weights(setting.graph)
        self._compression = method.compression(setting.parameters)
        links = [
            (sender, receiver) for sender, receivers in enumerate(setting.graph.successors) for receiver in receivers
        ]
        users = setting.users
        # Names after the models: for each directed link the sender's copy, then the receiver's.
        self.senders_copy = {link: users + 2 * number for number, link in enumerate(links)}
        self.receivers_copy = {link: users + 2 * number + 1 for number, link in enumerate(links)}
        self.vectors = Vectors(models=users + 2 * len(links))
        self.numbers: list[float] = []

    def start(self) -> list[Command]:
        return [
            Copy(0.0, sender, sender, copies[sender, receiver])
            for sender, receiver in self.senders_copy
            for copies in (self.senders_copy, self.receivers_copy)
        ]

    def send(self, user: int, round_number: int, now_s: float) -> list[Command]:
        receivers = self._setting.graph.successors[user]
        weights = tuple(self._weights[user][receiver] for receiver in receivers)
        if self._compression is None:
            payload_bytes = self._setting.payload_bytes
            return send_model(self.vectors, user, round_number, payload_bytes, receivers, weights, now_s, reports=True)
        payload_bytes = compressed_bytes(self._compression, self._setting.parameters, self._setting.payload_bytes)
        out: list[Command] = []
        for receiver, weight in zip(receivers, weights, strict=True):
            difference, message = self.vectors.new(), self.vectors.new()
            self.vectors.release(difference)
            draws = rng.substream(rng.stream(self._setting.seed, "compress", user, receiver), round_number)
            out += [
                Combine(now_s, user, difference, ((user, 1.0), (self.senders_copy[user, receiver], -1.0))),
                Compress(now_s, user, difference, message, self._compression, draws),
                Free(difference),
                SendUpdate(user, round_number, message, 1, now_s, payload_bytes, (receiver,), (weight,), reports=True),
            ]
        return out

    def mix(self, arrived: list[Message], now_s: float) -> list[Command]:
        working = working_links(arrived)
        out: list[Command] = []
        for (sender, receiver), message in working.items():
            mine, theirs = self.senders_copy[sender, receiver], self.receivers_copy[sender, receiver]
            if self._compression is None:
                out += [Copy(now_s, sender, message.vector, mine), Copy(now_s, receiver, message.vector, theirs)]
            else:
                out += [
                    Combine(now_s, sender, mine, ((mine, 1.0), (message.vector, 1.0))),
                    Combine(now_s, receiver, theirs, ((theirs, 1.0), (message.vector, 1.0))),
                ]
        for user in range(self._setting.users):
            terms = [(user, 1.0)]
            for other in self._setting.graph.successors[user]:
                if (user, other) in working:
                    weight = self._gamma * self._weights[user][other]
                    terms += [
                        (self.receivers_copy[other, user], weight),
                        (self.senders_copy[user, other], -weight),
                    ]
            if len(terms) > 1:
                out.append(Combine(now_s, user, user, tuple(terms)))
        for message in arrived:
            works = (message.sender, message.receiver) in working
            out.append(Settle(message, Fate.APPLIED) if works else Settle(message, Fate.LOST, LINK_RESTED))
        return out + give_up(self.vectors, arrived)
