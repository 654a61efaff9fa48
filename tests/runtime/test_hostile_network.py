"""A running peer, a process of its own, among neighbours that keep to no rule, and one that does. Over loopback."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("zenoh")

import zenoh
from zenoh_net import until as within

from dracofl.config.node import load_node
from dracofl.experiments.cluster import free_ports
from dracofl.experiments.node import limits_of
from dracofl.protocol.headers import (
    HEADER_BYTES,
    Answer,
    Header,
    Kind,
    Verdict,
    decode,
    decode_answer,
    encode,
    encode_answer,
)
from dracofl.runtime.journal import read_journal
from dracofl.runtime.zenoh import ZenohTransport
from dracofl.runtime.zenoh_options import ZenohOptions, configuration

LENGTH, OUR_EPOCH = 149_194, 7
LEARNER = f"""
import numpy as np
class Learner:
    def init(self): return np.zeros({LENGTH}, np.float32)
    def local_update(self, model, number): return np.full({LENGTH}, 1e-6, np.float32)
    def evaluate(self, model, final): return {{}}
def learner(user, users): return Learner()
"""


class Victim:
    """Peer 0 of four, who are all neighbours; its own thread notes what it says of itself."""

    def __init__(self, folder: Path) -> None:
        (port,) = free_ports(1)
        self.address, self.folder = f"tcp/127.0.0.1:{port}", folder / "peer"
        self.file = folder / "node.toml"
        self.file.write_text(
            'preset = "tiny"\nusers = 4\nduration_s = 100000\nchannel = "none"\n'
            'compute = {snapshot = "start", rate = 50}\n'
            'method = {hub = "round-robin", period_s = 100000, psi = 50}\nevaluate = {users = 0}\n'
            f'[node]\nuser = 0\nlisten = ["{self.address}"]\nlearner = "rubbish_learner:learner"\n'
            f'folder = "{self.folder}"\nnetwork = "hostile"\nanswer_timeout_s = 0.5\n'
        )
        (folder / "rubbish_learner.py").write_text(LEARNER)
        self.said: dict[str, Any] = {}
        command = [sys.executable, "-m", "dracofl.experiments.cluster_peer", str(self.file)]
        one_thread = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        self.process = subprocess.Popen(
            command, cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=one_thread
        )
        self._listener = threading.Thread(target=self._listen)
        self._listener.start()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.said = {**self.said, **json.loads(line)}

    def begin(self) -> None:
        assert within(lambda: "ready" in self.said, 60.0)
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        assert within(lambda: self.said.get("updates", 0) > 5, 60.0)

    def memory_mb(self) -> float:
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.split("VmRSS:")[1].split()[0]) / 1024

    def epoch(self) -> int:
        return int(next(read_journal(self.folder / "journal.jsonl"))[2]["epoch"])

    def end(self) -> list[Any]:
        """Ask it to stop; the lines of its journal."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        assert self.process.wait(30) == 0
        return list(read_journal(self.folder / "journal.jsonl"))

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        self._listener.join()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()


class Neighbour:
    """User 1, who keeps to the rules."""

    def __init__(self, victim: Victim) -> None:
        config, node = load_node(victim.file)
        self.shape = limits_of(config, node, np.zeros(LENGTH, np.float32)).shape
        self.received, self.number, self._to_epoch = 0, -1, victim.epoch()
        self.transport = ZenohTransport(options(1, victim.address, OUR_EPOCH))
        self.transport.open(self._answer, lambda *_: None)

    def _answer(self, _: int, data: bytes, numbers: bytes) -> bytes:
        header = decode(data, len(numbers), self.shape, LENGTH)
        self.received += isinstance(header, Header) and header.kind == Kind.UPDATE and header.to_epoch == OUR_EPOCH
        return encode_answer(Answer(Verdict.ACCEPTED, OUR_EPOCH, 0, 0.0, 0))

    def header(self, sender: int = 1) -> Header:
        self.number += 1
        times = (1.0, 1.0, math.nan)
        ends = (sender, 0, OUR_EPOCH, self._to_epoch)
        return Header(Kind.UPDATE, *ends, self.number, 1, sender, 0.25, *times, LENGTH, self.shape)

    def is_heard(self) -> bool:
        """Its update is accepted, in the end: among a flood some are dropped."""
        found = self.transport.send(0, encode(self.header()), np.full(LENGTH, 1e-6, "<f4"), 2.0)
        answer = decode_answer(found, LENGTH) if isinstance(found, bytes) else None
        return answer is not None and answer.verdict in (Verdict.ACCEPTED, Verdict.OVER_BUDGET, Verdict.DUPLICATE)


def options(user: int, address: str, epoch: int) -> ZenohOptions:
    return ZenohOptions(network="hostile", user=user, users=4, epoch=epoch, connect=(address,))


@pytest.fixture
def victim(tmp_path: Path) -> Iterator[Victim]:
    victim = Victim(tmp_path)
    try:
        victim.begin()
        yield victim
    finally:
        victim.kill()


@pytest.fixture
def raw(victim: Victim) -> Iterator[zenoh.Session]:
    """A session that keeps to no rule of ours."""
    settings = configuration(options(3, victim.address, 1))
    settings["transport"]["link"]["rx"]["max_message_size"] = 1 << 30
    with zenoh.open(zenoh.Config.from_json5(json.dumps(settings))) as session:
        assert within(lambda: list(session.get("draco/hostile/to/0/from/3", payload=b"x", timeout=1)))
        yield session


