"""What the README shows is what there is."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

from dracofl.config.node import Node

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


def test_the_python_example_of_the_readme_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)
    assert example.strip() in (ROOT / "examples" / "ten_lines.py").read_text()
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(ROOT / "examples" / "ten_lines.py"))
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in lines] == ["psi none", "psi   20", "psi    5"]
    applied = [int(re.search(r"applied\s+(\d+)", line)[1]) for line in lines]
    assert applied == sorted(applied, reverse=True)
    assert len(list((tmp_path / "runs").iterdir())) == 3


def test_every_file_the_readme_points_to_exists() -> None:
    pointed = re.findall(r"\]\(([^)#:]+)\)", README) + re.findall(r"`((?:examples|benchmarks|docs)/[\w./-]+)`", README)
    assert pointed
    assert [name for name in pointed if not (ROOT / name).exists()] == []


def test_every_make_command_the_readme_names_is_a_target() -> None:
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)
    assert set(re.findall(r"make ([a-z-]+)", README)) - {"learning"} <= set(targets)


def test_the_guide_to_devices_lists_every_key_of_a_node() -> None:
    guide = (ROOT / "docs" / "from-simulation-to-devices.md").read_text()
    for name, field in Node.model_fields.items():
        assert f"| `{name}` |" in guide
        assert field.description is not None
        assert field.description in guide
