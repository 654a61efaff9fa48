"""A run folder: what is in it after a run, how it reads back, and folders that are something else."""

from __future__ import annotations

import contextlib
import fcntl
import json
import random
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import dracofl
from dracofl.errors import RunFolderError, StorageError
from dracofl.experiments.run import run_config
from dracofl.telemetry.folder import RunFolder
from dracofl.telemetry.run import Run
from dracofl.telemetry.summary import summarise
from dracofl.telemetry.tables import SCHEMAS, to_table

USERS = 4
OVERRIDES = [
    "task.kind=quadratic",
    f"users={USERS}",
    "duration_s=60",
    "evaluate.every_s=20",
    "method.period_s=25",
    "method.psi=2",
    "channel.kind=exponential",
    "channel.rate=0.2",
]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return run_config("tiny", OVERRIDES, out=tmp_path_factory.mktemp("folder") / "run")


def test_a_finished_run_has_these_files_and_no_checkpoint(run: Run) -> None:
    names = "config.toml summary.json metrics.parquet messages.parquet events.parquet models.npy curves.png"
    assert sorted(path.name for path in run.folder.iterdir()) == sorted(names.split())
    assert (run.folder / "curves.png").read_bytes().startswith(b"\x89PNG")


def test_what_run_returns_is_what_load_reads(run: Run) -> None:
    again = dracofl.load(run.folder)
    assert again.summary == run.summary == json.loads((run.folder / "summary.json").read_text())
    assert repr(dracofl.load(str(run.folder))) == f"Run('{run.folder}', finished)"
    assert again.config_toml == (run.folder / "config.toml").read_text()


@pytest.mark.parametrize("name", ["metrics", "messages", "events"])
def test_a_table_is_ready_for_a_data_frame(run: Run, name: str) -> None:
    columns: dict[str, np.ndarray] = getattr(run, name)
    assert list(columns) == SCHEMAS[name].names
    assert {column.ndim for column in columns.values()} == {1}
    assert len({len(column) for column in columns.values()}) == 1
    assert len(pa.table(columns)) > 0


def test_words_read_back_as_plain_text(run: Run) -> None:
    assert set(run.messages["fate"]) <= {"applied", "over_budget", "late", "lost", "pending"}
    assert {type(word) for word in run.events["kind"]} == {str}


def test_a_curve_has_a_row_an_evaluation_and_a_column_a_user(run: Run) -> None:
    times_s, losses = run.curve("loss")
    assert times_s.tolist() == [0.0, 20.0, 40.0, 60.0]
    assert losses.shape == (4, USERS)
    for user in range(USERS):
        assert losses[:, user].tolist() == run.metrics["loss"][run.metrics["user"] == user].tolist()
    assert run.curve()[1].shape == (4, USERS)
    assert run.metrics["final"].tolist() == [False] * 3 * USERS + [True] * USERS


def test_the_models_are_a_row_a_user(run: Run) -> None:
    assert run.models.shape == (USERS, 10)
    assert run.models.dtype == np.float32
    assert np.isfinite(run.models).all()


def test_the_summary_agrees_with_the_tables(run: Run) -> None:
    tables = {name: RunFolder.open(run.folder).read_table(name) for name in SCHEMAS}
    assert summarise(tables, run.summary["users"]).items() <= run.summary.items()
    assert run.summary["evaluations"] == 4
    assert run.summary["sgd_steps"] == 5 * run.summary["local_updates"]
    assert run.summary["messages"]["sent"] == (USERS - 1) * run.summary["transmissions"]
    assert run.summary["loss"]["mean"] == pytest.approx(run.curve("loss")[1][-1].mean())


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(RunFolderError, match=r"nowhere is not a run folder: it has no config\.toml"):
        dracofl.load(tmp_path / "nowhere")


def test_a_folder_that_is_not_a_run(tmp_path: Path) -> None:
    (tmp_path / "holiday.jpg").write_bytes(b"")
    with pytest.raises(RunFolderError, match="is not a run folder"):
        dracofl.load(tmp_path)


def test_a_run_that_is_not_finished_says_how_to_go_on(tmp_path: Path) -> None:
    RunFolder.create(tmp_path / "run", "")
    with pytest.raises(RunFolderError, match=f"not finished; go on with: draco run {tmp_path}/run"):
        dracofl.load(tmp_path / "run")


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", '"finished"', "\udcff"])
def test_a_summary_that_is_none(content: str, tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run", "")
    folder.summary_file.write_bytes(content.encode(errors="surrogateescape"))
    with pytest.raises(RunFolderError, match=r"summary\.json cannot be read"):
        dracofl.load(folder.path)


@pytest.mark.parametrize("content", [b"", b"PAR1", b"PAR1 but not really PAR1", b"\x00" * 100])
def test_a_table_that_is_damaged(content: bytes, tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run", "")
    (folder.path / "events.parquet").write_bytes(content)
    with pytest.raises(RunFolderError, match=r"events\.parquet cannot be read"):
        folder.read_table("events")


def test_a_table_damaged_anywhere_is_a_sentence_or_harmless(run: Run, tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run", "")
    good = (run.folder / "events.parquet").read_bytes()
    chance = random.Random(2)
    for _ in range(300):
        bad = bytearray(good)
        bad[chance.randrange(len(bad))] ^= 1 << chance.randrange(8)
        (folder.path / "events.parquet").write_bytes(bad)
        with contextlib.suppress(RunFolderError):
            folder.read_table("events")


def test_a_table_with_other_columns(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run", "")
    folder.write_tables({"events": to_table("messages", [])})
    with pytest.raises(RunFolderError, match=r"events\.parquet cannot be read"):
        folder.read_table("events")


def test_a_table_that_is_missing(tmp_path: Path) -> None:
    with pytest.raises(RunFolderError, match=r"metrics\.parquet cannot be read: .*No such file"):
        RunFolder.create(tmp_path / "run", "").read_table("metrics")


@pytest.mark.parametrize("content", [None, b"", b"garbage", b"\x93NUMPY"])
def test_models_that_are_missing_or_damaged(content: bytes | None, run: Run, tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run", "")
    folder.write_summary(run.summary)
    if content is not None:
        folder.models_file.write_bytes(content)
    with pytest.raises(RunFolderError, match=r"models\.npy cannot be read"):
        _ = dracofl.load(folder.path).models


def test_a_new_folder_may_exist_if_it_is_empty(tmp_path: Path) -> None:
    assert RunFolder.create(tmp_path, "users = 3\n").config_file.read_text() == "users = 3\n"
    assert RunFolder.create(tmp_path / "deep" / "down", "").config_file.exists()


def test_a_folder_that_holds_anything_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("all of it")
    with pytest.raises(RunFolderError, match="exists and is not empty; name another"):
        RunFolder.create(tmp_path, "")
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]
    with pytest.raises(RunFolderError, match="exists and is not empty"):
        RunFolder.create(tmp_path / "thesis.tex", "")
    assert (tmp_path / "thesis.tex").read_text() == "all of it"


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match=f"cannot write {tmp_path}/file/run: Not a directory"):
        RunFolder.create(tmp_path / "file" / "run", "")


def test_a_run_is_locked_while_somebody_works_on_it(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run", "")
    with folder.lock():
        with pytest.raises(RunFolderError, match="is in use by another process"), folder.lock():
            pytest.fail("two at once")
        with folder.config_file.open() as other, pytest.raises(BlockingIOError):
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    with folder.lock():
        pass
