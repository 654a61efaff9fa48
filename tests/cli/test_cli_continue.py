"""Continuing a run: the same end as without the break; and saved runs that cannot be continued, and why."""

from __future__ import annotations

import fcntl
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from draco_command import Outcome, contents, draco, hashes, stopped_run

import dracofl


@pytest.fixture
def stopped(tmp_path: Path) -> Path:
    stopped_run(tmp_path / "run")
    return Path("run")


def assert_refused(done: Outcome, *fragments: str) -> None:
    assert (done.code, done.out) == (2, "")
    assert done.err.splitlines()[-1].startswith("draco: ")
    assert "Traceback" not in done.err
    for fragment in fragments:
        assert fragment in done.err


def edit_state(folder: Path, **changed: np.ndarray) -> None:
    """Replace arrays of the checkpoint; with None, leave them out."""
    state = folder / "checkpoint" / "state.npz"
    with np.load(state) as arrays:
        before = dict(arrays)
    np.savez(state, **{name: array for name, array in (before | changed).items() if array is not None})


def edit_header(folder: Path, **changed: Any) -> None:
    with np.load(folder / "checkpoint" / "state.npz") as arrays:
        header = json.loads(arrays["header"].tobytes())
    edit_state(folder, header=np.frombuffer(json.dumps(header | changed).encode(), dtype=np.uint8))


def test_the_end_is_that_of_the_uninterrupted_run(stopped: Path, uninterrupted: dict[str, Any]) -> None:
    done = draco("run", stopped, "--json")
    assert done.code == 0
    assert done.err.startswith("continuing at t = ")
    assert done.err.endswith(" s: run\n")
    summary = json.loads(done.out)
    timing = {"wall_s", "setup_s", "compile_s", "seconds"}
    assert {key: value for key, value in summary.items() if key not in timing} == {
        key: value for key, value in uninterrupted.items() if key not in timing
    }
    assert not (stopped / "checkpoint").exists()


def test_a_run_that_was_killed_before_its_first_checkpoint_starts_again(
    stopped: Path, uninterrupted: dict[str, Any]
) -> None:
    for file in (stopped / "checkpoint").iterdir():
        file.unlink()
    (stopped / "checkpoint").rmdir()
    done = draco("run", stopped, "--json")
    assert done.err == "running in run\n"
    assert hashes(json.loads(done.out)) == hashes(uninterrupted)


def test_rubbish_of_a_killed_process_does_not_matter(stopped: Path, uninterrupted: dict[str, Any]) -> None:
    (stopped / "checkpoint" / "state.npz.unfinished").write_bytes(b"half")
    (stopped / "checkpoint" / "events-00001.parquet").write_bytes(b"written, but no checkpoint says so")
    assert hashes(json.loads(draco("run", stopped, "--json").out)) == hashes(uninterrupted)


@pytest.mark.parametrize("changed", [{"dracofl": "0.0.9"}, {"format": 99}])
def test_a_checkpoint_of_another_version(stopped: Path, changed: dict[str, Any]) -> None:
    edit_header(stopped, **changed)
    before = contents(stopped)
    done = draco("run", stopped)
    assert_refused(
        done, "state.npz was written by dracofl", f"this is {dracofl.__version__}", *map(str, changed.values())
    )
    assert "draco run run/config.toml --out NEW_FOLDER" in done.err
    assert contents(stopped) == before


def test_a_checkpoint_made_with_another_jax_goes_on_with_a_warning(
    stopped: Path, uninterrupted: dict[str, Any]
) -> None:
    edit_header(stopped, jax="0.4.1")
    done = draco("run", stopped, "--json")
    assert done.code == 0
    assert "warning: the run was begun with jax 0.4.1" in done.err
    assert hashes(json.loads(done.out)) == hashes(uninterrupted)


@pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 0.99])
def test_a_truncated_checkpoint(stopped: Path, share: float) -> None:
    state = stopped / "checkpoint" / "state.npz"
    state.write_bytes(state.read_bytes()[: int(share * state.stat().st_size)])
    before = contents(stopped)
    assert_refused(draco("run", stopped), "run/checkpoint/state.npz is damaged")
    assert contents(stopped) == before


@pytest.mark.parametrize("content", [b"garbage", b"PK\x03\x04 garbage", b"\x93NUMPY\x01\x00 garbage", b"\x80\x04."])
def test_a_checkpoint_of_garbage(stopped: Path, content: bytes) -> None:
    (stopped / "checkpoint" / "state.npz").write_bytes(content)
    assert_refused(draco("run", stopped), "run/checkpoint/state.npz is damaged")


