"""What `import dracofl` offers, and what it costs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from draco_command import CHANGES

import dracofl
from dracofl.config.load import load_config
from dracofl.errors import ConfigError, RunFolderError


def test_exported_members() -> None:
    assert sorted(dracofl.__all__) == ["__version__", "configure", "load", "run", "sweep"]
    assert all(hasattr(dracofl, name) for name in dracofl.__all__)


def test_importing_it_imports_nothing_heavy() -> None:
    program = "import sys; before = set(sys.modules); import dracofl; print(*(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    roots = {name.split(".")[0] for name in done.stdout.split()}
    assert {root for root in roots if root not in sys.stdlib_module_names} == {"dracofl"}


def test_configure_is_the_configuration_of_the_command() -> None:
    assert dracofl.configure() == load_config("poker")
    assert dracofl.configure("tiny", ["users=3"]) == load_config("tiny", ["users=3"])
    with pytest.raises(ConfigError, match="users = 1"):
        dracofl.configure({"users": 1})


def test_run_takes_a_name_keys_a_file_or_a_configuration(tmp_path: Path) -> None:
    config = dracofl.configure("tiny", [*CHANGES, "seed=7"])
    (tmp_path / "my.toml").write_text(dracofl.run(config, out=tmp_path / "a").config_toml)
    first = dracofl.load(tmp_path / "a")
    assert first.folder == tmp_path / "a"
    others = [
        dracofl.run("tiny", CHANGES, seed=7, out=str(tmp_path / "b")),
        dracofl.run(config.model_dump(), out=tmp_path / "c"),
        dracofl.run(tmp_path / "my.toml", out=tmp_path / "d"),
    ]
    for run in others:
        assert run.summary["trace_hash"] == first.summary["trace_hash"]
        assert run.summary["model_hash"] == first.summary["model_hash"]
        assert run.config_toml == first.config_toml


def test_load_of_what_is_no_run(tmp_path: Path) -> None:
    with pytest.raises(RunFolderError, match="is not a run folder"):
        dracofl.load(tmp_path)
