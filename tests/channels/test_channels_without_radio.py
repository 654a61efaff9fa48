"""The channels for tests and for people without radios, against what they say of themselves."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from dracofl import rng
from dracofl.channels.exponential import Exponential
from dracofl.channels.ideal import Ideal
from dracofl.channels.interface import Delivery, Medium
from dracofl.channels.lossy import Lossy
from dracofl.errors import ConfigError
from dracofl.types import Fate

DRAWS = 10_000
THREE = np.zeros((3, 2))


def sample(medium: Medium, sender: int = 0, receiver: int = 1, content: str = "update") -> list[Delivery]:
    return [medium.transmit(content, sender, index, (receiver,), 100, 0.0).deliveries[0] for index in range(DRAWS)]


def is_exponential(delays_s: list[float], rate: float) -> bool:
    return bool(stats.kstest(delays_s, "expon", args=(0.0, 1.0 / rate)).pvalue > 1e-3)


def within_four_standard_errors(share: float, chance: float) -> bool:
    return abs(share - chance) <= 4.0 * math.sqrt(chance * (1.0 - chance) / DRAWS)


# Ideal


@pytest.mark.parametrize("content", ["update", "model"])
def test_the_ideal_channel_delivers_everything_at_once(content: str) -> None:
    medium = Ideal().open(0, THREE)
    for index in range(100):
        assert medium.transmit(content, 0, index, (1, 2), 10**9, 5.0) == (0.0, [(0.0, None, "")] * 2)


# Exponential


@pytest.mark.parametrize("rate", [0.05, 1.0, 40.0])
@pytest.mark.parametrize("content", ["update", "model"])
def test_delays_are_exponential_with_the_rate_asked(rate: float, content: str) -> None:
    medium = Exponential(rate=rate, rates=None, deadline_s=None).open(1, THREE)
    found = sample(medium, content=content)
    assert all(one.fate is None for one in found)
    assert is_exponential([one.delay_s for one in found], rate)


def test_delays_of_different_links_are_exponential_together() -> None:
    users = 60
    medium = Exponential(rate=2.0, rates=None, deadline_s=None).open(1, np.zeros((users, 2)))
    delays_s = []
    for sender in range(users):
        others = tuple(user for user in range(users) if user != sender)
        delays_s += [one.delay_s for one in medium.transmit("update", sender, 0, others, 100, 0.0).deliveries]
    assert is_exponential(delays_s, 2.0)


def test_the_payload_does_not_change_the_delay() -> None:
    medium = Exponential(rate=2.0, rates=None, deadline_s=None).open(1, THREE)
    assert medium.transmit("update", 0, 3, (1,), 1, 0.0) == medium.transmit("update", 0, 3, (1,), 10**9, 0.0)


def test_each_link_has_its_own_rate_row_by_sender() -> None:
    rates = ((9.0, 0.5, 3.0), (20.0, 9.0, 0.1), (1.0, 7.0, 9.0))
    medium = Exponential(rate=1e9, rates=rates, deadline_s=None).open(1, THREE)
    for sender in range(3):
        for receiver in {0, 1, 2} - {sender}:
            delays_s = [one.delay_s for one in sample(medium, sender, receiver)]
            assert is_exponential(delays_s, rates[sender][receiver])


def test_rates_scale_the_same_luck() -> None:
    slow = Exponential(rate=0.5, rates=None, deadline_s=None).open(1, THREE)
    fast = Exponential(rate=1.0, rates=((4.0,) * 3,) * 3, deadline_s=None).open(1, THREE)
    for one, other in zip(sample(slow)[:100], sample(fast)[:100], strict=True):
        assert one.delay_s == 8.0 * other.delay_s


@pytest.mark.parametrize("chance", [0.1, 0.3, 0.5, 0.7, 0.9])
@pytest.mark.parametrize("rate", [0.2, 5.0])
def test_the_share_of_late_messages_is_the_tail_of_the_exponential(chance: float, rate: float) -> None:
    deadline_s = -math.log(chance) / rate
    found = sample(Exponential(rate=rate, rates=None, deadline_s=deadline_s).open(1, THREE))
    assert {one.fate for one in found} == {None, Fate.LATE}
    assert within_four_standard_errors(
        [one.fate for one in found].count(Fate.LATE) / DRAWS, math.exp(-rate * deadline_s)
    )


def test_a_message_is_late_exactly_when_it_would_take_the_deadline_or_longer() -> None:
    takes_s = Exponential(rate=2.0, rates=None, deadline_s=None).open(1, THREE)
    for index in range(50):
        ((delay_s, _, _),) = takes_s.transmit("update", 0, index, (1,), 100, 0.0).deliveries
        for deadline_s, arrives in [(delay_s, False), (math.nextafter(delay_s, math.inf), True)]:
            medium = Exponential(rate=2.0, rates=None, deadline_s=deadline_s).open(1, THREE)
            sent = medium.transmit("update", 0, index, (1,), 100, 0.0)
            assert sent == (
                (delay_s, [(delay_s, None, "")]) if arrives else (deadline_s, [(deadline_s, Fate.LATE, "")])
            )


@pytest.mark.parametrize(
    "rates",
    [
        (),
        ((1.0, 1.0), (1.0, 1.0)),
        ((1.0, 1.0, 1.0), (1.0, 1.0, 1.0)),
        ((1.0, 1.0, 1.0), (1.0, 1.0), (1.0, 1.0, 1.0)),
        ((1.0,) * 4,) * 3,
        ((1.0,) * 4,) * 4,
    ],
)
def test_a_table_of_rates_of_the_wrong_shape_is_refused(rates: tuple[tuple[float, ...], ...]) -> None:
    with pytest.raises(ConfigError) as caught:
        Exponential(rate=1.0, rates=rates, deadline_s=None).open(1, THREE)
    assert caught.value.problems == ("channel.rates must be a 3 x 3 table of rates, one row a sender",)


# Lossy


@pytest.mark.parametrize("loss", [0.0, 0.01, 0.3, 0.5, 0.9, 1.0])
@pytest.mark.parametrize("content", ["update", "model"])
def test_the_share_of_losses_is_the_one_asked(loss: float, content: str) -> None:
    found = sample(Lossy(loss=loss, delay_s=0.0).open(1, THREE), content=content)
    assert within_four_standard_errors(sum(one.fate is Fate.LOST for one in found) / DRAWS, loss)


def test_losses_follow_each_other_by_chance() -> None:
    """As many pairs of losses in a row as independence gives, on one link and across two."""
    medium = Lossy(loss=0.3, delay_s=0.0).open(1, THREE)
    here, there = ([one.fate is Fate.LOST for one in sample(medium, 0, receiver)] for receiver in (1, 2))
    for one, other in [(here[:-1], here[1:]), (here, there)]:
        assert abs(np.corrcoef(one, other)[0, 1]) < 4.0 / math.sqrt(DRAWS)


def test_nothing_is_lost_without_loss_not_even_on_the_smallest_draw() -> None:
    golden_ratio = 0x9E3779B97F4A7C15
    key = rng.stream(1, "loss-update", 0, 1)
    index = (-key * pow(golden_ratio, -1, 2**64) - 1) % 2**64
    assert rng.uniform(key, index) == 0.0
    medium = Lossy(loss=0.0, delay_s=2.0).open(1, THREE)
    assert medium.transmit("update", 0, index, (1,), 100, 0.0) == (2.0, [(2.0, None, "")])


@pytest.mark.parametrize("delay_s", [0.0, 2.5])
def test_what_is_not_lost_takes_a_fixed_time_and_what_is_says_why(delay_s: float) -> None:
    found = sample(Lossy(loss=0.5, delay_s=delay_s).open(1, THREE))
    assert set(found) == {(delay_s, None, ""), (delay_s, Fate.LOST, "random loss")}


def test_a_higher_loss_loses_the_same_messages_and_more() -> None:
    few, many = (
        [one.fate is Fate.LOST for one in sample(Lossy(loss=loss, delay_s=0.0).open(1, THREE))] for loss in (0.2, 0.6)
    )
    assert all(lost_of_many for lost_of_few, lost_of_many in zip(few, many, strict=True) if lost_of_few)
