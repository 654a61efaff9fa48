"""The radio, link by link: path loss, who interferes with whom and when, the deadline, the airtime, and whose luck.

A delay tells the signal-to-interference-and-noise ratio behind it (`sinr` turns the formula of Gamma around), so most
of these tests are exact: the draws cancel.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
from typing import Any

import numpy as np
import pytest
from pydantic import TypeAdapter

from dracofl import rng
from dracofl.channels.wireless import Wireless, WirelessMedium, WirelessState, dbm_to_watt
from dracofl.config.schema import WirelessChannel
from dracofl.types import Fate

LIGHT_M_PER_S = 299_792_458.0
BYTES = 51_640
EVER_S = 1e15  # a deadline that no draw below misses
SEED = 11


def radio(**changes: Any) -> Wireless:
    """The paper's figures, without interference and without a deadline that matters unless asked for."""
    paper: dict[str, Any] = {
        "deadline_s": EVER_S,
        "interference": "none",
        "interference_radius_m": 50.0,
        "bandwidth": "each",
        "bandwidth_hz": 10e6,
        "power_dbm": 30.0,
        "path_loss_exponent": 4.0,
        "noise_dbm_per_hz": -174.0,
    }
    return Wireless(**{**paper, **changes})


def standing(*places: tuple[float, float]) -> np.ndarray:
    return np.array(places, dtype=np.float64)


def delay(medium: WirelessMedium, sender: int, receiver: int, index: int = 0, now_s: float = 0.0) -> float:
    """How long a message takes; infinite if it is late."""
    return medium.transmit("update", sender, index, (receiver,), BYTES, now_s).deliveries[0].delay_s


def delays(channel: Wireless, positions: np.ndarray, count: int = 20, seed: int = SEED) -> list[float]:
    """Of the first messages from user 0 to user 1."""
    medium = channel.open(seed, positions)
    return [delay(medium, 0, 1, index) for index in range(count)]


def sinr(delay_s: float, distance_m: float, bandwidth_hz: float = 10e6) -> float:
    return math.expm1(8.0 * BYTES * math.log(2.0) / (bandwidth_hz * (delay_s - distance_m / LIGHT_M_PER_S)))


# Figures


def test_the_defaults_of_the_configuration_are_the_papers() -> None:
    options = WirelessChannel().model_dump(exclude={"kind", "message_bytes"})
    assert options.pop("interference_radius_m") is None  # a tenth of the disc
    assert Wireless(**options, interference_radius_m=50.0) == radio(deadline_s=10.0, interference="nearby")


def test_powers_are_converted_from_decibels() -> None:
    assert dbm_to_watt(30.0) == pytest.approx(1.0)
    assert dbm_to_watt(0.0) == pytest.approx(1e-3)
    assert dbm_to_watt(33.0) == pytest.approx(1.99526, rel=1e-5)
    assert dbm_to_watt(-174.0) * 10e6 == pytest.approx(3.98e-14, rel=1e-3)


def test_the_noise_in_the_air_is_that_of_the_paper() -> None:
    """The mean of SNR = P h d^-4 / z^2 over many h ~ Exp(1) shows z^2."""
    count, distance_m = 40_000, 200.0
    ratios = [sinr(one, distance_m) for one in delays(radio(), standing((0, 0), (distance_m, 0)), count)]
    noise_w = 1.0 * distance_m**-4 / np.mean(ratios)
    assert noise_w == pytest.approx(3.98e-14, rel=4.0 / math.sqrt(count))


# Path loss


@pytest.mark.parametrize("exponent", [2.0, 3.5, 4.0])
@pytest.mark.parametrize(("near_m", "far_m"), [(1.0, 2.0), (30.0, 60.0), (100.0, 450.0)])
def test_the_signal_falls_with_a_power_of_the_distance(exponent: float, near_m: float, far_m: float) -> None:
    channel = radio(path_loss_exponent=exponent)
    near = delays(channel, standing((0, 0), (near_m, 0)))
    far = delays(channel, standing((0, 0), (0, far_m)))
    for near_s, far_s in zip(near, far, strict=True):
        assert sinr(near_s, near_m) / sinr(far_s, far_m) == pytest.approx((far_m / near_m) ** exponent, rel=1e-6)


