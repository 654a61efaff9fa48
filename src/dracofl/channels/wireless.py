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
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from dracofl import rng
from dracofl.channels.interface import Delivery, Transmission
from dracofl.field import Positions
from dracofl.types import Fate

SPEED_OF_LIGHT_M_PER_S = 299_792_458.0
MINIMUM_DISTANCE_M = 1.0


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


class _Interferer(NamedTuple):
    user: int
    mean_power_w: float
    fading: int  # stream


class _Link(NamedTuple):
    mean_power_w: float
    propagation_s: float
    fading: int  # stream
    interferers: tuple[_Interferer, ...]


class WirelessMedium:
    def __init__(self, channel: Wireless, seed: int, positions: Positions) -> None:
        self.state = WirelessState()
        self._channel = channel
        self._seed = seed
        # Python floats: the loops below are scalar, and NumPy scalars are slow.
        self._positions: list[tuple[float, float]] = [(float(x), float(y)) for x, y in positions]
        self._power_w = dbm_to_watt(channel.power_dbm)
        self._bandwidth_hz = channel.bandwidth_hz / (len(positions) if channel.bandwidth == "shared" else 1)
        self._noise_w = dbm_to_watt(channel.noise_dbm_per_hz) * self._bandwidth_hz
        self._nearby = self._find_nearby(positions)
        self._starting: tuple[float, frozenset[int]] = (-1.0, frozenset())
        self._update_links: dict[int, tuple[tuple[int, ...], tuple[_Link, ...]]] = {}

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
        deadline_s = min(deadline_s, self._channel.deadline_s)
        seconds_times_log1p = 8.0 * payload_bytes * math.log(2.0) / self._bandwidth_hz
        late = Delivery(deadline_s, Fate.LATE)
        deliveries = []
        airtime_s = -1.0
        for link in self._links(content, sender, receivers):
            interference_w = 0.0
            for interferer in link.interferers:
                if self._interferes(interferer.user, now_s):
                    interference_w += interferer.mean_power_w * rng.exponential(interferer.fading, index)
            signal_w = link.mean_power_w * rng.exponential(link.fading, index)
            capacity = math.log1p(signal_w / (interference_w + self._noise_w))
            # A gain of exactly 0 is a possible draw; a channel without capacity never delivers.
            delay_s = seconds_times_log1p / capacity + link.propagation_s if capacity > 0.0 else math.inf
            if delay_s < deadline_s:
                deliveries.append(Delivery(delay_s))
                airtime_s = max(airtime_s, delay_s)
            else:
                deliveries.append(late)
        if airtime_s < 0.0:
            airtime_s = deadline_s
        if self._channel.interference == "concurrent":
            on_air = self.state.on_air_until_s
            on_air[sender] = max(on_air.get(sender, 0.0), now_s + airtime_s)
        return Transmission(airtime_s, deliveries)

    def _interferes(self, user: int, now_s: float) -> bool:
        if self._channel.interference == "nearby" or self.state.on_air_until_s.get(user, -1.0) > now_s:
            return True
        instant_s, senders = self._starting
        return instant_s == now_s and user in senders

    def _links(self, content: str, sender: int, receivers: tuple[int, ...]) -> tuple[_Link, ...]:
        """Positions are fixed, so the links of a user's updates are kept; a hub's, to everybody, are not."""
        kept = self._update_links.get(sender)
        if content == "update" and kept is not None and kept[0] == receivers:
            return kept[1]
        links = tuple(self._link(content, sender, receiver) for receiver in receivers)
        if content == "update":
            self._update_links[sender] = receivers, links
        return links

    def _link(self, content: str, sender: int, receiver: int) -> _Link:
        fading = rng.stream(self._seed, f"fading-{content}", sender, receiver)
        distance_m = self._distance_m(sender, receiver)
        interferers = tuple(
            _Interferer(user, self._mean_power_w(self._distance_m(user, receiver)), rng.substream(fading, user))
            for user in self._nearby[receiver]
            if user != sender
        )
        return _Link(self._mean_power_w(distance_m), distance_m / SPEED_OF_LIGHT_M_PER_S, fading, interferers)

    def _mean_power_w(self, distance_m: float) -> float:
        result: float = self._power_w * distance_m**-self._channel.path_loss_exponent
        return result

    def _distance_m(self, a: int, b: int) -> float:
        (ax, ay), (bx, by) = self._positions[a], self._positions[b]
        return max(math.hypot(ax - bx, ay - by), MINIMUM_DISTANCE_M)

    def _find_nearby(self, positions: Positions) -> list[tuple[int, ...]]:
        """For each receiver, the others within the interference radius, in ascending order."""
        if self._channel.interference == "none":
            return [()] * len(positions)
        from scipy.spatial import cKDTree

        found: list[list[int]] = [[] for _ in positions]
        for a, b in cKDTree(positions).query_pairs(self._channel.interference_radius_m):
            found[a].append(b)
            found[b].append(a)
        return [tuple(sorted(users)) for users in found]
