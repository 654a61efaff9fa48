"""The commands about real peers: bad input is one clear sentence, and a peer that is stopped goes on."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from draco_command import Outcome, contents, draco, environment, process_arguments

from dracofl.runtime.service import Service
from dracofl.screen_peers import NodeScreen
from dracofl.telemetry.folder import RunFolder

NODE = """
preset = "tiny"
users = {users}
duration_s = 4000
channel = "none"
task.kind = "quadratic"
compute.snapshot = "start"
compute.rate = 2
method.hub = "round-robin"
[node]
user = {user}
listen = ["tcp/127.0.0.1:{port}"]
connect = ["tcp/127.0.0.1:{other}"]
folder = "peer-{user}"
time_scale = 10
"""


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@pytest.fixture
def file() -> str:
    """Of a peer that has nobody to talk to."""
    Path("peer.toml").write_text(NODE.format(users=2, user=0, port=free_port(), other=free_port()))
    return "peer.toml"


def assert_refused(done: Outcome, *fragments: str) -> None:
    assert done.code == 2
    assert done.out == ""
    last = done.err.splitlines()[-1]
    assert last.startswith("draco: ")
    assert "Traceback" not in done.err
    for fragment in fragments:
        assert fragment in last
    assert not Path("runs").exists()


# draco node: bad input


@pytest.mark.parametrize(
    ("text", "fragments"),
    [
        (None, ['there is no file "peer.toml"', "draco node --help"]),
        ("users = 3\n", ['"peer.toml" has no section [node]', "who this peer is"]),
        ("users = \n", ['"peer.toml" is not valid TOML', "line 1"]),
        (NODE.format(users=2, user=2, port=1, other=2), ["node.user = 2 is not one of 2 users"]),
        (NODE.format(users=2, user=0, port=1, other=2).replace("round-robin", "best-heard"), ['"best-heard"', "use"]),
        (NODE.format(users=2, user=0, port=99999, other=2), ["listen: 'tcp/127.0.0.1:99999' is no address"]),
        (
            NODE.format(users=2, user=0, port=1, other=2).replace("127.0.0.1:1", "0.0.0.0:1"),
            ["certificates", "--insecure"],
        ),
        (
            NODE.format(users=2, user=0, port=1, other=2).replace("tcp/127.0.0.1:1", "tls/127.0.0.1:1"),
            ["tls/...", "certificates"],
        ),
        (
            NODE.format(users=2, user=0, port=1, other=2) + 'learner = "nowhere:at_all"\n',
            ["there is no module nowhere"],
        ),
    ],
    ids=["no file", "no section", "no TOML", "user", "hub", "port", "beyond", "tls", "learner"],
)
def test_a_file_that_will_not_do_is_told_in_a_sentence(text: str | None, fragments: list[str]) -> None:
    if text is not None:
        Path("peer.toml").write_text(text)
    assert_refused(draco("node", "peer.toml"), *fragments)


def test_everything_that_is_wrong_is_told_at_once(file: str) -> None:
    done = draco("node", file, "method.hub=best-heard", "node.usr=1", "node.pace=fast")
    assert done.code == 2
    first, *rest = done.err.splitlines()
    assert first == "draco: 3 things are wrong with the configuration:"
    assert len(rest) == 3
    assert not Path("peer-0").exists()


def test_a_folder_without_certificates_is_told(file: str) -> None:
    changes = ['node.listen=["tls/127.0.0.1:7447"]', "node.connect=[]", "node.certificates=nowhere"]
    assert_refused(draco("node", file, *changes), "cannot read nowhere/authority.pem", "draco certs")


def test_a_port_in_use_is_told_and_the_folder_serves_once_it_is_free(file: str) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = draco("node", file, f'node.listen=["tcp/127.0.0.1:{port}"]', "duration_s=1")
        assert_refused(done, f"127.0.0.1:{port}", "already in use")
    done = draco("node", file, "duration_s=1")
    assert done.code == 0
    assert Path("peer-0/summary.json").exists()


def test_a_folder_of_another_configuration_or_of_somebody_else_is_left_as_it_is(file: str) -> None:
    assert draco("node", file, "duration_s=1").code == 0
    before = contents(Path("peer-0"))
    done = draco("node", file, "duration_s=1", "method.psi=7")
    assert_refused(done, "peer-0 belongs to a peer with another configuration", "node.folder")
    done = draco("node", file, "duration_s=1", "node.user=1")
    assert_refused(done, "belongs to another configuration", "node.folder")
    assert contents(Path("peer-0")) == before
    Path("mine").mkdir()
    Path("mine/letter.txt").write_text("dear")
    assert_refused(draco("node", file, "node.folder=mine"), "mine exists and is not empty; name another")
    assert contents(Path("mine")) == {"letter.txt": b"dear"}


def test_a_damaged_state_or_journal_is_named(file: str) -> None:
    assert draco("node", file, "duration_s=1").code == 0
    state = Path("peer-0/peer.npz").read_bytes()
    Path("peer-0/peer.npz").write_bytes(state[:100])
    assert_refused(draco("node", file, "duration_s=1"), "peer-0/peer.npz is damaged", "remove it to begin again")
    Path("peer-0/peer.npz").write_bytes(state)
    lines = Path("peer-0/journal.jsonl").read_bytes()
    Path("peer-0/journal.jsonl").write_bytes(b"[]\n" + lines)
    assert_refused(draco("node", file, "duration_s=1"), "peer-0/journal.jsonl, line 1, is damaged")


# draco node: its life


class Process:
    """A command as a process, whose words are read while it runs."""

    def __init__(self, *arguments: str) -> None:
        self._process = subprocess.Popen(
            process_arguments(*arguments), stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment()
        )
        self.said = ""

    def wait_for(self, words: str, within_s: float = 60.0) -> None:
        assert self._process.stderr is not None
        os.set_blocking(self._process.stderr.fileno(), False)
        give_up = time.monotonic() + within_s
        while words not in self.said:
            self.said += (self._process.stderr.read() or b"").decode()
            if time.monotonic() > give_up or self._process.poll() is not None:
                break
            time.sleep(0.02)
        assert words in self.said

    def stop(self, number: signal.Signals) -> Outcome:
        assert self._process.stderr is not None
        os.set_blocking(self._process.stderr.fileno(), True)
        self._process.send_signal(number)
        try:
            out, err = self._process.communicate(timeout=60)
        finally:
            self._process.kill()
        return Outcome(self._process.returncode, out.decode(), self.said + err.decode())

    def kill(self) -> None:
        self._process.kill()
        self._process.communicate()


@pytest.fixture
def running() -> Iterator[list[Process]]:
    """Processes that do not outlive their test."""
    processes: list[Process] = []
    yield processes
    for process in processes:
        process.kill()


def test_a_peer_tells_whom_it_reaches_saves_when_it_is_stopped_and_goes_on(running: list[Process]) -> None:
    ports = [free_port(), free_port()]
    for user in (0, 1):
        text = NODE.format(users=2, user=user, port=ports[user], other=ports[1 - user])
        Path(f"{user}.toml").write_text(text)
    running += [Process("node", f"{user}.toml") for user in (0, 1)]
    zero, one = running
    for user, peer in enumerate(running):
        peer.wait_for(f"PEER {user} REACHES 1 OF 1 NEIGHBOURS")
        assert f"peer {user} begins, listens at tcp/127.0.0.1:{ports[user]}, and writes to peer-{user}" in peer.said

    # Somebody else may neither use its folder nor take its place.
    assert_refused(draco("node", "0.toml"), "peer-0 is in use by another process")

    # Stopping is the normal end of a peer: exit code 0.
    done = one.stop(signal.SIGTERM)
    assert done.code == 0
    assert "local updates" in done.out
    assert done.err.splitlines()[-1] == "stopped and saved; the same command goes on"
    assert done.out.splitlines()[-1] == "picture     peer-1/curves.png"
    assert Path("peer-1/curves.png").read_bytes().startswith(b"\x89PNG")
    zero.wait_for("PEER 0 REACHES 0 OF 1 NEIGHBOURS: not 1. Are they running, are the addresses right")
    assert f"(tcp/127.0.0.1:{ports[1]})" in zero.said

    before = summary_of(1)
    assert before["status"] == "stopped"
    again = Process("node", "1.toml")
    running.append(again)
    again.wait_for("peer 1 goes on")
    again.wait_for("PEER 1 REACHES 1 OF 1 NEIGHBOURS")
    time.sleep(1.0)
    assert again.stop(signal.SIGINT).code == 0
    assert zero.stop(signal.SIGINT).code == 0

    assert summary_of(1)["local_updates"] > before["local_updates"]
    journal = [json.loads(line) for line in Path("peer-1/journal.jsonl").read_text().splitlines()]
    epochs = [line[2]["epoch"] for line in journal if line[0] == "start"]
    assert len(epochs) == 2
    assert epochs[0] < epochs[1]
    for user in (0, 1):
        done = draco("replay", f"peer-{user}")
        assert done.code == 0
        assert re.match(r"1 peer, [\d,]+ inputs: the same commands every time\n", done.out)
        assert "that needs the journals of all peers" in done.out


def test_of_two_peers_with_one_number_the_earlier_one_says_that_it_is_not_heard(running: list[Process]) -> None:
    ports = [free_port(), free_port(), free_port()]
    for name, user, port in (("0", 0, ports[0]), ("1", 1, ports[1]), ("twin", 1, ports[2])):
        text = NODE.format(users=2, user=user, port=port, other=ports[1 if user == 0 else 0])
        Path(f"{name}.toml").write_text(text.replace(f"peer-{user}", f"peer-{name}"))
    running += [Process("node", f"{user}.toml") for user in (0, 1)]
    one = running[1]
    one.wait_for("PEER 1 REACHES 1 OF 1 NEIGHBOURS")
    running.append(Process("node", "twin.toml"))
    one.wait_for("PEER 1 IS NOT HEARD BY 0: a peer 1 was started after this one. Is another device user 1, too")
    assert one.stop(signal.SIGTERM).code == 0
    running[2].wait_for("PEER 1 REACHES 1 OF 1 NEIGHBOURS")
    assert "NOT HEARD" not in running[2].stop(signal.SIGTERM).err


def test_who_does_not_hear_a_peer_is_told_when_it_changes_and_not_again(capsys: pytest.CaptureFixture[str]) -> None:
    core = SimpleNamespace(reachable=lambda: ())
    peer = SimpleNamespace(core=core, user=3, deaf_to_us=set[int]())
    screen, service = NodeScreen(), cast(Service, SimpleNamespace(peer=peer))
    told = []
    for deaf in (set[int](), {4}, {4}, {0, 4}, set[int](), set[int]()):
        peer.deaf_to_us = deaf
        screen.passed(service, 1.0)
        told.append([line for line in capsys.readouterr().err.splitlines() if "HEARD" in line])
    assert [len(lines) for lines in told] == [0, 1, 0, 1, 1, 0]
    assert told[1][0].startswith("PEER 3 IS NOT HEARD BY 4: a peer 3 was started after this one.")
    assert told[3][0].startswith("PEER 3 IS NOT HEARD BY 0, 4: ")
    assert told[4] == ["PEER 3 IS HEARD BY ALL AGAIN"]


def summary_of(user: int) -> dict[str, object]:
    summary: dict[str, object] = json.loads(Path(f"peer-{user}/summary.json").read_text())
    return summary


# draco cluster

CLUSTER = [
    "cluster",
    "tiny",
    "--nodes",
    "2",
    "task.kind=quadratic",
    "duration_s=60",
    "time_scale=20",
    "compute.rate=0.5",
]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Outcome]:
    folder = tmp_path_factory.mktemp("cluster") / "a [bold] run"
    done = subprocess.run(
        process_arguments(*CLUSTER, "--out", folder), capture_output=True, timeout=120, check=False, env=environment()
    )
    return folder, Outcome(done.returncode, done.stdout.decode(), done.stderr.decode())


def test_a_cluster_ends_with_a_table_in_which_every_message_is_settled(cluster: tuple[Path, Outcome]) -> None:
    folder, done = cluster
    assert done.code == 0
    assert 'note: method.hub = "round-robin" in the place of "best-heard"' in done.err
    assert f"2 peers, each a process of its own, in {folder}; 60 s at 20 times the speed take 3 s" in done.err
    summary = json.loads((folder / "summary.json").read_text())
    messages = summary["messages"]
    assert messages["sent"] > 0
    assert messages["sent"] == sum(messages[fate] for fate in ("applied", "over_budget", "late", "lost", "pending"))
    assert f"settled: {messages['sent']} messages sent = " in done.out
    assert (summary["contradictions"], summary["unsettled"], summary["status"]) == ([], 0, "finished")
    assert f"draco replay {folder}" in done.out


def test_the_replay_of_a_cluster_is_the_same_to_the_last_bit(cluster: tuple[Path, Outcome]) -> None:
    done = draco("replay", cluster[0])
    assert (done.code, done.err) == (0, "")
    assert re.fullmatch(
        r"2 peers, \d+ inputs: the same commands every time\n2 final models: the same to the last bit\n", done.out
    )


def test_a_doctored_journal_is_found_out(cluster: tuple[Path, Outcome], tmp_path: Path) -> None:
    folder = Path(shutil.copytree(cluster[0], tmp_path / "doctored"))
    journal = folder / "peers" / "1" / "journal.jsonl"
    lines = journal.read_text().splitlines(keepends=True)
    place = next(place for place, line in enumerate(lines) if line.startswith('["update"'))
    journal.write_text("".join(lines[:place] + lines[place + 1 :]))
    done = draco("replay", folder)
    assert done.code == 2
    assert "different: peer 1, line " in done.out
    assert re.fullmatch(r"draco: \d+ differences? in \d+ inputs of 2 peers\n", done.err)


@pytest.mark.parametrize(
    ("arguments", "fragments"),
    [
        (["--nodes", "1"], ["--nodes 1: a cluster on one machine has 2 to 64 peers"]),
        (["--nodes", "65"], ["--nodes 65"]),
        (["--nodes", "3", "users=4"], ["users=4", "--nodes 4"]),
        (["method.kind=fedavg"], ['method.kind = "fedavg" cannot run between real peers', 'use method.kind = "draco"']),
        (["method.weights=delivered"], ['method.weights = "delivered"', 'use "uniform"']),
        (["time_scale=0"], ["node.time_scale = 0: must be greater than 0"]),
        (["node.user=1"], ["node.user: a cluster gives each peer its own"]),
        (["node.pcae=free"], ["unknown key node.pcae; did you mean node.pace?"]),
        (["train.bacth=3"], ["did you mean train.batch?"]),
        (["topology.kind=star", "topology.kind=file", "topology.path=nowhere"], ["nowhere"]),
    ],
    ids=lambda value: " ".join(value) if value and "=" in value[-1] else None,
)
def test_a_cluster_that_cannot_be_is_refused_before_anything_is_made(
    arguments: list[str], fragments: list[str]
) -> None:
    assert_refused(draco("cluster", "tiny", *arguments), *fragments)


def test_a_cluster_takes_the_keys_of_a_file_as_a_peer_does_and_no_section_of_one() -> None:
    Path("ours.toml").write_text('preset = "tiny"\nchannel = "none"\nusers = 99\n')
    assert_refused(draco("cluster", "ours.toml", "method.kind=local"), '"local" cannot run between real peers')
    Path("ours.toml").write_text('preset = "tiny"\n[node]\nuser = 0\n')
    assert_refused(draco("cluster", "ours.toml"), "node")


def test_a_folder_that_is_not_empty_is_left_alone() -> None:
    Path("mine").mkdir()
    Path("mine/letter.txt").write_text("dear")
    assert_refused(draco(*CLUSTER, "--out", "mine"), "mine exists and is not empty; name another")
    assert contents(Path("mine")) == {"letter.txt": b"dear"}


LEARNER = """
import numpy as np