@pytest.mark.parametrize("distance_m", [0.0, 1e-9, 0.5, 0.999])
def test_distances_below_a_metre_count_as_one(distance_m: float) -> None:
    nearly_touching = delays(radio(), standing((3, 3), (3 + distance_m, 3)))
    at_a_metre = delays(radio(), standing((3, 3), (4, 3)))
    assert nearly_touching == pytest.approx(at_a_metre, abs=2.0 / LIGHT_M_PER_S)


def test_an_interferer_closer_than_a_metre_counts_as_at_one() -> None:
    channel = radio(interference="nearby")
    assert delays(channel, standing((0, 0), (300, 0), (300, 0.01))) == delays(
        channel, standing((0, 0), (300, 0), (300, 1))
    )


def test_more_power_is_more_signal() -> None:
    for weak, strong in zip(
        delays(radio(power_dbm=20.0), standing((0, 0), (300, 0))),
        delays(radio(power_dbm=30.0), standing((0, 0), (300, 0))),
        strict=True,
    ):
        assert sinr(strong, 300.0) / sinr(weak, 300.0) == pytest.approx(10.0, rel=1e-6)


def test_the_time_on_the_way_counts() -> None:
    """An enormous power leaves nearly nothing but the propagation."""
    far_m = 3e8
    (one,) = delays(radio(power_dbm=3000.0, bandwidth_hz=1e15), standing((0, 0), (far_m, 0)), count=1)
    assert one == pytest.approx(far_m / LIGHT_M_PER_S, rel=1e-6)


def test_the_delay_is_proportional_to_the_payload() -> None:
    medium = radio().open(SEED, standing((0, 0), (0.001, 0)))
    small, large = (medium.transmit("update", 0, 4, (1,), size, 0.0).airtime_s for size in (BYTES, 3 * BYTES))
    assert large == pytest.approx(3.0 * small, rel=1e-5)  # but for the flight over 1 m


# Bandwidth


@pytest.mark.parametrize("users", [2, 3, 8])
@pytest.mark.parametrize("interference", ["none", "nearby"])
def test_shared_bandwidth_is_an_nth_of_it_in_the_noise_too(users: int, interference: str) -> None:
    positions = standing(*((0.0, 40.0 * user) for user in range(users)))
    shared = delays(radio(bandwidth="shared", interference=interference), positions)
    assert shared == delays(radio(bandwidth_hz=10e6 / users, interference=interference), positions)
    each = delays(radio(interference=interference), positions)
    if interference == "none":  # N times less bandwidth, N times less noise
        for shared_s, each_s in zip(shared, each, strict=True):
            assert sinr(shared_s, 40.0, 10e6 / users) == pytest.approx(users * sinr(each_s, 40.0), rel=1e-6)


# Who interferes


SENDER, RECEIVER = (0.0, 0.0), (300.0, 0.0)


def test_the_two_ends_of_a_link_do_not_disturb_it() -> None:
    close = standing((0, 0), (20, 0))
    assert delays(radio(interference="nearby"), close) == delays(radio(), close)


@pytest.mark.parametrize(
    ("place", "disturbs"),
    [
        ((300.0, 10.0), True),
        ((340.0, 29.9), True),
        ((250.0, 0.0), True),  # at the radius to the inch
        ((300.0, -50.001), False),
        ((0.0, 10.0), False),  # near the sender
        ((150.0, 0.0), False),  # between the two
        ((-400.0, 0.0), False),
    ],
)
def test_those_within_the_radius_of_the_receiver_disturb_and_no_others(
    place: tuple[float, float], disturbs: bool
) -> None:
    undisturbed = delays(radio(), standing(SENDER, RECEIVER, place))
    found = delays(radio(interference="nearby"), standing(SENDER, RECEIVER, place))
    if disturbs:
        assert all(slower > before for slower, before in zip(found, undisturbed, strict=True))
    else:
        assert found == undisturbed


def test_with_interference_off_nobody_disturbs() -> None:
    crowd = standing(SENDER, RECEIVER, (300, 1), (301, 0), (299, 0))
    assert delays(radio(), crowd) == delays(radio(), standing(SENDER, RECEIVER))


def test_the_radius_can_be_chosen() -> None:
    positions = standing(SENDER, RECEIVER, (300, 120))
    assert delays(radio(interference="nearby", interference_radius_m=119.0), positions) == delays(radio(), positions)
    assert delays(radio(interference="nearby", interference_radius_m=121.0), positions) != delays(radio(), positions)