def test_a_checkpoint_with_one_flipped_bit(stopped: Path) -> None:
    state = stopped / "checkpoint" / "state.npz"
    content = bytearray(state.read_bytes())
    content[len(content) // 2] ^= 1
    state.write_bytes(content)
    assert_refused(draco("run", stopped), "run/checkpoint/state.npz is damaged", "CRC")


@pytest.mark.parametrize(("offset", "value"), [(10, 99), (8, 1), (10, 8)])
def test_a_checkpoint_whose_directory_is_damaged(stopped: Path, offset: int, value: int) -> None:
    """An unknown compression, a password, the wrong compression: what zipfile says of it is not in one family."""
    state = stopped / "checkpoint" / "state.npz"
    content = bytearray(state.read_bytes())
    entry = content.index(b"PK\x01\x02")
    content[entry + offset] = value
    state.write_bytes(content)
    assert_refused(draco("run", stopped), "run/checkpoint/state.npz is damaged")


@pytest.mark.parametrize("name", ["header", "control", "names", "vectors"])
def test_a_checkpoint_without_one_of_its_arrays(stopped: Path, name: str) -> None:
    edit_state(stopped, **{name: None})  # type: ignore[arg-type]
    assert_refused(draco("run", stopped), "run/checkpoint/state.npz is damaged", name)


@pytest.mark.parametrize("text", [b"{", b"[]", b"{}", b"null", b"\xff"])
@pytest.mark.parametrize("name", ["header", "control"])
def test_a_checkpoint_with_nonsense_in_it(stopped: Path, name: str, text: bytes) -> None:
    edit_state(stopped, **{name: np.frombuffer(text, dtype=np.uint8)})
    assert_refused(draco("run", stopped), "run/checkpoint/state.npz is damaged")


def test_a_checkpoint_without_somebodys_model(stopped: Path) -> None:
    with np.load(stopped / "checkpoint" / "state.npz") as arrays:
        names, vectors = arrays["names"], arrays["vectors"]
    edit_state(stopped, names=names[names != 1], vectors=vectors[names != 1])
    assert_refused(draco("run", stopped), "run/checkpoint/state.npz is damaged", "every user's model")


@pytest.mark.parametrize("content", [None, b"", b"PAR1 garbage PAR1"])
def test_a_part_of_the_tables_that_is_missing_or_damaged(stopped: Path, content: bytes | None) -> None:
    part = stopped / "checkpoint" / "events-00000.parquet"
    part.unlink()
    if content is not None:
        part.write_bytes(content)
    assert_refused(draco("run", stopped), "run/checkpoint/events-00000.parquet cannot be read")
    assert not (stopped / "summary.json").exists()


def test_an_edited_configuration(stopped: Path, uninterrupted: dict[str, Any]) -> None:
    config = stopped / "config.toml"
    original = config.read_text()
    config.write_text(original.replace("step = 0.5", "step = 0.4"))
    before = contents(stopped)
    assert_refused(
        draco("run", stopped), "run/config.toml is not the configuration the run was begun with", "--out NEW_FOLDER"
    )
    assert contents(stopped) == before
    config.write_text(original.replace("step = 0.5", "step = -1"))
    assert_refused(draco("run", stopped), "train.step = -1")
    config.write_text("# my favourite\n" + original)  # says the same
    assert hashes(json.loads(draco("run", stopped, "--json").out)) == hashes(uninterrupted)


def test_a_run_in_use_by_another_process(stopped: Path) -> None:
    before = contents(stopped)
    with (stopped / "config.toml").open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert_refused(draco("run", stopped), "run is in use by another process")
    assert contents(stopped) == before


@pytest.mark.parametrize("change", [["users=4"], ["--seed", "3"]])
def test_a_stopped_run_takes_no_changes(stopped: Path, change: list[str]) -> None:
    before = contents(stopped)
    assert_refused(draco("run", stopped, *change), "run is a run to be continued as it is", "run/config.toml")
    assert contents(stopped) == before


def test_another_run_does_not_take_the_place_of_a_stopped_one(stopped: Path) -> None:
    before = contents(stopped)
    assert_refused(draco("run", "tiny", "--out", stopped), "continue it with: draco run run")
    assert contents(stopped) == before


def test_a_folder_of_real_peers_is_no_simulation_to_go_on_with(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text("")
    (tmp_path / "journal.jsonl").write_text("")
    done = draco("run", str(tmp_path))
    assert done.code == 2
    assert "holds real peers, not a simulation: a peer goes on with draco node" in done.err
