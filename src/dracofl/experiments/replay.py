"""A real run once more, from its journals, in no time: `draco replay`.

Every peer's cores get what they got then (timers, arrivals, members, finished trainings), in the order of its journal,
and must answer with the same commands. With the journals of everybody and the built-in learners the numbers are made
again too: what a message carried is what its sender's replay made, and has to have the digest that its receiver noted.
Peers go on until they need a message that its sender has not made yet; then it is the others' turn.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from dracofl.build import build_peer_core, build_problem, build_world
from dracofl.compute.arithmetic import PLAIN, play, sum_of_squares
from dracofl.config.load import load_config
from dracofl.config.schema import Config
from dracofl.errors import RunFolderError
from dracofl.experiments.cluster import PEERS
from dracofl.experiments.node import JOURNAL
from dracofl.protocol.commands import Command, Happening, SendModel, SendUpdate
from dracofl.protocol.headers import Header, Kind
from dracofl.protocol.messages import Message
from dracofl.protocol.peer import PeerCore, PeerState
from dracofl.runtime.journal import START, Line, checksum, digest, read_journal
from dracofl.runtime.records import Key, Merges, merges_in
from dracofl.runtime.save import restore_control
from dracofl.tape import Train
from dracofl.telemetry.folder import RunFolder
from dracofl.telemetry.run import Run

LocalUpdate = Callable[[np.ndarray, int, int], np.ndarray]
Name = tuple[object, ...]
"""Of numbers that travel: "update", sender, epoch, number; "model", sender, epoch, hub, period; or "gave", digest."""


@dataclass
class Replay:
    """What came out of it."""

    peers: int = 0
    inputs: int = 0
    different: list[str] = field(default_factory=list)  # where commands or numbers are not those of the journal
    numbers: bool = False  # whether the numbers were made again too
    equal_models: int = 0  # final models that are the same to the last bit


def replay(path: Path, progress: Callable[[int, int], None] | None = None) -> Replay:
    folder = RunFolder.open(path)
    config = load_config(folder.config_file)
    journals = _find_journals(folder, config)
    learning = _built_in(config) if len(journals) == config.users and _is_built_in(folder) else None
    try:
        replayer = _Replayer(config, journals, learning, progress)
    except (LookupError, TypeError, ValueError) as error:
        raise RunFolderError(f"a journal in {folder.path} has a line that no peer writes: {error}") from error
    return replayer.run(folder)


def _is_built_in(folder: RunFolder) -> bool:
    """Whether the peers learned with the task's own learner: what another one does is not known here."""
    try:
        files = [tomllib.loads(file.read_text()) for file in (folder.path / PEERS).glob("*.toml")]
    except (OSError, ValueError) as error:
        raise RunFolderError(f"the files of the peers in {folder.path / PEERS} cannot be read: {error}") from None
    return bool(files) and all(file.get("node", {}).get("learner", "none") == "none" for file in files)


def _built_in(config: Config) -> tuple[np.ndarray, LocalUpdate]:
    problem = build_problem(config)
    return problem.init(), lambda model, user, number: np.asarray(problem.local_update(model, user, number))


def _find_journals(folder: RunFolder, config: Config) -> dict[int, Sequence[Line]]:
    files = {user: folder.path / PEERS / str(user) / JOURNAL for user in range(config.users)}
    found: dict[int, Sequence[Line]] = {user: list(read_journal(file)) for user, file in files.items() if file.exists()}
    if not found and (folder.path / JOURNAL).exists():
        lines = list(read_journal(folder.path / JOURNAL))
        found = {line[2]["user"]: lines for line in lines[:1] if line[0] == "start"}
        if not found:
            raise RunFolderError(f"{folder.path / JOURNAL} does not begin with a start: there is nothing to replay")
    if not found:
        raise RunFolderError(f"{folder.path} has no {JOURNAL}: only runs of real peers can be replayed")
    return found


