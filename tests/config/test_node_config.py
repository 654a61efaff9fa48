"""The file of a real peer: what peers cannot do is refused with what they can, and every problem is told at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dracofl.config.load import load_config
from dracofl.config.node import Node, fit_for_peers, load_node, make_node, refusals
from dracofl.config.presets import PRESETS
from dracofl.config.schema import Config
from dracofl.errors import ConfigError

GOOD: dict[str, Any] = {
    "users": 5,
    "channel": "none",
    "compute": {"snapshot": "start"},
    "method": {"hub": "round-robin"},
    "node": {"user": 0},
}


def made(*overrides: str, **changes: Any) -> tuple[Config, Node]:
    return make_node({**GOOD, **changes}, overrides)


def problems(*overrides: str, **changes: Any) -> tuple[str, ...]:
    with pytest.raises(ConfigError) as refused:
        made(*overrides, **changes)
    return refused.value.problems


def test_a_good_file_is_a_configuration_and_a_peer() -> None:
    config, node = made()
    assert (config.users, config.channel.kind, node.user, node.time_scale) == (5, "ideal", 0, 1.0)


def test_a_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "peer.toml").write_text(
        'preset = "tiny"\nusers = 3\nchannel = "none"\ncompute.snapshot = "start"\nmethod.hub = "random"\n'
        '[node]\nuser = 2\nlisten = ["tcp/127.0.0.1:7000"]\n'
    )
    config, node = load_node(tmp_path / "peer.toml", ["node.user=1", "method.psi=7"])
    assert (config.users, config.method.psi, config.duration_s) == (3, 7, 400.0)
    assert (node.user, node.listen) == (1, ("tcp/127.0.0.1:7000",))


# What peers cannot do

REFUSED = {
    "method.hub=best-heard": ['method.hub = "best-heard"', '"round-robin" or "random"'],
    "method.weights=delivered": ['method.weights = "delivered"', 'use "uniform"'],
    "channel.interference=concurrent": ['channel.interference = "concurrent"', 'use "nearby" or "none"'],
    "compute.snapshot=finish": ['compute.snapshot = "finish"', 'use "start"'],
    "evaluate.every_events=500": ["evaluate.every_events", "use evaluate.every_s"],
    "method.kind=fedavg": ['method.kind = "fedavg"', 'use method.kind = "draco"'],
}


@pytest.mark.parametrize(("override", "fragments"), REFUSED.items(), ids=REFUSED)
def test_what_peers_cannot_do_is_refused_by_name_with_what_they_can(override: str, fragments: list[str]) -> None:
    wireless = ["channel=wireless"] if "interference" in override else []
    (sentence,) = problems(*wireless, override)
    for fragment in fragments:
        assert fragment in sentence


@pytest.mark.parametrize("kind", ["sync-symm", "sync-push", "async-symm", "async-push", "fedavg", "local"])
def test_every_other_method_is_refused(kind: str) -> None:
    (sentence,) = problems(f"method.kind={kind}")
    assert f'"{kind}" cannot run between real peers' in sentence


def test_all_that_is_refused_is_told_at_once_with_all_that_is_wrong_with_the_peer() -> None:
    found = problems(
        "method.hub=best-heard", "compute.snapshot=finish", "node.user=9", "node.waiting=0", "node.usr=1", "node.pace=x"
    )
    assert len(found) == 5  # which user there can be is not asked if the peer makes no sense otherwise
    assert [sentence for sentence in found if "node.user" in sentence] == [
        "unknown key node.usr; did you mean node.user?"
    ]


def test_problems_of_both_parts_are_told() -> None:
    found = problems("users=1", "train.bacth=3", "node.lease_s=0")
    assert len(found) == 3
    assert any("node.lease_s" in sentence for sentence in found)


@pytest.mark.parametrize("preset", PRESETS)
def test_a_cluster_gets_the_nearest_that_peers_can_do_or_is_told_why_not(preset: str) -> None:
    before = load_config(preset)
    config, said = fit_for_peers(before)
    assert len(said) == len(refusals(before)) - len(refusals(config))
    assert bool(refusals(config)) == preset.startswith("paper")


def test_what_peers_can_do_is_left_as_it_is() -> None:
    config, _ = made()
    assert fit_for_peers(config) == (config, [])


# The section [node]

WRONG = {
    "node.user=-1": "node.user = -1: must be at least 0; meaning: which user this is, from 0",
    "node.user=x": "node.user = 'x': must be a whole number; meaning: which user this is, from 0",
    "node.user=1.5": "node.user = 1.5: must be a whole number",
    "node.user=5": "node.user = 5 is not one of 5 users: they are counted from 0",
    "node.pace=fast": "node.pace = 'fast' is not one of drawn, free",
    "node.listen=7447": 'node.listen = 7447: must be a list, as in ["tcp/10.0.0.3:7447"]',
    "node.connect=['', 'tcp/a:1']": "node.connect[0] = '': must not be empty",
    "node.connect=['tcp/a:1', 3]": "node.connect[1] = 3: must be a text",
    "node.time_scale=0": "node.time_scale = 0: must be greater than 0",
    "time_scale=2000": "node.time_scale = 2000: must be at most 1000",
    "time_scale=fast": "node.time_scale = 'fast': must be a number",
    "node.deadline_s=nan": "node.deadline_s = nan: must be finite",
    "node.norm_limit=inf": "node.norm_limit = inf: must be finite",
    "node.answer_timeout_s=0": "node.answer_timeout_s = 0: must be greater than 0",
    "node.folder=": "node.folder = '': must not be empty",
    "node.network=a b": "node.network = 'a b': ",
    "node.insecure=yes": "node.insecure = 'yes': ",
    "node.xyzzy=1": "unknown key node.xyzzy; there are user, network, listen, connect",
    "node.certificate=x": "unknown key node.certificate; did you mean node.certificates?",
    "node.user": '"node.user" must look like key=value',
    "time_scale": '"time_scale" must look like key=value',
}


@pytest.mark.parametrize(("override", "expected"), WRONG.items(), ids=WRONG)
def test_the_sentence_names_the_key_the_value_and_what_would_be_right(override: str, expected: str) -> None:
    (sentence,) = problems(override)
    assert sentence.startswith(expected)


def test_a_peer_must_say_who_it_is() -> None:
    assert problems(node={}) == ("node.user is missing: which user this is, from 0",)


def test_values_are_written_as_in_a_file() -> None:
    _, node = made("node.listen=['tcp/127.0.0.1:1', \"tcp/127.0.0.1:2\"]", "node.discovery=true", "node.learner=a:b")
    assert node.listen == ("tcp/127.0.0.1:1", "tcp/127.0.0.1:2")
    assert (node.discovery, node.learner) == (True, "a:b")


def test_none_is_none() -> None:
    _, node = made("node.learner=none", node={"user": 1, "learner": "a:b", "certificates": "none"})
    assert (node.learner, node.certificates) == (None, None)


def test_a_file_without_the_section_or_without_anything_is_refused(tmp_path: Path) -> None:
    for text in ("users = 3\n", "node = 3\n", ""):
        (tmp_path / "peer.toml").write_text(text)
        with pytest.raises(ConfigError, match=r"has no section \[node\], which says who this peer is"):
            load_node(tmp_path / "peer.toml")
    with pytest.raises(ConfigError, match=r'there is no file "peer\.tmol"'):
        load_node("peer.tmol")


# Presets and channels


@pytest.mark.parametrize("preset", [name for name in PRESETS if not name.startswith("paper")])
def test_a_preset_is_what_the_files_own_keys_change(preset: str) -> None:
    config, _ = made(preset=preset, seed=99)
    expected = load_config(
        preset, ["users=5", "seed=99", "channel.kind=ideal", "compute.snapshot=start", "method.hub=round-robin"]
    )
    assert config == expected


def test_a_preset_may_be_a_file_and_another_kind_drops_its_keys(tmp_path: Path) -> None:
    (tmp_path / "base.toml").write_text(
        "duration_s = 77\n[channel]\npower_dbm = 20\n[topology]\nkind = 'k-out'\nk = 3\n"
    )
    config, _ = made(preset=str(tmp_path / "base.toml"), topology={"kind": "cycle"})
    assert (config.duration_s, config.channel.kind, config.topology.kind) == (77, "ideal", "cycle")


def test_keys_of_the_same_kind_are_added_to_those_of_the_preset(tmp_path: Path) -> None:
    (tmp_path / "base.toml").write_text("[channel]\npower_dbm = 20\n")
    config, _ = made(preset=str(tmp_path / "base.toml"), channel={"kind": "wireless", "interference": "nearby"})
    assert (config.channel.power_dbm, config.channel.interference) == (20, "nearby")


def test_a_preset_that_does_not_exist_is_told_among_the_other_problems() -> None:
    found = problems("node.user=-1", preset="pokre")
    assert len(found) == 2
    assert "did you mean poker?" in found[0]


@pytest.mark.parametrize("preset", [3, ["tiny"], {"users": 3}])
def test_a_preset_is_a_name(preset: object) -> None:
    (sentence,) = problems(preset=preset)
    assert sentence.startswith(f"preset = {preset!r} must be a text")


@pytest.mark.parametrize(
    ("overrides", "changes"),
    [
        ([], {"channel": "none"}),
        ([], {"channel": {"kind": "none"}}),
        ([], {"channel": "ideal"}),
        (["channel=none"], {"channel": {"kind": "wireless", "power_dbm": 20}}),
        (["channel.kind=none"], {"channel": "wireless"}),
        (["channel=none"], {"preset": "tiny", "channel": {"power_dbm": 20}}),
    ],
    ids=["a word", "a section", "its other name", "an override", "an override of the kind", "over a preset"],
)
def test_no_radio_can_be_said_in_every_way(overrides: list[str], changes: dict[str, Any]) -> None:
    config, _ = made(*overrides, **changes)
    assert config.channel.kind == "ideal"


@pytest.mark.parametrize("overrides", [["channel=wireless"], ["channel.kind=wireless"]])
def test_a_radio_can_be_said_in_a_word_too(overrides: list[str]) -> None:
    assert made(*overrides)[0].channel.kind == "wireless"
    assert made(channel="wireless")[0].channel.kind == "wireless"


def test_a_channel_that_does_not_exist_is_told() -> None:
    for found in (problems("channel=wirless"), problems(channel="wirless"), problems(channel={"kind": "wirless"})):
        assert "did you mean wireless?" in found[0]
