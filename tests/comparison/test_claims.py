"""How the paper's claims are judged: by intervals made by hand, and by runs made by hand."""

from __future__ import annotations

import math

import pytest
from small_comparisons import StubRun

from dracofl.experiments.claims import (
    ALIKE,
    FAILS,
    HOLDS,
    OTHERS,
    SMALL_SPREAD,
    UNDECIDED,
    Claim,
    above,
    alike,
    all_of,
    below,
    claims_page,
    judge,
    mean_over_time,
    oscillation,
)
from dracofl.experiments.comparison import LITERAL
from dracofl.experiments.reproduce import FRACTIONS
from dracofl.experiments.statistics import Interval


def around(low: float, high: float) -> Interval:
    return Interval((low + high) / 2, (high - low) / 2, 5)


ONE_SEED = Interval(0.5, None, 1)


@pytest.mark.parametrize(
    ("difference", "verdict"),
    [
        (around(0.125, 0.5), HOLDS),
        (around(-0.5, -0.125), FAILS),
        (around(-0.25, 0.5), UNDECIDED),
        (around(0.0, 0.5), UNDECIDED),
        (around(-0.5, 0.0), UNDECIDED),
        (around(0.0, 0.0), UNDECIDED),
        (around(0.125, 0.125), HOLDS),
        (ONE_SEED, UNDECIDED),
        (None, UNDECIDED),
    ],
)
def test_above_means_that_the_whole_interval_is(difference: Interval | None, verdict: str) -> None:
    assert above(difference) == verdict


@pytest.mark.parametrize(
    ("difference", "verdict"),
    [
        (around(-0.01, 0.015), HOLDS),
        (around(0.03, 0.05), FAILS),
        (around(-0.05, -0.03), FAILS),
        (around(-0.05, 0.05), UNDECIDED),
        (around(0.01, 0.05), UNDECIDED),
        (Interval(0.0, ALIKE, 5), UNDECIDED),
        (Interval(0.0, math.nextafter(ALIKE, 0.0), 5), HOLDS),
        (Interval(ALIKE, 0.0, 5), UNDECIDED),
        (ONE_SEED, UNDECIDED),
        (None, UNDECIDED),
    ],
)
def test_alike_means_that_the_whole_interval_is_within_two_points(difference: Interval | None, verdict: str) -> None:
    assert alike(difference) == verdict


@pytest.mark.parametrize(
    ("measured", "verdict"),
    [
        (around(0.001, 0.01), HOLDS),
        (around(0.03, 0.04), FAILS),
        (around(0.01, 0.03), UNDECIDED),
        (Interval(SMALL_SPREAD, 0.0, 5), UNDECIDED),
        (Interval(0.001, None, 1), UNDECIDED),
        (None, UNDECIDED),
    ],
)
def test_below_means_that_the_whole_interval_is(measured: Interval | None, verdict: str) -> None:
    assert below(SMALL_SPREAD, measured) == verdict


@pytest.mark.parametrize(
    ("verdicts", "together"),
    [
        ([HOLDS, HOLDS], HOLDS),
        ([HOLDS, UNDECIDED], UNDECIDED),
        ([HOLDS, UNDECIDED, FAILS], FAILS),
        ([UNDECIDED], UNDECIDED),
        ([], UNDECIDED),
    ],
)
def test_a_claim_about_several_holds_if_it_does_for_all(verdicts: list[str], together: str) -> None:
    assert all_of(verdicts) == together


# Curves


def test_oscillation_is_the_mean_change_in_the_second_half_but_for_the_last_evaluation() -> None:
    assert oscillation(StubRun([0.0, 0.9, 0.0, 0.5, 0.75, 0.5, 0.0])) == pytest.approx(0.25)
    assert oscillation(StubRun([0.0, 0.1, 0.2, 0.5, 0.5, 0.5, 0.9])) == 0.0
    # Of the users' mean: two who swing against each other make a calm network.
    assert oscillation(StubRun([[0.0, 0.0], [0.2, 0.8], [0.8, 0.2], [0.2, 0.8], [0.5, 0.5]])) == pytest.approx(0.0)


def test_too_short_or_diverged_there_is_no_oscillation() -> None:
    assert oscillation(StubRun([0.1, 0.2])) is None
    assert oscillation(StubRun([0.0, 0.9, 0.0, 0.5, 0.75, 0.5, 0.0], diverged=True)) is None


