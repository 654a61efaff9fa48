"""A PyTorch module learns as a peer, wherever PyTorch is; where it is not, that is said in a sentence."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from dracofl.errors import ConfigError, DracoError
from dracofl.runtime.learners import load_learner

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent


def test_all_that_must_hold_holds_in_this_environment() -> None:
    pytest.importorskip("torch", reason="PyTorch is not installed here; the slow test brings its own")
    import torch_checks

    for check in torch_checks.CHECKS:
        check()


def test_without_pytorch_one_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)  # as if it were not there, even if it is
    monkeypatch.delitem(sys.modules, "dracofl.runtime.torch_learner", raising=False)
    with pytest.raises(DracoError, match=r"needs PyTorch: pip install 'dracofl\[torch\]'"):
        importlib.import_module("dracofl.runtime.torch_learner")


def test_a_node_file_that_needs_pytorch_says_so_too(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.delitem(sys.modules, "dracofl.runtime.torch_learner", raising=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "wants_torch.py").write_text("from dracofl.runtime.torch_learner import TorchLearner\n")
    with pytest.raises(ConfigError, match=r"learner \"wants_torch:learner\": .* pip install 'dracofl\[torch\]'"):
        load_learner("wants_torch:learner", 0, 2)


@pytest.mark.slow
def test_all_that_must_hold_holds_with_pytorch_and_without_jax_pydantic_or_pyarrow() -> None:
    from benchmarks.peers import Missing, environment

    try:
        made = environment("torch")
    except Missing as error:
        pytest.skip(str(error))
    if "torch" in made.missing:
        pytest.skip(f"PyTorch cannot be installed: {made.missing['torch']}")
    done = subprocess.run(
        [str(made.python), str(HERE / "torch_checks.py")],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len([line for line in lines if line.startswith("holds: ")]) >= 12
    assert lines[-1] == "imported:"
    (alone,) = [line for line in lines if line.startswith("accuracy ")]
    assert float(alone.split()[1]) > 0.9