def interference_over_signal(places: list[tuple[float, float]], count: int = 20) -> np.ndarray:
    """I / S = 1 / SINR - 1 / SNR, message by message, on the link from SENDER to RECEIVER."""
    positions = standing(SENDER, RECEIVER, *places)
    disturbed = delays(radio(interference="nearby"), positions, count)
    clear = delays(radio(), positions, count)
    return np.array([1 / sinr(a, 300.0) - 1 / sinr(b, 300.0) for a, b in zip(disturbed, clear, strict=True)])


def test_interference_falls_with_the_distance_to_the_receiver_by_the_same_law() -> None:
    near, far = interference_over_signal([(320, 0)]), interference_over_signal([(300, 40)])
    assert near / far == pytest.approx(np.full(20, 2.0**4), rel=1e-6)


def test_the_powers_of_interferers_add_up() -> None:
    """User 3 disturbs alike whether user 2 is near or far away, so its share can be measured alone."""
    nowhere = (5000.0, 0.0)
    second, third = interference_over_signal([(320, 0), nowhere]), interference_over_signal([nowhere, (300, 25)])
    assert interference_over_signal([(320, 0), (300, 25)]) == pytest.approx(second + third, rel=1e-6)


def test_signal_and_interferers_fade_independently() -> None:
    count, nowhere = 5000, (5000.0, 0.0)
    clear = np.array([sinr(one, 300.0) for one in delays(radio(), standing(SENDER, RECEIVER), count)])
    second = interference_over_signal([(320, 0), nowhere], count) * clear
    third = interference_over_signal([nowhere, (320, 0)], count) * clear
    for one, other in [(clear, second), (clear, third), (second, third)]:
        assert abs(np.corrcoef(one, other)[0, 1]) < 4.0 / math.sqrt(count)


def test_an_interferer_fades_differently_at_each_receiver_and_for_each_sender() -> None:
    positions = standing((0, 0), (300, 0), (300, 40), (0, 1), (300, 20))
    shares = []
    for sender, receiver in [(0, 1), (0, 2), (3, 1), (3, 2)]:
        everybody = radio(interference="nearby", interference_radius_m=25.0).open(SEED, positions)
        nobody = radio().open(SEED, positions)
        length_m = math.dist(positions[sender], positions[receiver])
        clear = sinr(delay(nobody, sender, receiver), length_m)
        shares.append(clear / sinr(delay(everybody, sender, receiver), length_m) - 1.0)
    for one, other in itertools.combinations(shares, 2):
        assert one != pytest.approx(other, rel=1e-6)


# Only those on the air

CHATTER = standing(SENDER, RECEIVER, (310, 0), (900, 0), (920, 0))
"""User 2 stands near receiver 1 and sends to user 3, far off; user 4 stands near user 3."""


def on_the_air(**changes: Any) -> WirelessMedium:
    return radio(interference="concurrent", **changes).open(SEED, CHATTER)


def test_a_silent_neighbour_does_not_disturb() -> None:
    assert delay(on_the_air(), 0, 1) == delays(radio(), CHATTER, 1)[0]


def test_a_neighbour_disturbs_from_the_start_of_its_transmission_to_its_end_and_no_longer() -> None:
    (clear,), (disturbed,) = delays(radio(), CHATTER, 1), delays(radio(interference="nearby"), CHATTER, 1)
    started_s = 5.0
    medium = on_the_air()
    assert delay(medium, 0, 1, now_s=4.0) == clear
    airtime_s = medium.transmit("update", 2, 0, (3,), BYTES, started_s).airtime_s
    ended_s = started_s + airtime_s
    for now_s in [started_s, started_s + airtime_s / 2, math.nextafter(ended_s, 0.0)]:
        assert delay(medium, 0, 1, now_s=now_s) == disturbed
    for now_s in [ended_s, ended_s + 1.0]:
        assert delay(medium, 0, 1, now_s=now_s) == clear


def test_models_on_the_air_disturb_as_well() -> None:
    medium = on_the_air()
    medium.transmit("model", 2, 0, (0, 1, 3, 4), BYTES, 5.0)
    assert delay(medium, 0, 1, now_s=5.0) == delays(radio(interference="nearby"), CHATTER, 1)[0]