def test_the_mean_over_time_is_the_area_under_the_curve() -> None:
    assert mean_over_time(StubRun([0.0, 1.0, 1.0])) == pytest.approx(0.75)
    assert mean_over_time(StubRun([[0.2, 0.4], [0.2, 0.4]])) == pytest.approx(0.3)
    assert mean_over_time(StubRun([0.0, 1.0, 1.0], diverged=True)) is None


# The claims


def rising(end: float, spread: float = 0.0, slow: bool = False) -> StubRun:
    """To this accuracy, with two users this far from the mean at the end."""
    early = [end / 4, end / 2, 3 * end / 4] if slow else [end, end, end]
    return StubRun([[value, value] for value in (0.0, *early)] + [[end - spread, end + spread]])


def two(*ends: float, **how: float | bool) -> list[StubRun]:
    return [rising(end, **how) for end in ends]


def comparison(**changed: list[StubRun]) -> dict[str, list[StubRun]]:
    """DRACO at 0.8, the literal one at 0.6, the others at 0.7, and slower; the second seed is a little luckier."""
    runs = {"draco": two(0.8, 0.81), LITERAL: two(0.6, 0.61)}
    runs |= {method: two(0.7, 0.71, slow=True) for method in OTHERS}
    return runs | {name.replace("_", "-"): several for name, several in changed.items()}


def verdicts(claims: list[Claim]) -> dict[tuple[str, str], str]:
    return {(claim.about, claim.text): claim.verdict for claim in claims}


def test_the_claims_about_the_complete_graph() -> None:
    claims = judge({"fig3b": comparison()})
    assert verdicts(claims) == {
        ("draco", "DRACO ends best in accuracy"): HOLDS,
        ("draco", "DRACO ends best in F1"): HOLDS,
        ("draco", "all methods end alike"): FAILS,
        ("draco", "DRACO is first to get there"): HOLDS,
        ("draco", "the spread over users is small (below 0.02)"): HOLDS,
        (LITERAL, "DRACO ends best in accuracy"): FAILS,
        (LITERAL, "DRACO ends best in F1"): FAILS,
        (LITERAL, "all methods end alike"): FAILS,
        (LITERAL, "DRACO is first to get there"): HOLDS,
        (LITERAL, "the spread over users is small (below 0.02)"): HOLDS,
    }
    assert {(claim.figure, claim.seeds) for claim in claims} == {("fig3b", 2)}
    ends = next(claim.measured for claim in claims if claim.text == "DRACO ends best in accuracy")
    assert ends.startswith("sync-symm 0.1 ± ")
    assert all(method in ends for method in OTHERS)
    first = next(claim.measured for claim in claims if claim.text == "DRACO is first to get there")
    assert first.startswith("seconds later to 0.7: sync-symm 30 ± 0")


def test_the_claims_about_the_cycle() -> None:
    found = verdicts(judge({"fig3a": comparison(async_push=two(0.75, 0.76), draco=two(0.8, 0.81, spread=0.1))}))
    assert found["baselines", "the two synchronous methods are alike"] == HOLDS
    assert found["baselines", "async-symm is below async-push"] == HOLDS
    assert found["draco", "the spread over users is small (below 0.02)"] == FAILS
    assert {text for about, text in found if about == "draco"} == {text for about, text in found if about == LITERAL}
    found = verdicts(judge({"fig3a": comparison(sync_push=two(0.9, 0.91), async_push=two(0.6, 0.61))}))
    assert found["baselines", "the two synchronous methods are alike"] == FAILS
    assert found["baselines", "async-symm is below async-push"] == FAILS


def test_one_seed_decides_nothing() -> None:
    claims = judge({name: {method: runs[:1] for method, runs in comparison().items()} for name in ("fig3a", "fig3b")})
    assert {claim.verdict for claim in claims} == {UNDECIDED}


def test_the_same_difference_with_every_seed_decides_whatever_the_seeds_do() -> None:
    lucky = {method: two(end, end - 0.3) for method, end in (("draco", 0.8), (LITERAL, 0.8))}
    found = verdicts(judge({"fig3b": lucky | {method: two(0.7, 0.4) for method in OTHERS}}))
    assert found["draco", "DRACO ends best in accuracy"] == HOLDS


