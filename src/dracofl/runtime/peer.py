"""A peer: its cores, its vectors, its radio and its journal. No thread, no socket, no clock: its driver has them.

The driver (`service`, or a test in virtual time) tells it what happened and when; the peer asks the core, does the
arithmetic, writes the journal, and asks through its `Ports` for what takes time: training, timers, sending.

    timer, training, message, member ──> Peer ──> core ──> commands ──> vectors, journal, ports
                                           └────────────── answer to a message
"""

from __future__ import annotations

import math

import numpy as np

from dracofl.channels.interface import Medium
from dracofl.compute.arithmetic import PLAIN, are_finite, play, sum_of_squares
from dracofl.errors import DivergedError
from dracofl.protocol.commands import (
    AskForModel,
    Command,
    Happening,
    RecordFinish,
    SendModel,
    SendUpdate,
    SetTimer,
    Settle,
)
from dracofl.protocol.headers import (
    LATEST_EPOCH,
    Answer,
    Header,
    Kind,
    Verdict,
    decode,
    decode_answer,
    encode_answer,
    numbers_of_answer,
)
from dracofl.protocol.messages import Message
from dracofl.protocol.peer import PeerCore
from dracofl.runtime.journal import START, Journal, checksum, digest
from dracofl.runtime.offsets import Offsets
from dracofl.runtime.outgoing import Outgoing
from dracofl.runtime.parcel import Parcel
from dracofl.runtime.ports import Limits, Ports
from dracofl.runtime.transport import Unanswered
from dracofl.tape import Train
from dracofl.types import Fate


