"""The wireless channel: path loss, Rayleigh fading, interference, and a deadline.

With P the transmit power, h ~ Exp(1) a fading gain drawn afresh for every transmission and link, d the distance,
alpha the path loss exponent, W the bandwidth, z^2 = N0 W the noise power and Phi_j the interferers of receiver j:

    SINR(i,j)  = P h d(i,j)^-alpha / (sum over n in Phi_j of P h_n d(j,n)^-alpha + z^2)
    Gamma(i,j) = bits / (W log2(1 + SINR)) + d / c

and the message arrives Gamma later if Gamma is below the deadline, otherwise never. Phi_j is everybody within the
interference radius of j but j and the sender ("nearby"), only those of them that are on the air when this
transmission starts ("concurrent"), or empty ("none"). With bandwidth "shared", W / N takes the place of W
everywhere, in the noise too. A transmission is on the air until the last of its receivers within the deadline has
it, or for the whole deadline when none has.
"""

from __future__ import annotations

import math
from array import array
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import numpy as np

from dracofl import rng
from dracofl.channels.interface import Delivery, Transmission
from dracofl.field import Positions
from dracofl.types import Fate, named

SPEED_OF_LIGHT_M_PER_S = 299_792_458.0
MINIMUM_DISTANCE_M = 1.0
_LOG_2 = math.log(2.0)


def dbm_to_watt(dbm: float) -> float:
    result: float = 10.0 ** ((dbm - 30.0) / 10.0)
    return result


@dataclass(frozen=True, slots=True)
class Wireless:
    """Radio with path loss, Rayleigh fading, interference and a deadline."""

    deadline_s: float
    interference: Literal["nearby", "concurrent", "none"]
    interference_radius_m: float
    bandwidth: Literal["each", "shared"]
    bandwidth_hz: float
    power_dbm: float
    path_loss_exponent: float
    noise_dbm_per_hz: float

    def open(self, seed: int, positions: Positions) -> WirelessMedium:
        return WirelessMedium(self, seed, positions)


@dataclass(slots=True)
class WirelessState:
    on_air_until_s: dict[int, float] = field(default_factory=dict)  # by user; kept for "concurrent" only


# Plain tuples, flat where it saves one for every link: a network has millions, and the garbage collector passes over
# those that hold only numbers.
_Interferer: TypeAlias = tuple[int, float, int]
"""User, mean power in W at the receiver, stream of the fading."""
_Links: TypeAlias = tuple[Any, ...]
"""Of each link in turn: mean power in W at the receiver, propagation in s, stream of the fading, its interferers."""