def test_what_diverged_has_no_number_and_decides_nothing() -> None:
    """Not even by the accuracy it had before."""
    broken = [rising(0.1), StubRun([0.1, 0.1, 0.1], diverged=True)]
    claims = judge({"fig3a": comparison(draco=broken), "fig3b": comparison(draco=broken)})
    about = [claim for claim in claims if claim.about == "draco"]
    assert about
    assert {claim.verdict for claim in about} == {UNDECIDED}
    assert all("no number" in claim.measured for claim in about)
    assert all("None" not in claim.measured for claim in claims)
    found = verdicts(claims)
    assert found[LITERAL, "DRACO ends best in accuracy"] == FAILS


def test_another_method_that_diverged_leaves_the_numbers_of_the_rest() -> None:
    broken = [StubRun([0.0, 0.9], diverged=True)] * 2
    claims = judge({"fig3b": comparison(async_symm=broken)})
    found = {claim.text: claim for claim in claims if claim.about == "draco"}
    assert found["DRACO ends best in accuracy"].verdict == UNDECIDED
    assert "async-symm no number" in found["DRACO ends best in accuracy"].measured
    assert found["DRACO is first to get there"].measured.startswith("seconds later to 0.7: sync-symm 30 ± 0")
    assert found["all methods end alike"].verdict == FAILS  # the others suffice for that


def test_if_all_diverged_there_is_still_a_page() -> None:
    broken = [StubRun([0.0, 0.9], diverged=True)] * 2
    figures = {"fig3a": dict.fromkeys(comparison(), broken), "fig4a": dict.fromkeys(sweep(), broken)}
    claims = judge(figures)
    assert {claim.verdict for claim in claims} == {UNDECIDED}
    assert "None" not in claims_page(claims, [], {})


def sweep() -> dict[str, list[StubRun]]:
    """Starved it is slow; without a limit it swings; the literal one does neither."""
    calm, slow = two(0.8, 0.81), two(0.8, 0.81, slow=True)
    swinging = [StubRun([0.0, end, end, 0.3, end, 0.3, end, 0.3, end]) for end in (0.8, 0.81)]
    runs = {f"draco psi {fraction}": calm for fraction in FRACTIONS}
    runs |= {f"{LITERAL} psi {fraction}": calm for fraction in FRACTIONS}
    return runs | {"draco psi none": swinging, "draco psi 0.02": slow}


def test_the_claims_about_the_budget() -> None:
    claims = judge({"fig4b": sweep()})
    assert verdicts(claims) == {
        ("draco", "a large Psi makes the curves oscillate"): HOLDS,
        ("draco", "a very small Psi makes learning slow"): HOLDS,
        (LITERAL, "a large Psi makes the curves oscillate"): UNDECIDED,
        (LITERAL, "a very small Psi makes learning slow"): UNDECIDED,
    }


def test_the_page_lists_every_claim_for_both_dracos() -> None:
    claims = judge({"fig3a": comparison(), "fig3b": comparison(), "fig4a": sweep(), "fig4b": sweep()})
    page = claims_page(claims, ["- fig3a: as it was made"], {"fig3a": ["a.png"], "fig4a": ["b.png", "c.png"]})
    rows = [line for line in page.splitlines() if line.startswith(("| fig3", "| fig4"))]
    assert len(rows) == len(claims) == 2 + 2 * 3 + 2 * 5 + 4 + 4
    for draco in ("draco", LITERAL):
        mine = [row for row in rows if f"| {draco} |" in row]
        for words in ("best in accuracy", "best in F1", "spread over users"):
            assert [row.split(" | ")[0] for row in mine if words in row] == ["| fig3a", "| fig3b"]
        for words in ("oscillate", "very small Psi"):
            assert [row.split(" | ")[0] for row in mine if words in row] == ["| fig4a", "| fig4b"]
        assert len([row for row in mine if "end alike" in row or "first to get there" in row]) == 2
    assert all(row.count("|") == 7 for row in rows)
    assert "- fig3a: as it was made" in page
    assert "![b.png](b.png)" in page


def test_without_figures_there_are_no_claims() -> None:
    assert judge({}) == []
