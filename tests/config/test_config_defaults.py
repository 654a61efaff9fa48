"""What a configuration is when nobody says anything, the presets, and that every key is explained."""

from __future__ import annotations

import re
import tomllib

import pytest

from dracofl.config import kinds
from dracofl.config.consistency import doubts
from dracofl.config.load import load_config
from dracofl.config.presets import PRESETS
from dracofl.config.render import to_toml
from dracofl.config.schema import Config, Section

SECTIONS = kinds.sections()
CLASSES = [
    pytest.param(section, member, id=f"{section}.{kind}" if kind else section)
    for section, members in SECTIONS.items()
    for kind, member in members.items()
]
UNIT_BY_ENDING = {
    "_s": "s",
    "_m": "m",
    "_hz": "Hz",
    "_dbm": "dBm",
    "_dbm_per_hz": "dBm/Hz",
    "_bytes": "bytes",
    "rate": "1/s",
    "rates": "1/s",
}
SCRIPTED_KEYS = [
    "users",
    "duration_s",
    "seed",
    "executor",
    "task.kind",
    "data.dir",
    "data.samples_per_user",
    "data.partition",
    "model.hidden",
    "train.step",
    "train.batch",
    "train.local_steps",
    "compute.rate",
    "compute.snapshot",
    "transmit.when",
    "transmit.rate",
    "transmit.backlog",
    "method.kind",
    "method.psi",
    "method.own_weight",
    "method.window_s",
    "method.weights",
    "method.period_s",
    "method.hub",
    "method.unification",
    "topology.kind",
    "channel.kind",
    "channel.interference",
    "channel.bandwidth",
    "channel.deadline_s",
    "channel.message_bytes",
    "evaluate.every_events",
    "evaluate.every_s",
    "evaluate.samples",
]


def flat(config: Config) -> dict[str, object]:
    """Every key with its value, dotted."""
    found: dict[str, object] = {}
    for name, value in config:
        if isinstance(value, Section):
            found |= {f"{name}.{inner}": inner_value for inner, inner_value in value}
        else:
            found[name] = value
    return found


def differences(config: Config) -> dict[str, object]:
    standard = flat(Config())
    return {key: value for key, value in flat(config).items() if key not in standard or standard[key] != value}


def test_the_defaults_are_the_preset_poker() -> None:
    assert load_config("poker") == Config() == load_config({})
    assert PRESETS["poker"].differences == {}


def test_the_default_run_is_the_one_in_the_specification() -> None:
    keys = flat(Config())
    assert {
        "users": 25,
        "duration_s": 5000.0,
        "seed": 1,
        "task.kind": "poker",
        "data.dir": None,
        "data.samples_per_user": 1000,
        "data.partition": "iid",
        "model.hidden": (75, 75),
        "train.step": 0.5,
        "train.batch": 64,
        "train.local_steps": 10,
        "train.order": "reshuffle",
        "compute.rate": 0.1,
        "compute.snapshot": "finish",
        "transmit.when": "on-update",
        "transmit.backlog": "sum",
        "method.kind": "draco",
        "method.psi": None,
        "method.own_weight": 1.0,
        "method.window_s": 0.0,
        "method.weights": "uniform",
        "method.period_s": 100.0,
        "method.hub": "best-heard",
        "method.unification": "reliable",
        "topology.kind": "complete",
        "field.radius_m": 500.0,
        "channel.kind": "wireless",
        "channel.message_bytes": None,
        "channel.deadline_s": 10.0,
        "channel.interference": "nearby",
        "channel.bandwidth": "each",
        "channel.bandwidth_hz": 10e6,
        "channel.power_dbm": 30.0,
        "channel.path_loss_exponent": 4.0,
        "channel.noise_dbm_per_hz": -174.0,
        "evaluate.every_s": 100.0,
        "evaluate.every_events": None,
        "evaluate.samples": 2000,
    }.items() <= keys.items()


def test_the_presets() -> None:
    assert list(PRESETS) == ["poker", "poker-cycle", "paper-poker", "emnist", "paper-emnist", "glyphs", "tiny"]
    assert differences(load_config("poker-cycle")) == {"topology.kind": "cycle"}


def test_paper_poker_makes_the_papers_choices() -> None:
    assert differences(load_config("paper-poker")) == {
        "method.weights": "delivered",
        "method.own_weight": 0.0,
        "method.hub": "random",
        "channel.message_bytes": 51_640,
        "evaluate.every_s": None,
        "evaluate.every_events": 500,
    }
    keys = flat(load_config("paper-poker"))
    assert keys["channel.interference"] == "nearby"
    assert keys["method.unification"] == "reliable"
    assert keys["compute.snapshot"] == "finish"
    assert keys["transmit.when"] == "on-update"


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_has_no_doubts_and_a_line_about_itself(name: str) -> None:
    # The paper's text on a ring is known not to learn; who asks for it is told so.
    expected = ["method.own_weight = 0 on a sparse graph"] if name == "paper-emnist" else []
    assert [doubt.partition(":")[0] for doubt in doubts(load_config(name))] == expected
    assert "\n" not in PRESETS[name].summary
    assert len(PRESETS[name].summary) > 20


def test_the_keys_that_others_script_against_exist() -> None:
    assert set(SCRIPTED_KEYS) <= set(kinds.all_keys())


@pytest.mark.parametrize(("section", "member"), CLASSES)
def test_every_key_has_a_meaning_and_the_unit_in_its_name(section: str, member: type[Section]) -> None:
    for name, field in member.model_fields.items():
        if name == "kind":
            continue
        assert field.description, f"{section}.{name}"
        assert isinstance(field.json_schema_extra, dict)
        unit = field.json_schema_extra["unit"]
        expected = [unit for ending, unit in UNIT_BY_ENDING.items() if name.endswith(ending)]
        assert not expected or unit in expected, f"{section}.{name} is in {unit}"


@pytest.mark.parametrize(("section", "member"), CLASSES)
def test_every_kind_has_a_line_about_itself(section: str, member: type[Section]) -> None:
    if kinds.kind_of(member):
        line = kinds.summary(member)
        assert line.endswith("."), section
        assert 20 < len(line) < 110


def test_top_level_keys_have_meanings() -> None:
    assert all(field.description for name, field in Config.model_fields.items() if name not in SECTIONS)


@pytest.mark.parametrize(("section", "member"), CLASSES)
def test_show_explains_every_key_of_every_kind(section: str, member: type[Section]) -> None:
    needed = {"path": "/nowhere"} if member.model_fields.get("path") else {}
    one = member.model_validate(needed)
    shown = to_toml(Config.model_validate({section: one}), comments=True)
    block = shown.split(f"[{section}]\n")[1].split("\n\n")[0]
    for name, field in member.model_fields.items():
        line = next(line for line in block.splitlines() if line.startswith(f"{name} = "))
        meaning = kinds.summary(member) if name == "kind" else str(field.description)
        assert meaning in line.split("  # ", 1)[1]
        for word in kinds.choices(member, name):
            assert word in line


@pytest.mark.parametrize("name", PRESETS)
def test_show_is_complete_and_every_line_has_a_comment(name: str) -> None:
    config = load_config(name)
    text = to_toml(config, comments=True)
    read = tomllib.loads(text)
    found = {
        f"{key}.{inner}" if isinstance(value, dict) else key
        for key, value in read.items()
        for inner in (value if isinstance(value, dict) else [""])
    }
    assert found == set(flat(config))
    for line in text.splitlines():
        assert not line or re.fullmatch(r"\[\w+\]|\w+ = .*  # .+", line), line
