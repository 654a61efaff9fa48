"""key=value on the command line: what a value may be, and what changing a kind does to its neighbours."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from dracofl.config.load import load_config
from dracofl.errors import ConfigError


def get(config: Any, key: str) -> Any:
    for part in key.split("."):
        config = getattr(config, part)
    return config


@pytest.mark.parametrize(
    ("override", "key", "value"),
    [
        ("users=7", "users", 7),
        ("users = 7 ", "users", 7),
        ("users=1_000", "users", 1000),
        ("duration_s=60", "duration_s", 60.0),
        ("train.step=1e-3", "train.step", 0.001),
        ("compute.rate=0.2", "compute.rate", 0.2),
        ("model.hidden=[10, 20, 30]", "model.hidden", (10, 20, 30)),
        ("model.hidden=[]", "model.hidden", ()),
        ("method.hub=random", "method.hub", "random"),
        ('method.hub="random"', "method.hub", "random"),
        ("method.hub='random'", "method.hub", "random"),
        ("transmit.when=on-update", "transmit.when", "on-update"),
        ("method.psi=20", "method.psi", 20),
        ("method.psi=none", "method.psi", None),
        ('method.psi="none"', "method.psi", None),
        ("evaluate.samples=none", "evaluate.samples", None),
        ("channel.interference=none", "channel.interference", "none"),
        ("data.dir=/data/my hands", "data.dir", "/data/my hands"),
        ("data.dir=/data/a=b", "data.dir", "/data/a=b"),
        ("data.dir=/data/#1", "data.dir", "/data/#1"),
        ("data.dir=none", "data.dir", None),
    ],
)
def test_a_value_is_what_toml_says_and_a_bare_word_is_a_text(override: str, key: str, value: object) -> None:
    found = get(load_config("poker", [override]), key)
    assert found == value
    assert type(found) is type(value)


def test_a_folder_may_be_named_after_a_day() -> None:
    assert str(load_config("poker", ["data.dir=2024-05-17"]).data.dir).endswith("/2024-05-17")


def test_lists_of_rates() -> None:
    assert load_config("poker", ["users=3", "compute.rate=[1, 0.5, 2.0]"]).compute.rate == (1.0, 0.5, 2.0)


def test_a_table_of_rates_for_the_links() -> None:
    config = load_config("poker", ["users=2", "channel.kind=exponential", "channel.rates=[[1, 2], [3.5, 4]]"])
    assert get(config, "channel.rates") == ((1.0, 2.0), (3.5, 4.0))


def test_another_kind_drops_the_keys_of_the_old_one() -> None:
    source = {"channel": {"kind": "wireless", "interference": "none", "power_dbm": 10.0}, "topology": {"kind": "cycle"}}
    config = load_config(source, ["channel.kind=ideal", "topology.kind=k-out"])
    assert config.channel.model_dump() == {"kind": "ideal", "message_bytes": None}
    assert config.topology.model_dump() == {"kind": "k-out", "k": 3}


def test_the_same_kind_keeps_its_keys() -> None:
    assert get(load_config("tiny", ["model.kind=mlp"]), "model.hidden") == (32,)
    assert load_config("tiny", ["method.kind=draco"]).method.psi == 40


def test_a_kind_and_its_keys_may_come_in_any_order() -> None:
    overrides = ["channel.kind=lossy", "channel.loss=0.5", "channel.delay_s=2", "channel.message_bytes=100"]
    expected = {"kind": "lossy", "loss": 0.5, "delay_s": 2.0, "message_bytes": 100}
    for order in itertools.permutations(overrides):
        assert load_config("paper-poker", order).channel.model_dump() == expected


def test_overrides_go_on_top_of_the_preset_and_leave_the_rest() -> None:
    config = load_config("tiny", ["method.psi=5", "method.hub=random"])
    assert (config.method.psi, config.method.hub, config.method.period_s) == (5, "random", 100.0)
    assert config.users == 8


def test_of_two_overrides_of_one_key_the_last_counts() -> None:
    assert load_config("tiny", ["users=3", "users=4"]).users == 4
    assert load_config("tiny", ["topology.kind=star", "topology.kind=grid"]).topology.kind == "grid"


def test_overriding_changes_neither_the_preset_nor_the_given_keys() -> None:
    given = {"method": {"psi": 3}}
    load_config(given, ["method.psi=4", "channel.kind=ideal"])
    assert given == {"method": {"psi": 3}}
    load_config("tiny", ["method.psi=4", "model.kind=softmax"])
    assert load_config("tiny").method.psi == 40


@pytest.mark.parametrize("override", ["method.psi", "", "=3", "  = 3", ".psi=3", "method.=3", "method..psi=3"])
def test_what_is_not_key_and_value_is_refused(override: str) -> None:
    with pytest.raises(ConfigError) as refused:
        load_config("poker", [override])
    assert refused.value.problems == (f'"{override}" must look like key=value, as in method.psi=20',)


def test_an_override_sets_one_key_only() -> None:
    with pytest.raises(ConfigError, match="users = '3\\\\nseed = 4': must be a whole number"):
        load_config("poker", ["users=3\nseed = 4"])


def test_malformed_overrides_are_reported_with_everything_else() -> None:
    with pytest.raises(ConfigError) as refused:
        load_config("poker", ["psi", "users=1", "nothing"])
    assert len(refused.value.problems) == 3
