"""The radio against closed forms. With S = P d^-alpha, theta = 2^(bits / (W (t - d/c))) - 1 and Rayleigh fading,

    P(Gamma < t) = exp(-theta z^2 / S)                                                without interference,
    P(Gamma < t) = E over g ~ Exp(1) of exp(-theta (z^2 + S_n g) / S)                 with one interferer of mean S_n.

Written out here from the paper's figures alone: nothing is taken from the channel. Seeds are fixed.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy import integrate, optimize, stats

from dracofl.channels.wireless import Wireless

POWER_W = 1.0
NOISE_W_PER_HZ = 10.0**-20.4
BANDWIDTH_HZ = 10e6
LIGHT_M_PER_S = 299_792_458.0
BYTES = 51_640
DRAWS = 4000
CHANCES = [0.1, 0.3, 0.5, 0.7, 0.9]

every_chance = pytest.mark.parametrize("chance", CHANCES)


def radio(**changes: Any) -> Wireless:
    paper: dict[str, Any] = {
        "deadline_s": 10.0,
        "interference": "none",
        "interference_radius_m": 1000.0,
        "bandwidth": "each",
        "bandwidth_hz": BANDWIDTH_HZ,
        "power_dbm": 30.0,
        "path_loss_exponent": 4.0,
        "noise_dbm_per_hz": -174.0,
    }
    return Wireless(**{**paper, **changes})


def received_w(distance_m: float, exponent: float = 4.0) -> float:
    return POWER_W * distance_m**-exponent


def needed_sinr(
    deadline_s: float, distance_m: float, payload_bytes: int = BYTES, bandwidth_hz: float = BANDWIDTH_HZ
) -> Any:
    """theta: the ratio that a message needs to arrive just by the deadline."""
    return np.exp2(8.0 * payload_bytes / (bandwidth_hz * (deadline_s - distance_m / LIGHT_M_PER_S))) - 1.0


def deadline_for(theta: float, distance_m: float, bandwidth_hz: float = BANDWIDTH_HZ) -> float:
    return 8.0 * BYTES / (bandwidth_hz * math.log2(1.0 + theta)) + distance_m / LIGHT_M_PER_S


def share_delivered(channel: Wireless, positions: list[tuple[float, float]], payload_bytes: int = BYTES) -> float:
    """Of the messages that user 0 sends to user 1."""
    medium = channel.open(2024, np.array(positions, dtype=np.float64))
    sent = [medium.transmit("update", 0, index, (1,), payload_bytes, 0.0) for index in range(DRAWS)]
    return sum(one.deliveries[0].fate is None for one in sent) / DRAWS


def within_four_standard_errors(share: float, chance: float) -> bool:
    return abs(share - chance) < 4.0 * math.sqrt(chance * (1.0 - chance) / DRAWS)


# Without interference


@every_chance
@pytest.mark.parametrize("distance_m", [1.0, 50.0, 500.0, 3000.0])
@pytest.mark.parametrize(("bandwidth", "users"), [("each", 2), ("shared", 2), ("shared", 25)])
def test_the_chance_of_delivery_at_a_distance(chance: float, distance_m: float, bandwidth: str, users: int) -> None:
    """The deadline is chosen so that the chance is the one asked for."""
    bandwidth_hz = BANDWIDTH_HZ if bandwidth == "each" else BANDWIDTH_HZ / users
    theta = -math.log(chance) * received_w(distance_m) / (NOISE_W_PER_HZ * bandwidth_hz)
    channel = radio(bandwidth=bandwidth, deadline_s=deadline_for(theta, distance_m, bandwidth_hz))
    bystanders = [(0.0, 7.0)] * (users - 2)
    share = share_delivered(channel, [(0.0, 0.0), (distance_m, 0.0), *bystanders])
    assert within_four_standard_errors(share, chance)


@every_chance
@pytest.mark.parametrize("deadline_s", [0.004, 0.02, 1.0, 10.0])
@pytest.mark.parametrize("exponent", [3.0, 4.0])
def test_the_chance_of_delivery_by_a_deadline(chance: float, deadline_s: float, exponent: float) -> None:
    """The distance is chosen so that the chance is the one asked for."""
    noise_w = NOISE_W_PER_HZ * BANDWIDTH_HZ

    def expected(distance_m: float) -> float:
        return math.exp(-needed_sinr(deadline_s, distance_m) * noise_w / received_w(distance_m, exponent))

    distance_m = optimize.brentq(lambda one: expected(one) - chance, 1.0, deadline_s * LIGHT_M_PER_S / 10.0)
    channel = radio(deadline_s=deadline_s, path_loss_exponent=exponent)
    share = share_delivered(channel, [(0.0, 0.0), (0.0, distance_m)])
    assert within_four_standard_errors(share, expected(distance_m))
    assert expected(distance_m) == pytest.approx(chance)


@every_chance
@pytest.mark.parametrize(("distance_m", "deadline_s"), [(400.0, 0.01), (2000.0, 0.1)])
def test_the_chance_of_delivery_of_a_payload(chance: float, distance_m: float, deadline_s: float) -> None:
    """The payload is chosen so that the chance is the one asked for, up to a byte."""
    noise_w = NOISE_W_PER_HZ * BANDWIDTH_HZ
    theta = -math.log(chance) * received_w(distance_m) / noise_w
    payload_bytes = round(BANDWIDTH_HZ * (deadline_s - distance_m / LIGHT_M_PER_S) * math.log2(1.0 + theta) / 8.0)
    expected = math.exp(-needed_sinr(deadline_s, distance_m, payload_bytes) * noise_w / received_w(distance_m))
    assert expected == pytest.approx(chance, abs=1e-2)
    share = share_delivered(radio(deadline_s=deadline_s), [(0.0, 0.0), (distance_m, 0.0)], payload_bytes)
    assert within_four_standard_errors(share, expected)


@pytest.mark.parametrize("distance_m", [1.0, 100.0, 500.0, 4000.0, 3e5])
@pytest.mark.parametrize("bandwidth_hz", [10e6, 0.4e6])
def test_the_whole_distribution_of_the_delay(distance_m: float, bandwidth_hz: float) -> None:
    channel = radio(deadline_s=1e300, bandwidth_hz=bandwidth_hz)
    medium = channel.open(7, np.array([[0.0, 0.0], [distance_m, 0.0]]))
    sample = [medium.transmit("update", 0, index, (1,), BYTES, 0.0).airtime_s for index in range(DRAWS)]

    def expected(delay_s: np.ndarray) -> np.ndarray:
        theta = needed_sinr(delay_s, distance_m, bandwidth_hz=bandwidth_hz)
        return np.exp(-theta * NOISE_W_PER_HZ * bandwidth_hz / received_w(distance_m))

    assert stats.kstest(sample, expected).pvalue > 1e-3


@pytest.mark.parametrize("chance", [0.3, 0.7])
def test_the_chance_is_the_same_for_every_seed_and_link(chance: float) -> None:
    """One message on each of many links of equal length, instead of many messages on one."""
    theta = -math.log(chance) * received_w(500.0) / (NOISE_W_PER_HZ * BANDWIDTH_HZ)
    angles = 2.0 * math.pi * np.arange(40) / 40
    circle = 500.0 * np.column_stack([np.cos(angles), np.sin(angles)])
    everybody = tuple(range(1, 41))
    arrived = []
    for seed in range(DRAWS // 40):
        medium = radio(deadline_s=deadline_for(theta, 500.0)).open(seed, np.vstack([(0.0, 0.0), circle]))
        arrived += [one.fate is None for one in medium.transmit("update", 0, 0, everybody, BYTES, 0.0).deliveries]
    assert within_four_standard_errors(np.mean(arrived), chance)


# With interferers


def chance_despite(theta: float, signal_m: float, interferers_m: list[float]) -> float:
    """By integrating over the fading of each interferer; they are independent, so the integrals multiply."""
    signal_w = received_w(signal_m)
    result = math.exp(-theta * NOISE_W_PER_HZ * BANDWIDTH_HZ / signal_w)
    for distance_m in interferers_m:
        strength = theta * received_w(distance_m) / signal_w
        result *= integrate.quad(lambda gain, strength=strength: math.exp(-gain - strength * gain), 0.0, math.inf)[0]
    return result


def theta_for(chance: float, signal_m: float, interferers_m: list[float]) -> float:
    exponent = optimize.brentq(
        lambda one: chance_despite(math.exp(one), signal_m, interferers_m) - chance, math.log(1e-7), math.log(1e9)
    )
    return math.exp(exponent)


@every_chance
@pytest.mark.parametrize(("signal_m", "interferer_m"), [(400.0, 40.0), (400.0, 300.0), (300.0, 700.0), (60.0, 45.0)])
def test_the_chance_of_delivery_despite_one_interferer(chance: float, signal_m: float, interferer_m: float) -> None:
    theta = theta_for(chance, signal_m, [interferer_m])
    assert chance_despite(theta, signal_m, [interferer_m]) == pytest.approx(
        math.exp(-theta * NOISE_W_PER_HZ * BANDWIDTH_HZ / received_w(signal_m))
        / (1.0 + theta * (signal_m / interferer_m) ** 4)
    )
    channel = radio(interference="nearby", deadline_s=deadline_for(theta, signal_m))
    share = share_delivered(channel, [(0.0, 0.0), (signal_m, 0.0), (signal_m, interferer_m)])
    assert within_four_standard_errors(share, chance)


@every_chance
def test_the_chance_of_delivery_despite_several_interferers(chance: float) -> None:
    distances_m = [250.0, 300.0, 500.0]
    theta = theta_for(chance, 400.0, distances_m)
    places = [(400.0, 250.0), (400.0, -300.0), (900.0, 0.0)]
    channel = radio(interference="nearby", deadline_s=deadline_for(theta, 400.0))
    share = share_delivered(channel, [(0.0, 0.0), (400.0, 0.0), *places])
    assert within_four_standard_errors(share, chance)


@every_chance
def test_the_chance_of_delivery_despite_one_interferer_on_the_air(chance: float) -> None:
    """Three stand near the receiver; one of them is on the air."""
    theta = theta_for(chance, 400.0, [300.0])
    positions = np.array([(0.0, 0.0), (400.0, 0.0), (400.0, -20.0), (400.0, 300.0), (410.0, 0.0)])
    channel = radio(interference="concurrent", deadline_s=deadline_for(theta, 400.0))
    medium = channel.open(2024, positions)
    medium.state.on_air_until_s[3] = 1.0
    sent = [medium.transmit("update", 0, index, (1,), BYTES, 0.5) for index in range(DRAWS)]
    share = sum(one.deliveries[0].fate is None for one in sent) / DRAWS
    assert within_four_standard_errors(share, chance)


def test_the_whole_distribution_of_the_delay_despite_one_interferer() -> None:
    positions = np.array([(0.0, 0.0), (400.0, 0.0), (400.0, 300.0)])
    medium = radio(interference="nearby", deadline_s=1e300).open(7, positions)
    sample = [medium.transmit("update", 0, index, (1,), BYTES, 0.0).airtime_s for index in range(DRAWS)]

    def expected(delay_s: np.ndarray) -> np.ndarray:
        return np.array([chance_despite(theta, 400.0, [300.0]) for theta in needed_sinr(delay_s, 400.0)])

    assert stats.kstest(sample, expected).pvalue > 1e-3
