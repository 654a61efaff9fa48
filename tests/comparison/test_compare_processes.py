"""`draco compare` as people call it, with its worker processes: what it shows, and being stopped or killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from cli.draco_command import draco, draco_process, environment, process_arguments
from here_and_now import HereAndNow
from small_comparisons import QUADRATIC, hashes_of, summaries

from dracofl.config.load import load_config
from dracofl.errors import DataError, DracoError
from dracofl.experiments.engine import Job, run_all

LONGER = ("compare", "tiny", *QUADRATIC, "duration_s=1500", "checkpoint.every_s=150", "evaluate.every_s=300")
ASKED = (*LONGER, "--methods", "draco,local", "--seeds", "3", "--no-tune", "--out", "found")
"""Six runs of a second or so each: long enough to be met in the middle."""
COUNT = 6
STOPPED = "comparing\nstopped; repeat the same command to go on\n"


@contextmanager
def comparing(*asked: str) -> Iterator[subprocess.Popen[str]]:
    """The command in a session of its own, so that a signal to its group is what Ctrl-C is; gone afterwards."""
    process = subprocess.Popen(
        process_arguments(*asked),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env=environment(),
    )
    try:
        yield process
    finally:
        if alive(process.pid):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def alive(group: int) -> bool:
    """Whether any process of the group is there and not just waiting to be buried."""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, its_group = stat.read_text().rpartition(")")[2].split()[:3]
        except OSError:
            continue
        if int(its_group) == group and state != "Z":
            return True
    return False


def wait_until(condition: Callable[[], object], what: str) -> None:
    give_up = time.monotonic() + 60
    while not condition():
        if time.monotonic() > give_up:
            pytest.fail(f"never: {what}")
        time.sleep(0.02)


def finished() -> list[Path]:
    return list(Path("found").rglob("summary.json"))


def checkpoints() -> list[Path]:
    return list(Path("found").rglob("state.npz"))


def identity(path: Path) -> tuple[int, int]:
    return path.stat().st_ino, path.stat().st_mtime_ns


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[str, str]]:
    """The hashes of every run, each done in one go in this process."""
    from dracofl.experiments.run import run_config

    folder = tmp_path_factory.mktemp("uninterrupted")
    changes = [one for one in ASKED[2:] if "=" in one]
    for method in ("draco", "local"):
        for seed in (1, 2, 3):
            out = folder / "runs" / method / f"seed-{seed}"
            run_config("tiny", [f"method.kind={method}", *changes, f"seed={seed}"], out=out)
    return hashes_of(folder)


# What it shows


def test_tiny_from_the_command_line() -> None:
    done = draco_process("compare", "tiny", "--seeds", "2", "--methods", "draco,local", "--no-tune")
    folder = Path("runs/compare-tiny")
    assert done.code == 0
    assert "\x1b" not in done.out + done.err
    assert done.err.startswith("comparing\n")
    assert all("s left" in line for line in done.err.splitlines()[1:])
    table = (folder / "table.md").read_text()
    assert done.out == f"{table}\nfigures, table and runs are in {folder}\n"
    assert "| draco | 0." in table
    assert "| local | 0." in table
    for metric in ("accuracy", "f1"):
        for axis in ("time", "bytes"):
            picture = (folder / f"{metric}-{axis}.png").read_bytes()
            assert picture.startswith(b"\x89PNG\r\n")
            assert len(picture) > 10_000
            document = (folder / f"{metric}-{axis}.pdf").read_bytes()
            assert document.startswith(b"%PDF-")
            assert len(document) > 5_000
    runs = summaries(folder)
    assert {(one["method"], one["seed"], one["status"]) for one in runs.values()} == {
        (method, seed, "finished") for method in ("draco", "local") for seed in (1, 2)
    }
    results = json.loads((folder / "results.json").read_text())["methods"]
    for method, row in results.items():
        seeds = [runs[f"runs/{method}/seed-{seed}"] for seed in (1, 2)]
        assert row["accuracy"]["mean"] == pytest.approx(sum(one["accuracy"]["mean"] for one in seeds) / 2)
        assert row["bytes_sent"]["mean"] == sum(one["bytes_sent"] for one in seeds) / 2
        assert row["model_hashes"] == [one["model_hash"] for one in seeds]
    assert results["draco"]["trace_hashes"] != results["local"]["trace_hashes"]


# Stopped and killed


def test_killed_twice_it_goes_on_and_ends_as_if_it_had_not_been(
    uninterrupted: dict[str, tuple[str, str]], here: HereAndNow
) -> None:
    with comparing(*ASKED) as process:
        wait_until(finished, "the first run is finished")
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate(timeout=60)
    first = {path: identity(path) for path in finished()}
    assert 1 <= len(first) < COUNT

    with comparing(*ASKED) as process:  # and now its master alone, as for want of memory
        wait_until(lambda: len(finished()) > len(first) or process.poll() is not None, "another is finished")
        process.kill()
        wait_until(lambda: not alive(process.pid), "its workers have ended")
    second = {path: identity(path) for path in finished()}
    assert len(first) < len(second) <= COUNT

    assert draco(*ASKED).code == 0
    assert len(here.begun) == COUNT - len(second)
    for path, before in (first | second).items():
        assert identity(path) == before
    assert hashes_of(Path("found")) == uninterrupted


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)])
def test_stopped_it_saves_and_can_go_on(
    number: signal.Signals, uninterrupted: dict[str, tuple[str, str]], here: HereAndNow
) -> None:
    with comparing(*ASKED) as process:
        wait_until(checkpoints, "a run has saved itself")
        os.killpg(process.pid, number)
        out, err = process.communicate(timeout=60)
        wait_until(lambda: not alive(process.pid), "its workers have ended")
    assert (process.returncode, out, err) == (130, "", STOPPED)
    assert len(finished()) < COUNT
    assert draco(*ASKED).code == 0
    assert len(here.begun) <= COUNT
    assert hashes_of(Path("found")) == uninterrupted


def test_stopped_while_the_workers_are_starting_nothing_is_said_of_them() -> None:
    with comparing(*ASKED) as process:
        wait_until(Path("found/comparison.json").exists, "the comparison has begun")
        time.sleep(0.3)
        os.killpg(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=60)
        wait_until(lambda: not alive(process.pid), "its workers have ended")
    assert (process.returncode, out, err) == (130, "", STOPPED)
    assert finished() == []


def test_a_second_ctrl_c_does_not_wait() -> None:
    endless = [*LONGER, "duration_s=1e9", "checkpoint.every_s=none", "evaluate.every_s=none", "--methods", "draco"]
    with comparing(*endless, "--no-tune", "--seeds", "2", "--out", "found") as process:
        wait_until(lambda: len(list(Path("found").rglob("config.toml"))) == 2, "the runs have begun")
        os.killpg(process.pid, signal.SIGINT)
        time.sleep(0.3)
        os.killpg(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=60)
        wait_until(lambda: not alive(process.pid), "its workers have ended")
    assert (process.returncode, out, err) == (130, "", STOPPED)


def test_a_worker_that_is_killed_is_explained() -> None:
    with comparing(*ASKED) as process:
        wait_until(checkpoints, "a run has saved itself")
        worker = next(pid for pid in children(process.pid) if "spawn_main" in command_of(pid))
        os.kill(worker, signal.SIGKILL)
        out, err = process.communicate(timeout=60)
        wait_until(lambda: not alive(process.pid), "its workers have ended")
    assert (process.returncode, out) == (2, "")
    assert err.splitlines()[-1] == (
        "draco: a process that ran a part of the work was killed, perhaps for want of memory; "
        "repeat the same command to go on"
    )
    assert "Traceback" not in err


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def command_of(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")


# The engine itself


def test_jobs_of_one_folder_share_its_run_and_an_error_in_a_worker_is_the_users(tmp_path: Path) -> None:
    told: list[tuple[float, float]] = []
    quick = load_config("tiny", QUADRATIC)
    jobs = [Job(quick, tmp_path / "one"), Job(quick, tmp_path / "one")]
    runs = run_all(jobs, lambda done, total: told.append((done, total)))
    assert runs[0].summary == runs[1].summary
    assert told[-1] == (60.0, 60.0)
    assert [done for done, _ in told] == sorted(done for done, _ in told)
    lost = load_config("tiny", [f"data.dir={tmp_path / 'nowhere'}", "duration_s=20"])
    with pytest.raises(DataError, match="nowhere is not a folder"):
        run_all([*jobs, Job(lost, tmp_path / "other")], lambda done, total: None)
    assert issubclass(DataError, DracoError)
    assert not (tmp_path / "other").exists()
