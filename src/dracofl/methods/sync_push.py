"""sync-push: stochastic gradient push (Assran, Loizou, Ballas and Rabbat, ICML 2019), push-sum on directed graphs.

User i keeps z(i), which is its model, and a weight w(i) that starts at 1. With p = 1 / (1 + out-degree), self included,
it takes its local step on z(i) and sends (z(i), p w(i)) to each out-neighbour. At the end of the round

    w(i) <- sum of the shares that reached i        z(i) <- sum of share * z(sender) / w(i)

so the mixing weights are numbers of the control plane, in float64, and dividing by w never happens to a vector alone.

Decided here, where the paper has no lossy radio: a share that does not arrive stays with its sender, who knows that the
deadline has passed. So mixing conserves the sum of w and the sum of w z. A user whom nobody reaches gives its weight
away; when that has shrunk to nothing it keeps its z, instead of dividing nothing by nothing. A message carries w in 8
bytes beside z.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from dracofl.methods.interface import Setting
from dracofl.methods.rounds import RoundNetwork, give_up
from dracofl.methods.sending import send_model
from dracofl.protocol.commands import Command, Settle
from dracofl.protocol.messages import Message
from dracofl.protocol.vectors import Vectors
from dracofl.tape import Combine
from dracofl.types import Fate

_WEIGHT_BYTES = 8


@dataclass(frozen=True, slots=True)
class SyncPush:
    """Push-sum SGD: synchronous rounds on a directed graph, column-stochastic weights."""

    def open(self, setting: Setting) -> RoundNetwork:
        return RoundNetwork(setting, PushSumMixing(setting))


class PushSumMixing:
    def __init__(self, setting: Setting) -> None:
        self._setting = setting
        self.vectors = Vectors(models=setting.users)
        self.numbers: list[float] = [1.0] * setting.users  # w

    def start(self) -> list[Command]:
        return []

    def send(self, user: int, round_number: int, now_s: float) -> list[Command]:
        receivers = self._setting.graph.successors[user]
        share = self.numbers[user] / (1 + len(receivers))
        weights, payload_bytes = (share,) * len(receivers), self._setting.payload_bytes + _WEIGHT_BYTES
        return send_model(self.vectors, user, round_number, payload_bytes, receivers, weights, now_s, reports=True)

    def mix(self, arrived: list[Message], now_s: float) -> list[Command]:
        heard: dict[int, list[Message]] = defaultdict(list)
        reached: dict[int, int] = defaultdict(int)
        for message in arrived:
            heard[message.receiver].append(message)
            reached[message.sender] += 1
        out: list[Command] = []
        weights = []
        for user, receivers in enumerate(self._setting.graph.successors):
            # Its own share, and those that did not arrive.
            own = self.numbers[user] * (1 + len(receivers) - reached[user]) / (1 + len(receivers))
            total = own + sum(message.weight for message in heard[user])
            weights.append(total)
            if total > 0.0:
                terms = [(message.vector, message.weight / total) for message in heard[user]]
                out.append(Combine(now_s, user, user, ((user, own / total), *terms)))
        self.numbers = weights
        out += [Settle(message, Fate.APPLIED) for message in arrived]
        return out + give_up(self.vectors, arrived)
