"""What is written to config.toml is read back as the same configuration, whatever it is."""

from __future__ import annotations

import tomllib
import types
import typing
from pathlib import Path
from typing import Any

import pytest
from annotated_types import Ge, Gt, Le, Lt, MinLen
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from pydantic.fields import FieldInfo

from dracofl.config import kinds
from dracofl.config.load import contradictions, load_config
from dracofl.config.presets import PRESETS
from dracofl.config.render import to_toml
from dracofl.config.schema import Config, GlyphsTask, Section, SoftmaxModel

CLASSES = [
    pytest.param(section, member, id=f"{section}.{kind}" if kind else section)
    for section, members in kinds.sections().items()
    for kind, member in members.items()
]


def anything(annotation: Any, limits: list[Any]) -> st.SearchStrategy[Any]:
    """Values of a type within its limits, read off the schema as it stands."""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        inner = [limit for extra in arguments[1:] for limit in getattr(extra, "metadata", [])]
        return anything(arguments[0], inner)
    if origin is typing.Literal:
        return st.sampled_from(arguments)
    if origin in (typing.Union, types.UnionType):
        return st.one_of(*(anything(argument, limits) for argument in arguments))
    if origin is tuple:
        return st.lists(anything(arguments[0], []), max_size=4).map(tuple)
    if annotation is types.NoneType:
        return st.none()
    if annotation is str:
        return st.text(st.characters(exclude_categories=["Cs"]), min_size=limit(limits, MinLen, "min_length") or 0)
    low, above = limit(limits, Ge, "ge"), limit(limits, Gt, "gt")
    high, below = limit(limits, Le, "le"), limit(limits, Lt, "lt")
    if annotation is int:
        return st.integers(-(10**6) if low is None else low, 10**12 if below is None else below - 1)
    assert annotation is float, annotation
    return st.floats(
        above if low is None else low, high, exclude_min=above is not None, allow_nan=False, allow_infinity=False
    )


def limit(limits: list[Any], kind: type, name: str) -> Any:
    return next((getattr(one, name) for one in limits if isinstance(one, kind)), None)


def anything_for(field: FieldInfo) -> st.SearchStrategy[Any]:
    return anything(field.annotation, field.metadata)


@st.composite
def configurations(draw: st.DrawFn, section: str, member: type[Section]) -> Config:
    values = {name: draw(anything_for(field), label=name) for name, field in member.model_fields.items()}
    try:
        chosen: dict[str, Any] = {section: member.model_validate(values)}
    except ValidationError:  # forbidden between keys
        assume(False)
    rate = values.get("rate") if section == "compute" else None
    if isinstance(rate, tuple):
        assume(len(rate) >= 2)
        chosen["users"] = len(rate)
    if values.get("kind") == "logistic":
        chosen["model"] = SoftmaxModel()
    if values.get("kind") == "cnn":
        chosen["task"] = GlyphsTask()
    config = Config.model_validate(chosen)
    assume(not contradictions(config))
    return config


@pytest.mark.parametrize("comments", [True, False])
@pytest.mark.parametrize(("section", "member"), CLASSES)
@given(data=st.data())
@settings(max_examples=20)
def test_what_is_written_is_read_back(section: str, member: type[Section], comments: bool, data: st.DataObject) -> None:
    config = load_config(data.draw(configurations(section, member)).model_dump())
    assert load_config(tomllib.loads(to_toml(config, comments=comments))) == config


@given(values=st.fixed_dictionaries({name: anything_for(Config.model_fields[name]) for name in ("users", "seed")}))
@example({"users": 2, "seed": 2**63 - 1})
def test_the_top_level_is_read_back(values: dict[str, Any]) -> None:
    config = load_config(values)
    assert load_config(tomllib.loads(to_toml(config, comments=False))) == config


@pytest.mark.parametrize("comments", [True, False])
@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_saved_to_a_file_is_the_same_run(name: str, comments: bool, tmp_path: Path) -> None:
    file = tmp_path / "my.toml"
    file.write_text(to_toml(load_config(name), comments=comments))
    assert load_config(file) == load_config(str(file)) == load_config(name)


@pytest.mark.parametrize(
    "path", ['a "quoted" one', "back\\slash", "tab\tand\nline", "délétère ☂", "\x7f", "# no comment"]
)
def test_odd_names_of_files_survive(path: str) -> None:
    config = load_config({"data": {"dir": f"/{path}"}})
    assert config.data.dir == f"/{path}"
    assert load_config(tomllib.loads(to_toml(config, comments=True))) == config


def test_paths_are_made_absolute_so_that_a_run_continues_from_anywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    config = load_config("poker", ["data.dir=uci", "topology.kind=file", "topology.path=g.txt", "method.weights=q.csv"])
    assert config.data.dir == str(tmp_path / "uci")
    assert config.topology.kind == "file"
    assert config.topology.path == str(tmp_path / "g.txt")
    assert config.method.weights == str(tmp_path / "q.csv")
