"""Wrong configurations: every problem at once, each naming the key, the value and what would be right."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from dracofl.config import kinds
from dracofl.config.load import load_config
from dracofl.config.presets import PRESETS
from dracofl.errors import ConfigError


def problems(source: Any, *overrides: str) -> tuple[str, ...]:
    with pytest.raises(ConfigError) as refused:
        load_config(source, overrides)
    return refused.value.problems


def the_problem(source: Any, *overrides: str) -> str:
    (only,) = problems(source, *overrides)
    return only


@pytest.mark.parametrize(
    ("overrides", "fragments"),
    [
        # out of range
        ("users=1", ["users = 1", "at least 2", "number of users"]),
        ("users=0", ["users = 0", "at least 2"]),
        ("users=-3", ["users = -3", "at least 2"]),
        ("duration_s=0", ["duration_s = 0", "greater than 0", "[s]"]),
        ("duration_s=-5", ["duration_s = -5", "greater than 0"]),
        ("seed=-1", ["seed = -1", "at least 0"]),
        ("seed=9223372036854775808", ["seed = 9223372036854775808", "less than 9223372036854775808"]),
        ("train.step=-0.1", ["train.step = -0.1", "greater than 0"]),
        ("method.psi=0", ["method.psi = 0", "at least 1", "Psi"]),
        ("method.psi=-1", ["method.psi = -1", "at least 1"]),
        ("method.window_s=-1", ["method.window_s = -1", "at least 0"]),
        ("method.period_s=0", ["method.period_s = 0", "greater than 0"]),
        ("method.own_weight=-1", ["method.own_weight = -1", "at least 0"]),
        ("compute.rate=0", ["compute.rate = 0", "greater than 0", "[1/s]"]),
        ("channel.deadline_s=-10", ["channel.deadline_s = -10", "greater than 0"]),
        ("evaluate.every_s=0", ["evaluate.every_s = 0", "greater than 0"]),
        ("evaluate.every_events=0", ["evaluate.every_events = 0", "at least 1"]),
        ("checkpoint.every_s=-1", ["checkpoint.every_s = -1", "greater than 0"]),
        ("channel.kind=lossy channel.loss=1.5", ["channel.loss = 1.5", "at most 1"]),
        ("topology.kind=k-out topology.k=0", ["topology.k = 0", "at least 1"]),
        # of the wrong type
        ("users=2.5", ["users = 2.5", "whole number"]),
        ("users=many", ["users = 'many'", "whole number"]),
        ("users=true", ["users = True", "whole number"]),
        ("train.step=true", ["train.step = True", "must be a number"]),
        ("method.psi=2.5", ["method.psi = 2.5", "whole number"]),
        ("method.psi=true", ["method.psi = True", "whole number"]),
        ("method.weights=3", ["method.weights = 3", "must be a text"]),
        ("model.hidden=75", ["model.hidden = 75", "must be a list", "[75, 75]"]),
        ('duration_s="60"', ["duration_s = '60'", "must be a number"]),
        ("users={}", ["users = {}", "whole number"]),
        ("data.dir=", ["data.dir = ''", "must not be empty"]),
        ("topology.kind=file topology.path=", ["topology.path = ''", "must not be empty"]),
        # with a unit
        ("duration_s=10 s", ["duration_s = '10 s'", "without a unit", "[s]"]),
        ("method.period_s=2min", ["method.period_s = '2min'", "without a unit", "[s]"]),
        ("channel.power_dbm=30 dBm", ["channel.power_dbm = '30 dBm'", "without a unit", "[dBm]"]),
        ("compute.rate=0.1/s", ["compute.rate = '0.1/s'", "without a unit", "[1/s]"]),
        # not a number at all
        ("duration_s=nan", ["duration_s = nan", "finite"]),
        ("duration_s=inf", ["duration_s = inf", "finite"]),
        ("method.period_s=-inf", ["method.period_s = -inf", "finite"]),
        ("method.own_weight=nan", ["method.own_weight = nan", "finite"]),
        ("compute.rate=inf", ["compute.rate = inf", "finite"]),
        # an entry of a list
        ("model.hidden=[75,0]", ["model.hidden[1] = 0", "at least 1"]),
        ("model.hidden=[75,2.5]", ["model.hidden[1] = 2.5", "whole number"]),
        ("users=2 compute.rate=[0.1,-1]", ["compute.rate[1] = -1", "greater than 0"]),
        ("users=2 compute.rate=[0.1,nan]", ["compute.rate[1] = nan", "finite"]),
        ("users=2 channel.kind=exponential channel.rates=[[1,2],[3,0]]", ["channel.rates[1][1] = 0", "greater than 0"]),
        ("users=2 channel.kind=exponential channel.rates=[1,2]", ["channel.rates[0] = 1", "must be a list"]),
        # one of a few words
        ("method.hub=bestheard", ["method.hub = 'bestheard'", "random, round-robin, best-heard", "mean best-heard?"]),
        ("method.hub=3", ["method.hub = 3", "random, round-robin, best-heard"]),
        ("topology.kind=cylce", ["topology.kind = 'cylce'", "star", "did you mean cycle?"]),
        ("topology.kind=3", ["topology.kind = '3'", "not one of cycle"]),
        ("method.kind=darco", ["method.kind = 'darco'", "did you mean draco?"]),
        ("executor=fast", ["executor = 'fast'", "reference"]),
        ("topology.kind=file", ["topology.path is missing", "edge list"]),
        # between keys
        ("method.psi=5 method.period_s=none", ["method.psi = 5", "method.period_s"]),
        ("task.kind=quadratic task.smoothness=0.1", ["task.smoothness = 0.1", "task.strong_convexity = 0.5"]),
        ("task.kind=quadratic task.dimension=1", ["task.dimension = 1", "task.smoothness", "task.strong_convexity"]),
        ("compute.rate=[0.1,0.2]", ["compute.rate lists 2 rates for 25 users", "one for all or one each"]),
        ("transmit.rate=[0.1,0.2]", ["transmit.rate lists 2 rates for 25 users", "one for all or one each"]),
        ("compute.rate=[]", ["compute.rate lists 0 rates for 25 users"]),
        ("data.samples_per_user=63", ["data.samples_per_user = 63", "train.batch = 64"]),
        ("data.partition=shards data.shards_per_user=1001", ["data.shards_per_user = 1001", "= 1000"]),
        ("task.kind=quadratic data.dir=/data", ["data.dir", "quadratic", "data.dir=none"]),
        ("task.kind=logistic", ["logistic", 'model.kind = "softmax"']),
        # sections
        ("method=3", ["method = 3", "section", "method.kind="]),
        ("data=none", ["data = 'none'", "section", "data.dir="]),
        ("topology=cycle", ["topology = 'cycle'", "section", "topology.kind="]),
    ],
)
def test_the_sentence_names_the_key_the_value_and_what_would_be_right(overrides: str, fragments: list[str]) -> None:
    words = overrides.split(" ")
    given = [word for word in words if "=" in word]
    if len(given) < len(words):  # a value with a space in it
        given = [overrides]
    sentence = the_problem("poker", *given)
    for fragment in fragments:
        assert fragment in sentence


@pytest.mark.parametrize(
    ("key", "nearest"),
    [
        ("train.bacth", "train.batch"),
        ("train.locals_steps", "train.local_steps"),
        ("user", "users"),
        ("duration", "duration_s"),
        ("method.period", "method.period_s"),
        ("method.weight", "method.weights"),
        ("psi", "method.psi"),
        ("step", "train.step"),
        ("train.psi", "method.psi"),
        ("rate", "compute.rate"),
        ("channel.deadline", "channel.deadline_s"),
        ("evaluate.sample", "evaluate.samples"),
        ("method.psi.x", "method.psi"),
    ],
)
def test_an_unknown_key_is_met_with_the_nearest_right_one(key: str, nearest: str) -> None:
    assert the_problem("poker", f"{key}=3") == f"unknown key {key}; did you mean {nearest}?"


@pytest.mark.parametrize("key", sorted(key for key in kinds.all_keys() if "." in key and not key.endswith(".kind")))
def test_a_slip_of_the_finger_is_forgiven_for_every_key(key: str) -> None:
    if len(key.split(".")[1]) > 1:
        assert f"did you mean {key}?" in the_problem("poker", f"{key}{key[-1]}=3")


def test_a_key_like_no_other_shows_what_there_is() -> None:
    assert the_problem("poker", "train.lr=3") == "unknown key train.lr; train has step, batch, local_steps, order"
    assert "draco show" in the_problem("poker", "xyzzy=3")
    assert "draco show" in the_problem("poker", "a.b.c=3")


def test_an_unknown_section() -> None:
    assert "did you mean method?" in the_problem("poker", "metod.psi=3")
    assert "not one of task, data" in the_problem({"xyzzy": {"a": 3}})


def test_a_kind_for_a_section_that_has_none() -> None:
    assert "unknown key data.kind" in the_problem("poker", "data.kind=poker")


@pytest.mark.parametrize(
    ("key", "sentence"),
    [
        ("topology.k", 'topology.k belongs to topology.kind = "k-out", not to "complete"'),
        ("channel.loss", 'channel.loss belongs to channel.kind = "lossy", not to "wireless"'),
        ("task.dimension", 'task.dimension belongs to task.kind = "logistic" or "quadratic", not to "poker"'),
    ],
)
def test_a_key_of_another_kind_says_which(key: str, sentence: str) -> None:
    assert the_problem("poker", f"{key}=3") == sentence


def test_all_problems_at_once_and_each_once() -> None:
    found = problems(
        "poker",
        "users=1",
        "duration_s=10 s",
        "train.bacth=3",
        "method.hub=loudest",
        "method.psi=5",
        "method.period_s=none",
        "topology.kind=rign",
        "channel.deadline_s=-1",
        "data.samples_per_user=5",
        "task=poker",
        "words",
    )
    keys = ["words", "users", "duration_s", "train.bacth", "method.hub", "method.psi", "topology.kind"]
    keys += ["channel.deadline_s", "data.samples_per_user", "task"]
    assert len(found) == len(keys)
    for key in keys:
        assert sum(key in sentence.split(" must")[0] for sentence in found) >= 1, key


def test_a_default_that_stands_in_for_a_wrong_key_is_not_held_against_the_user() -> None:
    assert "users = 1" in the_problem("poker", "users=1", "compute.rate=[0.5]")
    assert "train.batch = 0" in the_problem("poker", "train.batch=0", "data.samples_per_user=5")
    assert "task.smoothness = -1" in the_problem(
        "poker", "task.kind=quadratic", "task.smoothness=-1", "task.strong_convexity=5"
    )
    assert "topology.path = 3" in the_problem("poker", "topology.kind=file", "topology.path=3")


@pytest.mark.parametrize(
    "keys",
    [
        {"users": {"a": 1}},
        {"users": None},
        {"users": math.nan},
        {"method": []},
        {"method": [{"psi": 3}]},
        {"topology": {"kind": ["cycle"]}},
        {"topology": {"kind": None}},
        {"topology": {"kind": {}}},
        {"channel": {"kind": "ideal", "rates": [[1.0]]}},
        {"compute": {"rate": {"a": 1}}},
        {"data": {"dir": "\udcff"}},
        {1: 2},
    ],
)
def test_nonsense_from_python_is_a_sentence_too(keys: Any) -> None:
    assert len(the_problem(keys)) > 20


def test_bytes_from_the_shell_that_are_no_text() -> None:
    assert "not Unicode" in the_problem("poker", "data.dir=/data/\udcff")


def test_a_preset_that_does_not_exist() -> None:
    sentence = the_problem("pokre")
    assert sentence.startswith(
        '"pokre" is neither a preset (poker, poker-cycle, paper-poker, emnist, paper-emnist, glyphs, tiny) nor a file'
    )
    assert sentence.endswith("did you mean poker?")
    assert all(name in the_problem("nothing-like-it") for name in PRESETS)


def test_a_file_that_does_not_exist(tmp_path: Path) -> None:
    assert f'"{tmp_path / "my.toml"}" is neither' in the_problem(tmp_path / "my.toml")


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    assert the_problem(tmp_path) == f'"{tmp_path}" cannot be read: Is a directory'


@pytest.mark.skipif(not Path("/proc/self/mem").exists(), reason="needs a file that exists and refuses to be read")
def test_a_file_that_refuses_to_be_read() -> None:
    assert the_problem("/proc/self/mem") == '"/proc/self/mem" cannot be read: Input/output error'


def test_a_file_that_is_not_toml(tmp_path: Path) -> None:
    file = tmp_path / "my.toml"
    file.write_text("users = 3\n[method\npsi = 4\n")
    sentence = the_problem(file)
    assert f'"{file}" is not valid TOML' in sentence
    assert "line 2" in sentence
    file.write_bytes(b"users = 3 # \xff\xfe")
    assert f'"{file}" is not valid TOML: it is not text in UTF-8' in the_problem(file)


def test_a_file_with_wrong_keys_and_overrides_are_judged_together(tmp_path: Path) -> None:
    file = tmp_path / "my.toml"
    file.write_text("users = 1\nseeds = 3\n[method]\npsi = 0\n")
    assert len(problems(file, "train.step=0")) == 4
    assert load_config({"users": 1}, ["users=2"]).users == 2


def test_more_evaluations_than_anybody_wants() -> None:
    assert "evaluate.every_s = 1e-09 asks for 5e+12 evaluations" in the_problem("poker", "evaluate.every_s=1e-9")