class _Replayer:
    def __init__(
        self,
        config: Config,
        journals: dict[int, Sequence[Line]],
        learning: tuple[np.ndarray, LocalUpdate] | None,
        progress: Callable[[int, int], None] | None,
    ) -> None:
        self.config, self.world = config, build_world(config)
        self.learning = learning
        self.found = Replay(peers=len(journals), numbers=learning is not None)
        self.numbers: dict[Name, np.ndarray] = {}
        self.merges = merges_in((user, line) for user, lines in journals.items() for line in lines)
        self._readers = {user: _Reader(self, user, lines) for user, lines in journals.items()}
        self._uses = _uses(journals, self.merges)
        self._progress = progress or (lambda done, of: None)

    def run(self, folder: RunFolder) -> Replay:
        total = sum(len(reader.lines) for reader in self._readers.values())
        moved = True
        while moved:
            moved = sum(reader.read_on() for reader in self._readers.values()) > 0
            self._progress(sum(reader.place for reader in self._readers.values()), total)
        for user, reader in self._readers.items():
            if reader.place < len(reader.lines) and not reader.gave_up:
                self.found.different.append(f"peer {user}, line {reader.place + 1}: nobody sent what arrived there")
        if self.learning is not None and not self.found.different:
            self._compare_models(Run(folder.path).models)
        return self.found

    def take(self, name: Name) -> np.ndarray | None:
        """Numbers that somebody sent, dropped after their last use."""
        numbers = self.numbers.get(name)
        if numbers is not None:
            self._uses[name] = self._uses.get(name, 1) - 1
            if self._uses[name] <= 0:
                del self.numbers[name]
        return numbers

    def keep(self, name: Name, numbers: np.ndarray) -> None:
        if self._uses.get(name, 0) > 0:
            self.numbers[name] = numbers

    def _compare_models(self, models: np.ndarray) -> None:
        for user, reader in self._readers.items():
            if np.array_equal(reader.vectors[user], models[user]):
                self.found.equal_models += 1
            else:
                self.found.different.append(f"peer {user}: the final model is another one")