class WirelessMedium:
    def __init__(self, channel: Wireless, seed: int, positions: Positions) -> None:
        self.state = WirelessState()
        self._channel = channel
        self._seed = seed
        # Arrays that give Python floats: links are made one by one, and NumPy scalars are slow.
        self._x_m, self._y_m = (array("d", column) for column in positions.T.tolist())
        self._power_w = dbm_to_watt(channel.power_dbm)
        self._bandwidth_hz = channel.bandwidth_hz / (len(positions) if channel.bandwidth == "shared" else 1)
        self._noise_w = dbm_to_watt(channel.noise_dbm_per_hz) * self._bandwidth_hz
        self._near, self._near_ends = self._find_nearby(positions)
        self.listens = channel.interference == "concurrent"
        self._late = Delivery(channel.deadline_s, Fate.LATE)
        self._starting: tuple[float, frozenset[int]] = (-1.0, frozenset())
        self._update_links: dict[int, tuple[tuple[int, ...], _Links]] = {}

    def announce(self, senders: frozenset[int], now_s: float) -> None:
        """Transmissions that start at one instant are on the air for one another, whoever is asked about first."""
        self._starting = now_s, senders

    def transmit(
        self,
        content: str,
        sender: int,
        index: int,
        receivers: tuple[int, ...],
        payload_bytes: int,
        now_s: float,
        deadline_s: float = math.inf,
    ) -> Transmission:
        late = self._late
        if deadline_s < late.delay_s:
            late = Delivery(deadline_s, Fate.LATE)
        deadline_s = late.delay_s
        noise_w, exponential, log1p = self._noise_w, rng.exponential, math.log1p
        seconds_times_log1p = 8.0 * payload_bytes * _LOG_2 / self._bandwidth_hz
        deliveries = []
        airtime_s = -1.0
        links = iter(self._links(content, sender, receivers))
        for mean_power_w, propagation_s, fading, interferers in zip(links, links, links, links, strict=True):
            interference_w = self._interference_w(interferers, index, now_s) if interferers else 0.0
            capacity = log1p(mean_power_w * exponential(fading, index) / (interference_w + noise_w))
            # A gain of exactly 0 is a possible draw; a channel without capacity never delivers.
            delay_s = seconds_times_log1p / capacity + propagation_s if capacity > 0.0 else math.inf
            if delay_s < deadline_s:
                deliveries.append(named(Delivery, (delay_s, None, "")))
                if delay_s > airtime_s:
                    airtime_s = delay_s
            else:
                deliveries.append(late)
        if airtime_s < 0.0:
            airtime_s = deadline_s
        if self.listens:
            on_air = self.state.on_air_until_s
            on_air[sender] = max(on_air.get(sender, 0.0), now_s + airtime_s)
        return named(Transmission, (airtime_s, deliveries))

    def _interference_w(self, interferers: tuple[_Interferer, ...], index: int, now_s: float) -> float:
        """What a receiver hears of those who disturb it."""
        total_w = 0.0
        for user, mean_power_w, fading in interferers:
            if not self.listens or self._on_air(user, now_s):
                total_w += mean_power_w * rng.exponential(fading, index)
        return total_w

    def _on_air(self, user: int, now_s: float) -> bool:
        if self.state.on_air_until_s.get(user, -1.0) > now_s:
            return True
        instant_s, senders = self._starting
        return instant_s == now_s and user in senders

    def _links(self, content: str, sender: int, receivers: tuple[int, ...]) -> _Links:
        """Positions are fixed, so the links of a user's updates are kept; a hub's, to everybody, are not."""
        kept = self._update_links.get(sender)
        if content == "update" and kept is not None and (kept[0] is receivers or kept[0] == receivers):
            return kept[1]
        links = self._new_links(content, sender, receivers)
        if content == "update":
            self._update_links[sender] = receivers, links
        return links

    def _new_links(self, content: str, sender: int, receivers: tuple[int, ...]) -> _Links:
        """With many users, to make a user's links takes longer than to use them: what links share is done once."""
        fadings = rng.streams(self._seed, f"fading-{content}", sender, receivers)
        near_ends = self._near_ends
        links: list[Any] = []
        for receiver, fading in zip(receivers, fadings, strict=True):
            distance_m = self._distance_m(sender, receiver)
            has_neighbours = near_ends[receiver] < near_ends[receiver + 1]
            interferers = self._interferers(sender, receiver, fading) if has_neighbours else ()
            links += self._mean_power_w(distance_m), distance_m / SPEED_OF_LIGHT_M_PER_S, fading, interferers
        return tuple(links)

    def _interferers(self, sender: int, receiver: int, fading: int) -> tuple[_Interferer, ...]:
        near = self._near[self._near_ends[receiver] : self._near_ends[receiver + 1]]
        return tuple(
            [
                (user, self._mean_power_w(self._distance_m(user, receiver)), rng.substream(fading, user))
                for user in near
                if user != sender
            ]
        )

    def _mean_power_w(self, distance_m: float) -> float:
        result: float = self._power_w * distance_m**-self._channel.path_loss_exponent
        return result

    def _distance_m(self, a: int, b: int) -> float:
        x_m, y_m = self._x_m, self._y_m
        return max(math.hypot(x_m[a] - x_m[b], y_m[a] - y_m[b]), MINIMUM_DISTANCE_M)

    def _find_nearby(self, positions: Positions) -> tuple[array[int], array[int]]:
        """The others within the interference radius of receiver 0, ascending, then those of receiver 1 and so on; and
        where each one's begin."""
        users = len(positions)
        if self._channel.interference == "none":
            return array("q"), array("q", [0] * (users + 1))
        from scipy.spatial import cKDTree

        pairs = cKDTree(positions).query_pairs(self._channel.interference_radius_m, output_type="ndarray")
        receivers, others = np.concatenate([pairs, pairs[:, ::-1]]).T
        order = np.lexsort((others, receivers))
        ends = np.searchsorted(receivers[order], np.arange(users + 1))
        return array("q", others[order].tolist()), array("q", ends.tolist())
