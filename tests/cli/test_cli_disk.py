"""A disk that is full or read-only: one sentence, exit code 2, and the last checkpoint as good as before."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from draco_command import contents, draco, draco_process, hashes, stopped_run

FULL = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, {limit}))"
# Root may write anywhere. Without CAP_DAC_OVERRIDE in its bounding set, a new program of root's may not.
WITHOUT_PRIVILEGE = """
import ctypes, os, sys
if "again" not in os.environ:
    ctypes.CDLL(None).prctl(24, 1, 0, 0, 0)
    os.execve(sys.executable, sys.orig_argv, dict(os.environ, again=""))
"""


@pytest.mark.parametrize("fails", ["the tables", "the state"])
def test_a_full_disk_spares_the_old_checkpoint(fails: str, tmp_path: Path, uninterrupted: dict[str, Any]) -> None:
    folder = stopped_run(tmp_path / "run")
    before = contents(folder)
    state_bytes = len(before["checkpoint/state.npz"])
    part_bytes = max(len(content) for name, content in before.items() if name.endswith(".parquet"))
    assert 2 * part_bytes < state_bytes
    limit = part_bytes // 4 if fails == "the tables" else 2 * part_bytes
    done = draco_process("run", "run", before=FULL.format(limit=limit))
    assert (done.code, done.out) == (2, "")
    name = r"run/checkpoint/events-00001.parquet" if fails == "the tables" else "run/checkpoint/state.npz"
    assert done.err.splitlines()[1:] == [f"draco: cannot write {name}: File too large; what was saved before is intact"]
    assert before.items() <= contents(folder).items()
    assert not list(folder.rglob("*.unfinished"))
    assert hashes(json.loads(draco("run", "run", "--json").out)) == hashes(uninterrupted)


@pytest.mark.skipif(sys.platform != "linux", reason="takes root's privilege away, the way Linux has it")
def test_a_read_only_folder_spares_the_old_checkpoint(tmp_path: Path, uninterrupted: dict[str, Any]) -> None:
    folder = stopped_run(tmp_path / "run")
    before = contents(folder)
    try:
        (folder / "checkpoint").chmod(0o555)
        folder.chmod(0o555)
        done = draco_process("run", "run", before=WITHOUT_PRIVILEGE)
    finally:
        folder.chmod(0o755)
        (folder / "checkpoint").chmod(0o755)
    assert (done.code, done.out) == (2, "")
    assert done.err.splitlines()[1:] == [
        "draco: cannot write run/checkpoint/events-00001.parquet: Permission denied; what was saved before is intact"
    ]
    assert contents(folder) == before
    assert hashes(json.loads(draco("run", "run", "--json").out)) == hashes(uninterrupted)