class _Reader:
    """One peer's journal, and its cores once more."""

    def __init__(self, replayer: _Replayer, user: int, lines: Sequence[Line]) -> None:
        self.lines, self.place = lines, 0
        self.vectors: dict[int, np.ndarray] = {}
        self._all, self._user = replayer, user
        self._core: PeerCore | None = None
        self._epoch = 0
        # Vectors at the lines where the state was saved: the last two, as a kill may come before the file is there.
        self._saved: dict[int, dict[int, np.ndarray]] = {}
        self.gave_up = False  # at a line that cannot have been written where it stands

    def read_on(self) -> bool:
        """As far as it gets; returns whether it got anywhere."""
        before = self.place
        while self.place < len(self.lines) and not self.gave_up:
            line = self.lines[self.place]
            try:
                if not self._read(line):
                    break
            except (LookupError, TypeError, ValueError, AssertionError):
                self._differs(line[1], f'no peer could have written this line "{line[0]}" here')
                self.gave_up = True
                break
            self.place += 1
        return self.place > before

    def _read(self, line: Line) -> bool:
        kind, now_s, *rest = line
        if kind == "start":
            self._start(rest[0])
        elif kind == "saved":
            vectors = {name: vector.copy() for name, vector in self.vectors.items()}
            self._saved = {**dict(list(self._saved.items())[-1:]), self.place + 1: vectors}
        elif kind == "gave" and self._all.learning is not None:
            self._all.keep(("gave", rest[2]), self.vectors[self._user].copy())
        elif kind in ("update", "model", "given"):
            return self._arrival(kind, now_s, rest)
        elif kind in ("timer", "came", "left"):
            self._check(self._happened(kind, now_s, rest), rest[-1], now_s)
        return True

    def _start(self, state: dict[str, Any]) -> None:
        config, world = self._all.config, self._all.world
        self._epoch = state["epoch"]
        parameters = 1 if self._all.learning is None else len(self._all.learning[0])
        self._core = build_peer_core(config, world, parameters, self._user, PeerState(self._epoch))
        restore_control(self._core, state)
        if self._all.learning is None:
            return
        if state["saved_lines"] is None:
            self.vectors = {self._user: self._all.learning[0].copy()}
        else:
            # That file was there, so it is the one to go on from until another one is.
            saved = self._saved[state["saved_lines"]]
            self._saved = {state["saved_lines"]: saved}
            kept = {self._user, *self._core.vectors.state.references}
            self.vectors = {name: vector.copy() for name, vector in saved.items() if name in kept}

    @property
    def core(self) -> PeerCore:
        assert self._core is not None
        return self._core

    def _happened(self, kind: str, now_s: float, rest: list[Any]) -> list[Command]:
        core = self.core
        if kind == "came":
            return core.member_came(rest[0], rest[1], now_s)
        if kind == "left":
            core.member_left(rest[0], rest[1])
            return []
        if rest[0] == START:
            return core.start(now_s)
        if rest[0] == Happening.UPDATE_DUE.name and self._all.learning is not None:
            trained = self.vectors[core.node.state.training]
            if checksum(np.ascontiguousarray(trained)) != rest[1]:
                self._differs(now_s, f"local update {core.node.state.finished} has other numbers")
        return core.timer(Happening[rest[0]], now_s)

    def _arrival(self, kind: str, now_s: float, rest: list[Any]) -> bool:
        """False if its sender's replay is not there yet."""
        core = self.core
        if kind == "given" and rest[2] is None:
            core.no_newer_model()
            self._check([], rest[-1], now_s)
            return True
        message, proof, commands_then = Message(*rest[-3]), rest[-2], rest[-1]
        if self._all.learning is not None:
            numbers = self._numbers_of(kind, rest)
            if numbers is None:
                return False
            if (sum_of_squares(numbers) if kind == "update" else checksum(np.ascontiguousarray(numbers))) != proof:
                self._differs(now_s, "a message carries other numbers")
            self.vectors[message.vector] = numbers
        if core.vectors.new() != message.vector:
            self._differs(now_s, "another name for a vector")
        if kind == "given":
            commands = core.model_given(message, now_s)
        else:
            header = Header._make([Kind.UPDATE if kind == "update" else Kind.MODEL, *rest[0], b""])
            arrived = core.update_arrived if kind == "update" else core.model_arrived
            commands = arrived(header, message, now_s)
        self._check(commands, commands_then, now_s)
        return True

    def _numbers_of(self, kind: str, rest: list[Any]) -> np.ndarray | None:
        if kind == "given":
            return self._all.take(("gave", rest[-2]))
        sender, receiver, epoch, _, number, _, hub, *_ = rest[0]
        if kind == "model":
            return self._all.take(("model", sender, epoch, hub, number))
        names = _carried(self._all.merges, sender, epoch, number, receiver)
        if any(name not in self._all.numbers for name in names):
            return None
        total = self._all.take(names[0])
        for name in names[1:]:
            later = self._all.take(name)
            assert total is not None
            assert later is not None
            total = total + later
        return total

    def _check(self, commands: list[Command], then: str, now_s: float) -> None:
        self._all.found.inputs += 1
        if digest(commands) != then:
            self._differs(now_s, "other commands follow")
        if self._all.learning is not None:
            for command in commands:
                self._carry_out(command)
        else:
            for command in commands:
                if isinstance(command, SendUpdate | SendModel):
                    self.core.vectors.hand_over(command.vector, 0)

    def _carry_out(self, command: Command) -> None:
        vectors = self.vectors
        if isinstance(command, PLAIN):
            play(vectors, command)
        elif isinstance(command, Train):
            assert self._all.learning is not None
            vectors[command.destination] = self._all.learning[1](vectors[command.source], self._user, command.number)
        elif isinstance(command, SendUpdate | SendModel):
            self._all.keep(self._name(command), vectors[command.vector])
            if self.core.vectors.hand_over(command.vector, 0):
                del vectors[command.vector]

    def _name(self, command: SendUpdate | SendModel) -> Name:
        if isinstance(command, SendUpdate):
            return "update", self._user, self._epoch, command.number
        return "model", self._user, self._epoch, command.hub, command.period

    def _differs(self, now_s: float, how: str) -> None:
        self._all.found.different.append(f"peer {self._user}, line {self.place + 1}, t = {now_s:.3f} s: {how}")


def _carried(merges: Merges, sender: int, epoch: int, number: int, receiver: int) -> list[Name]:
    numbers = [number, *merges.get(Key(sender, epoch, number, receiver), ())]
    return [("update", sender, epoch, one) for one in numbers]


def _uses(journals: dict[int, Sequence[Line]], merges: Merges) -> dict[Name, int]:
    """How often each travelling vector will be needed, so that it can be dropped after that."""
    uses: dict[Name, int] = {}

    def count(name: Name) -> None:
        uses[name] = uses.get(name, 0) + 1

    for lines in journals.values():
        for line in lines:
            if line[0] == "given" and line[4] is not None:
                count(("gave", line[-2]))
            elif line[0] in ("update", "model"):
                sender, receiver, epoch, _, number, _, hub, *_ = line[2]
                if line[0] == "model":
                    count(("model", sender, epoch, hub, number))
                else:
                    for name in _carried(merges, sender, epoch, number, receiver):
                        count(name)
    return uses