print("a learner may print")

class Learner:
    def __init__(self, user):
        self.user = user
    def init(self):
        return np.zeros(3, np.float32)
    def local_update(self, model, number):
        print('{"not": "for you"}')
        if self.user == 1 and number == 3:
            raise RuntimeError("out of samples")
        return np.ones(3, np.float32)
    def evaluate(self, model, final):
        return {"loss": 1.0}

def learner(user, users):
    return Learner(user)
"""


def test_a_peer_that_dies_is_reported_with_its_words() -> None:
    Path("mine.py").write_text(LEARNER)
    started = time.monotonic()
    done = draco(*CLUSTER, "node.learner=mine:learner", "--out", "here")
    assert done.code == 2
    (sentence,) = [line for line in done.err.splitlines() if line.startswith("draco: ")]
    assert sentence.startswith('draco: peer 1 ended with code 2: learner "mine:learner": local_update(model, 3) raised')
    assert "RuntimeError at mine.py:14: out of samples" in sentence
    assert sentence.endswith("; see here/peers/*.log. What the others did is gathered in here")
    assert (Path("here") / "summary.json").exists()
    assert "a learner may print" in Path("here/peers/0.log").read_text()
    assert time.monotonic() - started < 60


def test_a_peer_that_cannot_even_begin_is_reported_at_once() -> None:
    Path("mine.py").write_text("import nothing_like_it\n")
    done = draco(*CLUSTER, "duration_s=1e6", "node.learner=mine:learner", "--out", "here")
    assert done.code == 2
    assert 'ended with code 2: learner "mine:learner": importing mine raised ModuleNotFoundError' in done.err


@pytest.mark.slow
def test_a_cluster_that_is_stopped_shows_what_there_was(running: list[Process]) -> None:
    running.append(Process(*CLUSTER, "duration_s=1e6", "--out", "here"))
    running[0].wait_for("each a process of its own")
    give_up = time.monotonic() + 60
    while not all(has_finished_updates(Path(f"here/peers/{user}/journal.jsonl")) for user in (0, 1)):
        assert time.monotonic() < give_up
        time.sleep(0.1)
    done = running[0].stop(signal.SIGINT)
    assert done.code == 130
    assert done.err.splitlines()[-1] == "stopped before its time; this is what there was until then"
    assert "settled: " in done.out
    summary = json.loads(Path("here/summary.json").read_text())
    assert (summary["status"], summary["contradictions"]) == ("stopped", [])
    done = draco("replay", "here")
    assert (done.code, done.out.count("the same")) == (0, 2)


def has_finished_updates(journal: Path) -> bool:
    return journal.exists() and b'["finished"' in journal.read_bytes()


# draco replay


def test_the_folder_of_a_simulation_cannot_be_replayed() -> None:
    RunFolder.create(Path("simulated"), draco("show", "tiny").out)
    assert_refused(draco("replay", "simulated"), "only runs of real peers can be replayed")


def test_what_is_no_run_cannot_be_replayed() -> None:
    assert_refused(draco("replay", "nowhere"), "nowhere is not a run folder")


# draco certs


def test_certificates_are_made_and_then_serve_a_peer(file: str) -> None:
    done = draco("certs", "init")
    assert done.code == 0
    assert "next: draco certs issue 0 --host ADDRESS_OF_DEVICE_0 --folder certs" in done.out
    done = draco("certs", "issue", "0", "--host", "10.0.0.3", "--host", "pi-3")
    assert (done.code, done.out) == (
        0,
        "copy certs/authority.pem, certs/peer-0.pem and certs/peer-0.key to the device, and nothing else\n",
    )
    listen = f'node.listen=["tls/127.0.0.1:{free_port()}"]'
    assert draco("node", file, listen, "node.connect=[]", "node.certificates=certs", "duration_s=1").code == 0
    done = draco("node", file, listen, "node.connect=[]", "node.certificates=certs", "node.user=1", "node.folder=q")
    assert_refused(done, "cannot read certs/peer-1.pem")


def test_mistakes_with_certificates_are_told_and_nothing_is_overwritten() -> None:
    assert_refused(draco("certs", "issue", "0"), "cannot read certs/authority.pem", "draco certs")
    assert_refused(draco("certs", "init", "--days", "0"), "days = 0 must be above 0")
    assert draco("certs", "init").code == 0
    assert draco("certs", "issue", "0").code == 0
    before = contents(Path("certs"))
    assert_refused(draco("certs", "init"), "certs/authority.pem is there already")
    assert_refused(draco("certs", "issue", "0"), "certs/peer-0.pem is there already")
    assert_refused(draco("certs", "issue", "1", "--host", "a b"), "host 'a b' is neither an address")
    assert_refused(draco("certs", "issue", "--", "-1"), "user = -1 must be 0 or more")
    assert contents(Path("certs")) == before


# Help


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("node", ["NODE.toml", "--insecure", "started again, it goes on", 'channel = "none"']),
        ("cluster", ["--nodes", "time_scale=10", "draco replay"]),
        ("replay", ["RUN_FOLDER", "to the last bit"]),
        ("certs", ["init", "issue"]),
        ("certs init", ["--days", "authority.pem"]),
        ("certs issue", ["--host", "peer-N.key"]),
    ],
)
def test_every_command_explains_itself(command: str, words: list[str]) -> None:
    done = draco(*command.split(), "--help")
    assert done.code == 0
    text = " ".join(re.sub(r"[│╭╮╰╯─]", " ", done.out).split())
    for word in words:
        assert word in text
