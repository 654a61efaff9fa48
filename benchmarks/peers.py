"""How fast other simulators do the same work: gossipy (gossipy-dfl) and pfl-research (pfl), with PyTorch on the CPU.

    python -m benchmarks.peers [--quick] [--json]

25 users with 1,000 samples each and plain SGD with batches of 64 train an MLP of 12,910 parameters (10 steps in a local
update) or a CNN of 149,194 (5 steps); nobody evaluates, saves or logs. Speed is the SGD steps of all users over the
wall time of the simulation, without set-up and compilation. Each peer is tried with every setting that may help it (one
thread or one a core; for pfl also one process a core; for the CNN both layouts of images in memory), and each
repeat goes through all of them and through dracofl in turn. A figure is our speed over that of the best setting of
the best peer, the one with the highest median; another leaves out what needs a process a core.

Our local updates called bare, with nothing around them, are held against the best peer too: on all cores for the ring,
which is the most that a simulator with these gradient steps can reach, and on one core for the complete graph, where
nearly every update waits for the one before it and only a large model, whose updates take long, gains from a second
core. Both depend on the machine: PyTorch's steps of a small model are mostly calls from Python, ours are mostly
products of matrices, and processors differ in which they are good at.

What the same work is: the local updates. What surrounds them is each simulator's own. In gossipy a user pushes its
model to one random neighbour, which merges it and trains; in pfl, which has no graph and is held against both of ours,
a server averages all updates; in dracofl every update goes over the air to all neighbours and is accounted for.

With more threads than free cores PyTorch's threads wait for each other most of the time, so the machine must be idle.

The peers live in a virtual environment of their own in ~/.cache/dracofl/benchmarks (1.4 GB), made when it is not there.
PyTorch's own package for Linux brings CUDA with it, gigabytes that are not used here: where this matters, have pip find
a CPU build (`PIP_INDEX_URL` or pip's configuration) before the first run.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import signal
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

from benchmarks.figure import Figure, main
from benchmarks.limit import bare_speed, bare_speed_on_all_cores
from benchmarks.peer_scripts.dracofl_run import SAME_WORK, WORK

SCRIPTS = Path(__file__).with_name("peer_scripts")
REQUIREMENTS = {  # installed in this order, each on its own: what fails leaves the others
    "torch": ["torch==2.13.0", "numpy==2.4.6"],
    "gossipy": ["gossipy-dfl==0.0.1", "matplotlib==3.11.2", "pandas==3.1.1", "scikit-learn==1.9.1", "scipy==1.17.1"],
    "pfl": ["pfl[pytorch]==0.6.0", "scipy==1.17.1"],
}
NAMES = {"mlp": "MLP 85-75-75-10", "cnn": "CNN 28x28"}
BARE_UPDATES = {"mlp": 6000, "cnn": 300}  # some five seconds
TARGETS = {("mlp", "complete"): 4.0, ("mlp", "ring"): 8.0, ("cnn", "complete"): 1.5, ("cnn", "ring"): 1.5}
LONGEST_S = 900.0  # of one script


class Missing(Exception):
    """What is to be compared with cannot be installed here; the text says why."""


class Failed(Exception):
    """A script did not do what it was asked for; the text says why."""


class Environment(NamedTuple):
    """The peers' virtual environment."""

    folder: Path
    missing: dict[str, str]  # what could not be installed, and why

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def environment(*wanted: str) -> Environment:
    """Made, and filled with what is wanted of `REQUIREMENTS`, where that was not done before."""
    pins = json.dumps([REQUIREMENTS, sys.version_info[:2]])
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "dracofl" / "benchmarks"
    folder = cache / f"peers-{hashlib.sha256(pins.encode()).hexdigest()[:8]}"
    made = Environment(folder, {})
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with _locked(folder.with_suffix(".lock")):
            if not made.python.exists():
                say(f"making a virtual environment for the peers in {folder}")
                _checked([sys.executable, "-m", "venv", str(folder)])
            for name in wanted:
                mark = folder / f"{name}-installed"
                if mark.exists():
                    continue
                if "torch" in made.missing:
                    made.missing[name] = "PyTorch is missing"
                    continue
                say(f"installing {', '.join(REQUIREMENTS[name])}")
                pip = [str(made.python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
                try:
                    _checked([*pip, "--retries", "2", *REQUIREMENTS[name]])
                    mark.touch()
                except Missing as error:
                    made.missing[name] = str(error)
                    say(f"{name} cannot be installed, so it is left out: {error}")
    except OSError as error:
        raise Missing(f"no virtual environment can be made in {folder}: {error}") from error
    return made


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _checked(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode:
        lines = (done.stderr.strip() or done.stdout.strip() or "no reason given").splitlines()
        errors = [line for line in lines if line.startswith("ERROR")]
        raise Missing((errors or lines)[-1])


def ask(command: list[str], order: dict[str, Any], environ: dict[str, str] | None = None) -> dict[str, Any]:
    """What a script answers: its last line. If it takes too long it is ended, with what it started."""
    environ = {**os.environ, **(environ or {})}
    environ.pop("PYTHONPATH", None)
    with subprocess.Popen(
        [*command, json.dumps(order)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environ,
        start_new_session=True,
    ) as process:
        try:
            out, err = process.communicate(timeout=LONGEST_S)
        except BaseException as error:
            _end(process)
            if isinstance(error, subprocess.TimeoutExpired):
                raise Failed(f"no answer in {LONGEST_S:.0f} s") from error
            raise
    if process.returncode:
        raise Failed(_reason(err))
    answer: dict[str, Any] = json.loads(out.strip().splitlines()[-1])
    return answer


def _ask_twice(command: list[str], order: dict[str, Any]) -> dict[str, Any]:
    """Processes of a peer's that are to find each other now and then do not, on a busy machine."""
    try:
        return ask(command, order)
    except Failed as error:
        say(f"once more, as it failed: {error}")
        return ask(command, order)


def _reason(words: str) -> str:
    """The last line that names an error, or else the last with a letter in it: some end with a line of dashes."""
    lines = [line.strip() for line in words.splitlines() if any(map(str.isalpha, line))]
    errors = [line for line in lines if "Error" in line]
    return (errors or lines or ["no reason given"])[-1]


def _end(process: subprocess.Popen[str]) -> None:
    """With what it started: torch.distributed.run ends its processes, which are in no group of ours, when asked to."""
    process.terminate()
    try:
        process.wait(timeout=20)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)


def measure(quick: bool) -> list[Figure]:
    return measure_models(list(NAMES), quick)


def parts() -> list[Callable[[], list[Figure]]]:
    return [partial(measure_models, [model], False) for model in NAMES]


def measure_models(models: list[str], quick: bool) -> list[Figure]:
    made = environment("torch", "gossipy", "pfl")
    cores = len(os.sched_getaffinity(0))
    threads = [1] if quick else sorted({1, cores})
    commands: dict[str, tuple[list[str], dict[str, Any]]] = {}
    if "gossipy" not in made.missing:
        commands["gossipy"] = ([str(made.python), str(SCRIPTS / "gossipy_run.py")], {"threads": threads})
    if "pfl" not in made.missing:
        script = str(SCRIPTS / "pfl_run.py")
        commands["pfl"] = ([str(made.python), script], {"threads": threads, "users": [25]})
        if cores > 1:  # 25 users do not go up evenly; all of them once for each process do
            together = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(cores), script]
            order = {"threads": [1], "users": [25] if quick else [25, 25 * cores]}
            commands["pfl on all cores"] = ([str(made.python), *together], order)
    if not commands:
        raise Missing(
            "there is nobody to compare with: "
            + "; ".join(f"{name} could not be installed ({why})" for name, why in made.missing.items())
        )
    left_out = {"not installed": made.missing, "failed": {}}
    return [figure for model in models for figure in _measure_model(model, quick, commands, left_out)]


def _measure_model(
    model: str, quick: bool, commands: dict[str, tuple[list[str], dict[str, Any]]], left_out: dict[str, dict[str, str]]
) -> list[Figure]:
    repeats, failed = 1 if quick else 3, left_out["failed"]
    ours: list[dict[str, dict[str, float]]] = []
    bare: dict[str, list[float]] = {"complete": [], "ring": []}
    peers: dict[str, list[float]] = {}  # SGD steps a second of "gossipy, ring, 1 thread" and so on, one a repeat
    for repeat in range(repeats):
        where = f"{NAMES[model]}, repeat {repeat + 1} of {repeats}"
        ours.append(ask([sys.executable, str(SCRIPTS / "dracofl_run.py")], {"model": model, "quick": quick}))
        for topology, speed in ours[-1].items():
            say(f"{where}: dracofl, {topology}: {speed['steps_per_s']:,.0f} SGD steps/s")
        preset, overrides, *_ = WORK[model]
        work = {"preset": preset, "overrides": [*overrides, *SAME_WORK], "updates": 9 if quick else BARE_UPDATES[model]}
        bare["complete"].append(bare_speed(-1, **work))
        bare["ring"].append(bare_speed_on_all_cores(**work))
        say(f"{where}: bare updates on one core: {bare['complete'][-1]:,.0f} SGD steps/s, all: {bare['ring'][-1]:,.0f}")
        for name, (command, order) in list(commands.items()):
            try:
                found = _ask_twice(command, {**order, "model": model, "quick": quick, "seconds": 0.3 if quick else 4.0})
            except Failed as error:
                say(f"{name} fails, so it is left out from here on: {error}")
                failed[name] = str(error)
                del commands[name]
                continue
            for setting, speed in found.items():
                say(f"{where}: {name}, {setting}: {speed:,.0f} SGD steps/s")
                peers.setdefault(f"{name.split()[0]}, {setting}", []).append(speed)
    whole = {name: speeds for name, speeds in peers.items() if len(speeds) == repeats}
    if not whole:
        raise Failed("no peer could be measured: " + "; ".join(f"{name}: {why}" for name, why in failed.items()))
    figures = []
    for topology, cores in (("complete", "one core"), ("ring", "all cores")):
        rivals = {name: speeds for name, speeds in whole.items() if name.startswith(("pfl,", f"gossipy, {topology},"))}
        alone = {name: speeds for name, speeds in rivals.items() if "processes" not in name}
        mine = [repeat[topology]["steps_per_s"] for repeat in ours]
        detail = {
            "ours with set-up": [repeat[topology]["with_set_up"] for repeat in ours],
            **{why: dict(names) for why, names in left_out.items()},
            "versions": {name: pins[0] for name, pins in REQUIREMENTS.items()},
        }
        what, target = f"{NAMES[model]}, {topology}: our SGD steps a second", TARGETS[model, topology]
        figures.append(_figure(f"{what} over those of the best peer", mine, rivals, "at least", target, detail))
        if alone:  # those may have failed, and what needs several processes not
            figures.append(_figure(f"{what} over those of the best peer in one process", mine, alone))
        figures.append(_figure(f"{what}, bare on {cores}, over those of the best peer", bare[topology], rivals))
    return figures


def _figure(
    name: str,
    mine: list[float],
    rivals: dict[str, list[float]],
    bound: Literal["at least"] | None = None,
    target: float | None = None,
    detail: dict[str, Any] | None = None,
) -> Figure:
    best = max(rivals, key=lambda rival: statistics.median(rivals[rival]))
    values = [own / other for own, other in zip(mine, rivals[best], strict=True)]
    speeds = {"best peer": best, "our SGD steps/s": mine, "peers' SGD steps/s": rivals}
    return Figure("peers", name, values, bound, target, speeds | (detail or {}))


if __name__ == "__main__":
    try:
        main(__doc__, measure)
    except (Missing, Failed) as error:
        sys.exit(f"{error}.")
