"""What each compared method is run with: who gets which override, and which seeds and samples are for what."""

from __future__ import annotations

import re

import pytest

from dracofl.config.load import load_config
from dracofl.config.schema import Config
from dracofl.errors import ConfigError
from dracofl.experiments.comparison import LITERAL, TUNING_SEEDS, Comparison, seeds_from

ALL = ("draco", LITERAL, "sync-symm", "sync-push", "async-symm", "async-push", "fedavg", "local")


def of(*methods: str, overrides: tuple[str, ...] = (), source: str = "tiny") -> Comparison:
    return Comparison(source, methods, (1, 2), overrides)


def by_method(comparison: Comparison) -> dict[str, Config]:
    comparison.configs()
    return {method: comparison.config(method, 1) for method in comparison.methods}


def complaint(comparison: Comparison) -> str:
    with pytest.raises(ConfigError) as caught:
        comparison.configs()
    return str(caught.value)


def test_without_overrides_they_differ_in_the_method_alone() -> None:
    configs = by_method(of(*ALL))
    for method, config in configs.items():
        assert config.method.kind == ("draco" if method == LITERAL else method)
        assert config.model_copy(update={"method": configs["draco"].method}) == configs["draco"]
    assert configs["draco"] == load_config("tiny", ["seed=1"])


def test_the_literal_draco_is_the_text_of_the_paper_word_for_word() -> None:
    configs = by_method(of("draco", LITERAL, source="poker"))
    paper = load_config("paper-poker").method
    default, literal = configs["draco"].method, configs[LITERAL].method
    assert (literal.weights, literal.own_weight, literal.hub) == ("delivered", 0.0, "random")
    assert (literal.weights, literal.own_weight, literal.hub) == (paper.weights, paper.own_weight, paper.hub)
    assert default == load_config("poker").method


def test_an_override_of_method_goes_to_all_that_have_the_key_and_to_no_other() -> None:
    overrides = ("method.psi=7", "method.gamma=0.3", "method.streams=2")
    configs = by_method(of(*ALL, overrides=overrides))
    plain = by_method(of(*ALL))
    assert configs["draco"].method.psi == configs[LITERAL].method.psi == 7
    assert configs["sync-symm"].method.gamma == 0.3
    assert configs["async-push"].method.streams == 2
    for method in ("sync-push", "async-symm", "fedavg", "local"):
        assert configs[method] == plain[method]


def test_an_override_of_one_method_goes_to_that_one_alone() -> None:
    overrides = ("draco.psi=7", "async-push.local_updates=3", f"{LITERAL}.hub=round-robin")
    configs = by_method(of(*ALL, overrides=overrides))
    plain = by_method(of(*ALL))
    assert configs["draco"].method == plain["draco"].method.model_copy(update={"psi": 7})
    assert configs[LITERAL].method == plain[LITERAL].method.model_copy(update={"hub": "round-robin"})
    assert configs["async-push"].method.local_updates == 3
    for method in ("sync-symm", "sync-push", "async-symm", "fedavg", "local"):
        assert configs[method] == plain[method]


def test_the_last_of_several_overrides_counts() -> None:
    configs = by_method(of("draco", LITERAL, overrides=("method.psi=7", "draco.psi=8", "method.period_s = 50")))
    assert (configs["draco"].method.psi, configs[LITERAL].method.psi) == (8, 7)
    assert configs["draco"].method.period_s == configs[LITERAL].method.period_s == 50.0


def test_other_overrides_go_to_all() -> None:
    configs = by_method(of(*ALL, overrides=("users=5", "train.step=0.125", "topology.kind=cycle")))
    assert {(one.users, one.train.step, one.topology.kind) for one in configs.values()} == {(5, 0.125, "cycle")}


def test_a_key_that_none_of_them_has_is_refused() -> None:
    assert complaint(of("local", "fedavg", overrides=("method.psi=7",))) == (
        "method.psi: none of local, fedavg has this key"
    )
    assert "method.psy: none of draco has this key" in complaint(of("draco", overrides=("method.psy=7",)))


def test_a_key_that_the_one_named_lacks_is_refused() -> None:
    assert re.search("psi.*sync-symm", complaint(of("draco", "sync-symm", overrides=("sync-symm.psi=7",))))
    assert "streams" in complaint(of("draco", LITERAL, overrides=(f"{LITERAL}.streams=7",)))


def test_a_key_of_a_method_that_is_not_compared_is_refused() -> None:
    assert complaint(of("draco", "local", overrides=("async-push.local_updates=3",))) == (
        "async-push.local_updates=3: async-push is not among the methods compared (draco, local)"
    )
    assert "draco is not among" in complaint(of(LITERAL, overrides=("draco.psi=3",)))


@pytest.mark.parametrize("override", ["method.kind=local", "draco.kind=local", f"{LITERAL}.kind=local"])
def test_the_method_itself_is_no_option(override: str) -> None:
    assert "name the methods with --methods" in complaint(of("draco", LITERAL, overrides=(override,)))


def test_the_seed_is_no_option() -> None:
    assert "--seeds" in complaint(of("draco", overrides=("seed=7",)))


@pytest.mark.parametrize(
    ("override", "fragment"),
    [
        ("draco", '"draco" must look like key=value'),
        ("local", '"local" must look like key=value'),
        ("method", '"method" must look like key=value'),
        ("method.", "must look like key=value"),
        ("method=local", "method"),
        ("draco.task.kind=quadratic", "task"),
        ("trian.step=1", "trian"),
        ("train.step=-1", "train.step = -1"),
    ],
)
def test_what_is_no_override_is_refused_as_in_a_run(override: str, fragment: str) -> None:
    assert fragment in complaint(of("draco", "local", overrides=(override,)))


def test_everything_wrong_is_said_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        Comparison("tiny", ("dracula", "local", "local"), ())
    assert len(caught.value.problems) == 3
    assert caught.value.problems[0] == f'"dracula" is not a method; choose from {", ".join(sorted_as_listed())}'
    assert "named twice" in caught.value.problems[1]
    assert "no seeds" in caught.value.problems[2]
    with pytest.raises(ConfigError, match="no methods to compare; choose from draco, sync-symm"):
        Comparison("tiny", (), (1,))


def sorted_as_listed() -> list[str]:
    return [method for method in ALL if method != LITERAL] + [LITERAL]


def test_seeds_that_options_are_chosen_with_are_never_reported() -> None:
    assert list(seeds_from(3)) == [1, 2, 3]
    assert not set(seeds_from(1000)) & set(TUNING_SEEDS)
    with pytest.raises(ConfigError, match="are for choosing options"):
        Comparison("tiny", ("draco",), (1, *TUNING_SEEDS))


def test_options_are_chosen_on_the_validation_split_and_reported_on_the_test_split() -> None:
    configs = of("draco", "local").configs()
    reported, chosen = configs[:4], configs[4:]
    assert {(config.seed, config.evaluate.split) for config in reported} == {(1, "test"), (2, "test")}
    assert {(config.seed, config.evaluate.split) for config in chosen} == {(1001, "validation")}
    assert {config.duration_s for config in reported} == {400.0}
    assert {config.duration_s for config in chosen} == {200.0}