class Peer:
    def __init__(
        self, core: PeerCore, model: np.ndarray, medium: Medium | None, limits: Limits, ports: Ports, journal: Journal
    ) -> None:
        self.core = core
        self.user = core.user
        self.vectors: dict[int, np.ndarray] = {core.user: model}
        self.offsets = Offsets()
        self.applied = 0
        self.refused = 0
        self.deaf_to_us: set[int] = set()  # neighbours who know a later start of this user, and so take no message
        self._limits = limits
        self._ports = ports
        self._journal = journal
        self._outgoing = Outgoing(core, medium, limits, self.offsets, ports, journal)
        self._trained: np.ndarray | None = None  # the update that is being computed, once it is
        self._is_due = False
        self._epochs: dict[int, int] = {}  # of the senders of updates that arrived, by their vectors, until settled

    @property
    def model(self) -> np.ndarray:
        return self.vectors[self.user]

    # What happens to it

    def start(self, now_s: float) -> None:
        self._tell("timer", now_s, START, commands=self.core.start(now_s))

    def timer(self, happening: Happening, now_s: float) -> None:
        if happening == Happening.UPDATE_DUE:
            self._is_due = True
            self._finish_if_ready(now_s)
            return
        self._tell("timer", now_s, happening.name, commands=self.core.timer(happening, now_s))

    def trained(self, update: np.ndarray, now_s: float, at_own_pace: bool = False) -> None:
        """The numbers are there. The update is finished when its drawn time is over too, or at once if free."""
        if not are_finite(update):
            number = self.core.node.state.started - 1
            raise DivergedError(time_s=now_s, user=self.user, operation=f"local update {number}")
        self._trained = update
        self._is_due = self._is_due or at_own_pace
        self._finish_if_ready(now_s)

    def member_came(self, user: int, epoch: int, now_s: float) -> None:
        if epoch > LATEST_EPOCH:  # nobody's: no message to it could be written
            return
        if self.core.state.members.get(user) != epoch:
            self.offsets.forget(user)
        self._tell("came", now_s, user, epoch, commands=self.core.member_came(user, epoch, now_s))

    def member_left(self, user: int, epoch: int, now_s: float) -> None:
        self.core.member_left(user, epoch)
        self._tell("left", now_s, user, epoch, commands=[])

    def message(self, head: bytes, body: bytes, now_s: float, sender: int | None = None) -> bytes:
        """What to answer to a message, whatever it is. `sender` is who sent it, if the network can tell."""
        size = len(head) + len(body)
        found = decode(head, len(body), self._limits.shape, self._limits.parameters)
        if isinstance(found, Verdict):
            return self._refuse(found, -1, 0, size, now_s)
        header, verdict = found, self.core.judge(found)
        if sender is not None and sender != header.sender:
            verdict = Verdict.STRANGER
        numbers = np.frombuffer(body, "<f4")
        square = sum_of_squares(numbers) if verdict == Verdict.ACCEPTED else 0.0
        if verdict == Verdict.ACCEPTED:
            verdict = self._judge_size(numbers, square)
        if verdict != Verdict.ACCEPTED:
            return self._refuse(verdict, header.sender, header.number, size, now_s, header)
        if header.kind == Kind.ASK:
            return self._give_model(header, now_s)
        if header.kind == Kind.MODEL:
            return self._take_model(header, numbers, now_s)
        return self._take_update(header, numbers, square, now_s)

    def answered(self, parcel: Parcel, data: bytes | memoryview | Unanswered, asked_s: float, now_s: float) -> None:
        """What became of a parcel."""
        header = parcel.header
        answer = None if isinstance(data, Unanswered) else decode_answer(data, self._limits.parameters)
        if answer is not None and answer.epoch == self.core.state.members.get(header.receiver):  # its clock of today
            self.offsets.note(header.receiver, asked_s, now_s, answer.now_s)
        elif answer is None and not isinstance(data, Unanswered):
            self._note_refusal(Verdict.SENSELESS, "ANSWER", header.receiver, 0, 0, len(data), now_s)
        if answer is not None and answer.verdict == Verdict.EARLIER_SENDER:
            self.deaf_to_us.add(header.receiver)
        elif answer is not None:
            self.deaf_to_us.discard(header.receiver)
        if header.kind == Kind.ASK:
            self._model_given(header, answer, data, now_s)
            return
        if isinstance(data, Unanswered):
            outcome = data.value
        else:  # an answer that makes no sense says no more than none
            outcome = Unanswered.TIMEOUT.value if answer is None else answer.verdict.name
        kind, offset_s = header.kind.name, self.offsets.of(header.receiver)
        known = None if math.isnan(offset_s) else offset_s
        self._journal.write(
            "answered", now_s, kind, header.receiver, header.to_epoch, list(parcel.numbers), outcome, known
        )

    # What it does

    def _finish_if_ready(self, now_s: float) -> None:
        if not self._is_due or self._trained is None:
            return
        training = self.core.node.state.training
        self.vectors[training], self._trained, self._is_due = self._trained, None, False
        # What neighbours send is finite and bounded, so the model is looked at once an update and not at every message.
        if not are_finite(self.model):
            raise DivergedError(time_s=now_s, user=self.user, operation="applying updates")
        # All other numbers follow from these by the commands, so with them a replay knows whether they were the same.
        proof = checksum(self.vectors[training])
        commands = self.core.timer(Happening.UPDATE_DUE, now_s)
        self._tell("timer", now_s, Happening.UPDATE_DUE.name, proof, commands=commands)

    def _tell(self, *line: object, commands: list[Command]) -> None:
        """Journal first: what happened is on record before it has consequences."""
        self._journal.write(*line, digest(commands))
        now_s = line[1]
        assert isinstance(now_s, float)
        self._carry_out(commands, now_s)

    def _judge_size(self, numbers: np.ndarray, square: float) -> Verdict:
        if square <= self._limits.norm**2:
            return Verdict.ACCEPTED
        # Squares of large numbers overflow, so a sum that is not finite proves nothing.
        return Verdict.TOO_LARGE if are_finite(numbers) else Verdict.NOT_FINITE

    def _refuse(
        self, verdict: Verdict, sender: int, number: int, size: int, now_s: float, header: Header | None = None
    ) -> bytes:
        kind, epoch = ("", 0) if header is None else (header.kind.name, header.epoch)
        self._note_refusal(verdict, kind, sender, epoch, number, size, now_s)
        return self._answer(verdict, number, now_s)

    def _note_refusal(
        self, verdict: Verdict, kind: str, sender: int, epoch: int, number: int, size: int, now_s: float
    ) -> None:
        self.refused += verdict != Verdict.NOT_NEWER  # every hub's model comes from several neighbours
        self._journal.write("refused", now_s, verdict.name, kind, sender, epoch, number, size)

    def _answer(self, verdict: Verdict, number: int, now_s: float, model: np.ndarray | None = None) -> bytes:
        length = 0 if model is None else len(model)
        head = encode_answer(Answer(verdict, self.core.state.epoch, number, now_s, length))
        return head if model is None else head + model.astype("<f4", copy=False).tobytes()

    def _take_update(self, header: Header, numbers: np.ndarray, square: float, now_s: float) -> bytes:
        vector = self.core.vectors.new()
        self.vectors[vector] = numbers
        self._epochs[vector] = header.epoch
        message = self._message(header, vector, now_s)
        commands = self.core.update_arrived(header, message, now_s)
        over = any(isinstance(command, Settle) and command.fate == Fate.OVER_BUDGET for command in commands)
        verdict = Verdict.OVER_BUDGET if over else Verdict.ACCEPTED
        self._tell("update", now_s, header[1:-1], message, square, commands=commands)
        return self._answer(verdict, header.number, now_s)

    def _take_model(self, header: Header, numbers: np.ndarray, now_s: float) -> bytes:
        vector = self.core.vectors.new()
        self.vectors[vector] = numbers
        message = self._message(header, vector, now_s)
        commands = self.core.model_arrived(header, message, now_s)
        self._tell("model", now_s, header[1:-1], message, checksum(numbers), commands=commands)
        if message.sent_s != now_s:  # as in a simulation, one that is there at once leaves no row
            self._journal.write("model_received", now_s, header.hub, header.number)
        return self._answer(Verdict.ACCEPTED, header.number, now_s)

    def _give_model(self, header: Header, now_s: float) -> bytes:
        period = self.core.node.state.unified_period
        newer = period > header.number
        if newer:
            self._journal.write("gave", now_s, header.sender, period, checksum(self.model))
        return self._answer(Verdict.ACCEPTED, period, now_s, self.model if newer else None)

    def _model_given(
        self, question: Header, answer: Answer | None, data: bytes | memoryview | Unanswered, now_s: float
    ) -> None:
        neighbour = question.receiver
        if answer is None or answer.verdict != Verdict.ACCEPTED or isinstance(data, Unanswered):
            return  # another neighbour may come, or this one again
        numbers = np.frombuffer(numbers_of_answer(data), "<f4")
        if not len(numbers):
            self.core.no_newer_model()
            self._tell("given", now_s, neighbour, answer.epoch, None, None, "", commands=[])
            return
        newer = answer.number > question.number
        verdict = self._judge_size(numbers, sum_of_squares(numbers)) if newer else Verdict.NOT_NEWER
        if verdict != Verdict.ACCEPTED:
            self._note_refusal(verdict, "ANSWER", neighbour, answer.epoch, answer.number, len(data), now_s)
            return
        vector = self.core.vectors.new()
        self.vectors[vector] = numbers
        size = 4 * len(numbers)
        message = Message(neighbour, self.user, answer.number, 0, 1.0, vector, size, now_s, now_s, now_s)
        commands = self.core.model_given(message, now_s)
        proof = checksum(numbers)
        self._tell("given", now_s, neighbour, answer.epoch, answer.number, message, proof, commands=commands)

    def _message(self, header: Header, vector: int, now_s: float) -> Message:
        """With times by our own clock, as far as they can be known."""
        offset_s = header.offset_s if not math.isnan(header.offset_s) else -self.offsets.of(header.sender)
        weight = header.weight if header.kind == Kind.UPDATE else 1.0
        size = self.core.node.rules.payload_bytes
        finished_s, sent_s = header.finished_s + offset_s, header.sent_s + offset_s
        return Message(
            header.sender, self.user, header.number, header.updates, weight, vector, size, finished_s, sent_s, now_s
        )

    def _carry_out(self, commands: list[Command], now_s: float) -> None:
        for command in commands:
            if isinstance(command, PLAIN):
                with np.errstate(over="ignore", invalid="ignore"):
                    play(self.vectors, command)
            elif isinstance(command, Train):
                self._ports.train(command.number, self.vectors[command.source].copy())
            elif isinstance(command, SetTimer):
                self._ports.set_timer(command.happening, command.at_s)
            elif isinstance(command, RecordFinish):
                self._journal.write("finished", now_s, command.number)
            elif isinstance(command, Settle):
                self._settle(command, now_s)
            elif isinstance(command, SendUpdate):
                self._outgoing.send_update(command, self.vectors[command.vector], now_s)
                self._let_go(command.vector)
            elif isinstance(command, SendModel):
                self._outgoing.send_model(command, self.vectors[command.vector], now_s)
                self._let_go(command.vector)
            elif isinstance(command, AskForModel):
                self._outgoing.ask(command, now_s)

    def _settle(self, command: Settle, now_s: float) -> None:
        message = command.message
        self.applied += command.fate == Fate.APPLIED
        epoch = self._epochs.pop(message.vector)
        self._journal.write("settled", now_s, epoch, list(message), command.fate.value, command.reason)

    def _let_go(self, vector: int) -> None:
        """Parcels hold the numbers themselves; the core's reference ends here."""
        if self.core.vectors.hand_over(vector, 0):
            del self.vectors[vector]