@pytest.fixture
def neighbour(victim: Victim) -> Iterator[Neighbour]:
    neighbour = Neighbour(victim)
    try:
        assert within(neighbour.is_heard)
        yield neighbour
    finally:
        neighbour.transport.close()


def ask(raw: zenoh.Session, data: bytes, sender: str = "3", timeout_s: float = 2.0) -> Any:
    """BLOCK, so that all of it arrives."""
    key = f"draco/hostile/to/0/from/{sender}"
    block = zenoh.CongestionControl.BLOCK
    parts = {"attachment": data[:HEADER_BYTES], "payload": data[HEADER_BYTES:]}
    return raw.get(key, timeout=timeout_s, congestion_control=block, **parts)


def test_rubbish_is_answered_counted_and_survived(victim: Victim, raw: zenoh.Session, neighbour: Neighbour) -> None:
    chance = np.random.default_rng(1)
    good = encode(neighbour.header(3)._replace(epoch=9)) + bytes(4 * LENGTH)
    rubbish = [chance.bytes(length) for length in (1, 35, 91, 92, 93, 1000, len(good))]
    rubbish += [good[:-1], good[:92], good + b"x", encode(neighbour.header(1)) + bytes(4 * LENGTH)]
    rubbish += [good[:92] + np.full(LENGTH, value, "<f4").tobytes() for value in (math.nan, math.inf, 1e30)]
    before = victim.said["refused"]
    verdicts = []
    for data in rubbish:
        (reply,) = ask(raw, data)
        answer = decode_answer(reply.ok.payload.to_bytes(), LENGTH)
        assert answer is not None
        verdicts.append(answer.verdict)
    assert verdicts[:7] == [Verdict.SIZE] * 3 + [Verdict.VERSION] * 4
    assert verdicts[7:11] == [Verdict.SIZE, Verdict.SIZE, Verdict.SIZE, Verdict.STRANGER]
    assert verdicts[11:] == [Verdict.NOT_FINITE, Verdict.NOT_FINITE, Verdict.TOO_LARGE]
    for sender in ("9", "0", "x", "*", "1" * 3000):  # of nobody: not even answered
        assert list(ask(raw, good, sender, 0.3)) == []
    assert list(ask(raw, bytes(2 * len(good) + 30_000), "3", 0.3)) == []  # too large to be read
    (reply,) = ask(raw, bytes(20_000_000), "3", 0.3)  # Zenoh itself lets it go, and does not tell
    assert reply.err.payload.to_bytes() == b"Timeout"
    raw.put("draco/hostile/to/0/from/3", b"rubbish")
    raw.put("draco/hostile/alive/3/1", b"rubbish")
    assert within(neighbour.is_heard)
    assert within(lambda: victim.said["refused"] >= before + len(rubbish))
    lines = victim.end()
    assert sum(line[0] == "refused" for line in lines) >= len(rubbish) + 1  # and the fixture's first
    assert lines[-2][0] == "stopped"
    assert lines[-2][3] >= 4
    summary = json.loads((victim.folder / "summary.json").read_text())
    assert summary["status"] == "stopped"


def test_a_flood_is_let_go_in_bounded_memory(victim: Victim, raw: zenoh.Session, neighbour: Neighbour) -> None:
    """600 MB from two who flood, while the good neighbour is heard and hears."""
    good = encode(neighbour.header(3)._replace(epoch=9)) + bytes(4 * LENGTH)
    before_mb, updates, received = victim.memory_mb(), victim.said["updates"], neighbour.received
    peak_mb, heard, open_questions = 0.0, 0, []
    for turn in range(1000):
        open_questions.append(ask(raw, good if turn % 2 else good[:-1], "23"[turn % 2], 10.0))
        if turn % 100 == 99:
            peak_mb = max(peak_mb, victim.memory_mb())
            heard += neighbour.is_heard()
    answers = sum(len(list(replies)) for replies in open_questions)
    peak_mb = max(peak_mb, victim.memory_mb())
    assert within(neighbour.is_heard)
    assert heard > 0
    assert within(lambda: victim.said["updates"] > updates + 20)
    assert within(lambda: neighbour.received > received)
    assert peak_mb - before_mb < 100
    lines = victim.end()
    dropped = lines[-2][3]
    print(f"{answers} answered, {dropped} dropped; {before_mb:.0f} MB before, at most {peak_mb:.0f} MB")
    assert answers + dropped >= 1000


def test_tokens_of_nobody_and_of_absurd_epochs(victim: Victim, raw: zenoh.Session, neighbour: Neighbour) -> None:
    before_mb = victim.memory_mb()
    names = ["9/1", "x/y", "-1/1", f"2/{10**20 - 1}", f"2/{2**64}", f"{10**20 - 1}/1", "0/1", f"2/{'9' * 4000}"]
    names += [f"2/{epoch}" for epoch in range(1, 3000)] + [f"{user}/5" for user in range(4, 3000)]
    tokens = [raw.liveliness().declare_token(f"draco/hostile/alive/{name}") for name in names]
    assert within(lambda: 2 in victim.said["reaches"])
    updates = victim.said["updates"]
    assert within(lambda: victim.said["updates"] > updates + 20)
    assert within(neighbour.is_heard)
    for token in tokens:
        token.undeclare()
    assert within(lambda: 2 not in victim.said["reaches"])
    assert within(neighbour.is_heard)
    assert victim.memory_mb() - before_mb < 50
    assert victim.end()[-2][0] == "stopped"