def test_somebody_on_the_air_far_from_the_receiver_does_not_disturb() -> None:
    medium = on_the_air()
    medium.transmit("update", 4, 0, (3,), BYTES, 5.0)
    assert delay(medium, 0, 1, now_s=5.0) == delays(radio(), CHATTER, 1)[0]


def test_what_a_sender_or_receiver_has_on_the_air_does_not_disturb_its_own_link() -> None:
    medium = radio(interference="concurrent").open(SEED, standing((0, 0), (20, 0), (500, 0)))
    medium.transmit("model", 0, 0, (2,), BYTES, 5.0)
    medium.transmit("model", 1, 0, (2,), BYTES, 5.0)
    assert delay(medium, 0, 1, now_s=5.0) == delays(radio(), standing((0, 0), (20, 0)), 1)[0]


def test_a_transmission_is_on_the_air_until_its_last_receiver_has_it() -> None:
    medium = on_the_air()
    sent = medium.transmit("update", 2, 0, (1, 3, 4), BYTES, 5.0)
    assert len({one.delay_s for one in sent.deliveries}) == 3
    assert sent.airtime_s == max(one.delay_s for one in sent.deliveries)
    assert medium.state.on_air_until_s == {2: 5.0 + sent.airtime_s}


def test_a_receiver_past_the_deadline_keeps_nobody_on_the_air() -> None:
    fast, slow = sorted(one.delay_s for one in on_the_air().transmit("update", 2, 0, (1, 3), BYTES, 5.0).deliveries)
    medium = on_the_air(deadline_s=(fast + slow) / 2)
    sent = medium.transmit("update", 2, 0, (1, 3), BYTES, 5.0)
    assert sent.airtime_s == fast
    assert medium.state.on_air_until_s == {2: 5.0 + fast}


def test_a_transmission_that_reaches_nobody_is_on_the_air_for_the_whole_deadline() -> None:
    medium = on_the_air(deadline_s=1e-6)
    assert medium.transmit("update", 2, 0, (1, 3), BYTES, 5.0) == (1e-6, [(1e-6, Fate.LATE, "")] * 2)
    assert medium.state.on_air_until_s == {2: 5.0 + 1e-6}


def test_a_short_transmission_does_not_end_a_long_one() -> None:
    medium = on_the_air()
    long_s = medium.transmit("update", 2, 0, (3,), BYTES, 5.0).airtime_s
    medium.transmit("model", 2, 0, (1,), 1, 5.0)
    assert medium.state.on_air_until_s == {2: 5.0 + long_s}


def test_what_is_on_the_air_survives_being_saved_and_restored() -> None:
    medium = on_the_air()
    until_s = 5.0 + medium.transmit("update", 2, 0, (3,), BYTES, 5.0).airtime_s
    text = json.dumps(dataclasses.asdict(medium.state))
    restored = on_the_air()
    restored.state = TypeAdapter(WirelessState).validate_python(json.loads(text))
    assert restored.state == medium.state == WirelessState({2: until_s})
    (clear,), (disturbed,) = delays(radio(), CHATTER, 1), delays(radio(interference="nearby"), CHATTER, 1)
    assert delay(restored, 0, 1, now_s=math.nextafter(until_s, 0.0)) == disturbed
    assert delay(restored, 0, 1, now_s=until_s) == clear
    assert delay(on_the_air(), 0, 1, now_s=5.0) == clear  # so it was the state that knew


@pytest.mark.parametrize("interference", ["none", "nearby"])
def test_nothing_is_remembered_where_nothing_depends_on_it(interference: str) -> None:
    medium = radio(interference=interference).open(SEED, CHATTER)
    medium.transmit("update", 2, 0, (3,), BYTES, 5.0)
    assert medium.state == WirelessState()


# The deadline


def test_a_message_is_late_exactly_when_it_would_take_the_deadline_or_longer() -> None:
    for index, takes_s in enumerate(delays(radio(), standing(SENDER, RECEIVER), 50)):
        for deadline_s, arrives in [
            (math.nextafter(takes_s, math.inf), True),
            (takes_s, False),
            (math.nextafter(takes_s, 0.0), False),
        ]:
            medium = radio(deadline_s=deadline_s).open(SEED, standing(SENDER, RECEIVER))
            sent = medium.transmit("update", 0, index, (1,), BYTES, 0.0)
            assert sent == (
                (takes_s, [(takes_s, None, "")]) if arrives else (deadline_s, [(deadline_s, Fate.LATE, "")])
            )


