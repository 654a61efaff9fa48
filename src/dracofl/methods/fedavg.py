"""fedavg: federated averaging (McMahan et al., AISTATS 2017), the familiar upper reference.

User 0 is the server, and takes part. In every round all users take their local step from the common model and send
their models to it; the mean takes the place of everybody's.

It is a reference, not a competitor: links to and from the server are perfect and take no time, whatever the channel,
and the graph is not looked at. Its bytes are counted: an upload from everybody else, a broadcast back. The mean is over
users, not over samples.
"""

from __future__ import annotations

from dataclasses import dataclass

from dracofl.methods.interface import Setting
from dracofl.methods.rounds import RoundNetwork, give_up
from dracofl.methods.sending import send_model
from dracofl.protocol.commands import Command, SendModel, Settle
from dracofl.protocol.messages import Message
from dracofl.protocol.vectors import Vectors
from dracofl.tape import Combine, Copy
from dracofl.types import Fate

SERVER = 0


@dataclass(frozen=True, slots=True)
class FedAvg:
    """Federated averaging with a server and perfect links: an upper reference, not over the air."""

    def open(self, setting: Setting) -> RoundNetwork:
        return RoundNetwork(setting, ServerMixing(setting))


class ServerMixing:
    def __init__(self, setting: Setting) -> None:
        self._setting = setting
        self.vectors = Vectors(models=setting.users)
        self.numbers: list[float] = [0.0]  # rounds

    def start(self) -> list[Command]:
        return []

    def send(self, user: int, round_number: int, now_s: float) -> list[Command]:
        if user == SERVER:
            return []
        share, payload_bytes = 1.0 / self._setting.users, self._setting.payload_bytes
        return send_model(
            self.vectors, user, round_number, payload_bytes, (SERVER,), (share,), now_s, reports=True, reliable=True
        )

    def mix(self, arrived: list[Message], now_s: float) -> list[Command]:
        share = 1.0 / self._setting.users
        terms = ((SERVER, share), *((message.vector, share) for message in arrived))
        self.numbers[0] += 1.0
        vector, everybody_else = self.vectors.new(), tuple(range(1, self._setting.users))
        round_number, payload_bytes = int(self.numbers[0]), self._setting.payload_bytes
        out: list[Command] = [
            Combine(now_s, SERVER, SERVER, terms),
            Copy(now_s, SERVER, SERVER, vector),
            SendModel(SERVER, round_number, vector, payload_bytes, everybody_else, reliable=True),
        ]
        out += [Settle(message, Fate.APPLIED) for message in arrived]
        return out + give_up(self.vectors, arrived)