def test_late_is_a_fate_without_a_reason() -> None:
    medium = radio(deadline_s=1e-9).open(SEED, standing(SENDER, RECEIVER))
    assert medium.transmit("update", 0, 0, (1,), BYTES, 0.0).deliveries == [(1e-9, Fate.LATE, "")]


def test_a_signal_of_exactly_nothing_never_arrives() -> None:
    """A gain of 0 is a possible draw: find the message whose draw it is."""
    golden_ratio = 0x9E3779B97F4A7C15
    key = rng.stream(SEED, "fading-update", 0, 1)
    index = (-key * pow(golden_ratio, -1, 2**64) - 1) % 2**64
    assert rng.exponential(key, index) == 0.0
    medium = radio().open(SEED, standing(SENDER, RECEIVER))
    assert medium.transmit("update", 0, index, (1,), BYTES, 0.0) == (EVER_S, [(EVER_S, Fate.LATE, "")])


# Whose luck


def crowd() -> np.ndarray:
    return standing(SENDER, RECEIVER, (310, 0), (290, 20), (0, 30), (-30, 0))


every_interference = pytest.mark.parametrize("interference", ["none", "nearby", "concurrent"])


@every_interference
def test_the_kth_message_on_a_link_fares_the_same_whoever_else_receives_it(interference: str) -> None:
    alone = delays(radio(interference=interference), crowd())
    for receivers in [(1, 2), (2, 1), (1, 2, 3, 4, 5), (5, 4, 1)]:
        medium = radio(interference=interference).open(SEED, crowd())
        at = receivers.index(1)
        sent = [medium.transmit("update", 0, index, receivers, BYTES, 0.0) for index in range(20)]
        assert [one.deliveries[at].delay_s for one in sent] == alone


@every_interference
def test_the_kth_message_on_a_link_fares_the_same_whatever_was_sent_before(interference: str) -> None:
    plain = delays(radio(interference=interference, deadline_s=900.0), crowd())
    medium = radio(interference=interference, deadline_s=900.0).open(SEED, crowd())
    found = []
    for index in range(20):
        busy_s = 1000.0 * index
        for other in (2, 3, 4):
            medium.transmit("update", other, index, (0, 1), BYTES, busy_s)
        medium.transmit("model", 0, index, (1, 2, 3, 4, 5), BYTES, busy_s)
        found.append(delay(medium, 0, 1, index, now_s=busy_s + 999.0))  # when the air is free again
    assert found == plain


@every_interference
def test_messages_skipped_or_reordered_keep_their_luck(interference: str) -> None:
    plain = delays(radio(interference=interference), crowd())
    medium = radio(interference=interference).open(SEED, crowd())
    for index in [17, 3, 3, 0, 9]:
        assert delay(medium, 0, 1, index) == plain[index]


@every_interference
def test_adding_a_user_out_of_range_changes_nothing(interference: str) -> None:
    for place in [(2000.0, 0.0), (150.0, 150.0), (300.0, -60.0)]:
        more = np.vstack([crowd(), place])
        assert delays(radio(interference=interference), more) == delays(radio(interference=interference), crowd())


def test_updates_and_models_have_luck_of_their_own() -> None:
    count = 5000
    medium = radio().open(SEED, standing(SENDER, RECEIVER))
    updates, models = (
        np.array(
            [sinr(medium.transmit(content, 0, index, (1,), BYTES, 0.0).airtime_s, 300.0) for index in range(count)]
        )
        for content in ("update", "model")
    )
    assert not (updates == models).any()
    assert abs(np.corrcoef(updates, models)[0, 1]) < 4.0 / math.sqrt(count)


def test_the_two_directions_of_a_link_fade_independently() -> None:
    count = 5000
    medium = radio().open(SEED, standing(SENDER, RECEIVER))
    there, back = (
        np.array([sinr(delay(medium, *ends, index), 300.0) for index in range(count)]) for ends in [(0, 1), (1, 0)]
    )
    assert abs(np.corrcoef(there, back)[0, 1]) < 4.0 / math.sqrt(count)


def test_another_seed_is_another_luck() -> None:
    assert set(delays(radio(), crowd(), seed=1)).isdisjoint(delays(radio(), crowd(), seed=2))
