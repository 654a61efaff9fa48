"""What must hold of updates: each is applied at most once, taken if it is new, and whole."""

from __future__ import annotations

import math
from collections import Counter, deque
from typing import TYPE_CHECKING

from faults.laws import Law, is_of_present_selves
from faults.life import update_of
from faults.schedule import MOST_DRIFT

from dracofl.protocol.headers import Answer, Kind, Verdict
from dracofl.runtime.parcel import Parcel
from dracofl.runtime.records import Key, Merged, records_of
from dracofl.types import Fate

if TYPE_CHECKING:
    from faults.life import Life
    from faults.world import World

_REPETITION = frozenset({Verdict.DUPLICATE, Verdict.EARLIER_SENDER})
_TAKEN = frozenset({Verdict.ACCEPTED, Verdict.OVER_BUDGET})


def _taken(life: Life, parcel: Parcel, verdict: Verdict) -> list[Key]:
    """The updates in it, if this peer took them."""
    header = parcel.header
    if header.kind != Kind.UPDATE or verdict not in _TAKEN:
        return []
    return [Key(header.sender, header.epoch, number, life.user) for number in parcel.numbers]


class NothingIsTakenTwice(Law):
    """Nobody takes a message of the same sender, epoch and number twice: not later, and not after a restart."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._taken: set[Key] = set()

    def arrived(self, life: Life, parcel: Parcel, verdict: Verdict) -> None:
        for key in _taken(life, parcel, verdict):
            self.require(key not in self._taken, key, "is taken again by", life)
            self._taken.add(key)


class NewsIsTaken(Law):
    """What was never here is not refused as if it had been; what was meant for an earlier self is not taken."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._decided: set[tuple[int, int, int]] = set()  # (receiver's epoch, sender's epoch, number)

    def arrived(self, life: Life, parcel: Parcel, verdict: Verdict) -> None:
        header = parcel.header
        if header.kind != Kind.UPDATE:
            return
        key = (life.epoch, header.epoch, header.number)
        if header.to_epoch != life.epoch:
            fits = verdict == Verdict.EARLIER_SELF
        elif key in self._decided:
            fits = verdict in _REPETITION
        else:
            is_old = not is_of_present_selves(self.world, life, parcel)
            fits = verdict in _TAKEN or (is_old and verdict == Verdict.EARLIER_SENDER)
        self.require(fits, header, "met the verdict", verdict.name, "of", life)
        if verdict in _TAKEN:
            self._decided.add(key)


class BudgetIsKept(Law):
    """In a period a peer accepts Psi messages, the first to come, not one more or fewer, even if it is restarted."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._accepted: Counter[tuple[int, int]] = Counter()  # by each user in each period
        self._periods: dict[int, int] = {}  # of each life

    def born(self, life: Life) -> None:
        self._periods[life.epoch] = life.peer.core.state.period

    def arrived(self, life: Life, parcel: Parcel, verdict: Verdict) -> None:
        if parcel.header.kind != Kind.UPDATE or verdict not in _TAKEN:
            return
        psi, key = self.world.schedule.method.psi, (life.user, life.peer.core.state.period)
        is_over = psi is not None and self._accepted[key] >= psi
        fits = is_over == (verdict == Verdict.OVER_BUDGET)
        self.require(fits, life, "accepted", self._accepted[key], "in period", key[1], "and answers", verdict.name)
        self._accepted[key] += not is_over

    def stepped(self, life: Life) -> None:
        period, before = life.peer.core.state.period, self._periods[life.epoch]
        self.require(period >= before, life, "went back from period", before, "to", period)
        self._periods[life.epoch] = period


class UpdatesAreConserved(Law):
    """Each transmission goes to a receiver in one message, in its turn, alone or in a sum whose numbers are right."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._finished: dict[int, int] = {}  # by each life: how many, and which are not sent
        self._unsent: dict[int, list[int]] = {}
        self._saved: dict[int, list[int]] = {}  # by each user
        self._contents: dict[tuple[int, int], tuple[int, ...]] = {}  # of each transmission of a life
        self._waiting: dict[tuple[int, int], deque[int]] = {}  # of each life for each receiver

    def born(self, life: Life) -> None:
        """What waited goes on waiting, unless it may have been sent since it was saved."""
        state = life.peer.core.node.state
        self._finished[life.epoch] = state.finished
        self._unsent[life.epoch] = list(self._saved.get(life.user, ())) if state.unsent_updates else []

    def saved(self, life: Life) -> None:
        self._saved[life.user] = list(self._unsent[life.epoch])

    def posted(self, life: Life, parcel: Parcel) -> None:
        header = parcel.header
        if header.kind != Kind.UPDATE:
            return
        self._note_finished(life)
        transmission = (life.epoch, header.number)
        if transmission not in self._contents:
            self._contents[transmission] = tuple(self._unsent[life.epoch])

    def queued(self, life: Life, parcel: Parcel) -> None:
        if parcel.header.kind == Kind.UPDATE:
            self._waiting.setdefault((life.epoch, parcel.header.receiver), deque()).append(parcel.header.number)

    def stepped(self, life: Life) -> None:
        """A transmission that reached nobody has taken its updates with it too."""
        setting, state = self.world.schedule.setting, life.peer.core.node.state
        self._note_finished(life)
        if setting.when == "on-update":
            self._unsent[life.epoch] = []
        elif setting.backlog == "latest":
            del self._unsent[life.epoch][:-1]
        elif state.unsent_updates == 0:
            self._unsent[life.epoch] = []
        waiting = self._unsent[life.epoch]
        self.require(len(waiting) == state.unsent_updates, life, "has not sent", waiting, "and says", state)

    def taken(self, life: Life, parcel: Parcel) -> None:
        header = parcel.header
        if header.kind != Kind.UPDATE:
            return
        numbers = [number for one in parcel.numbers for number in self._contents[life.epoch, one]]
        content = sum(update_of(life.user, number) for number in numbers)
        is_whole = bool((content == parcel.payload).all()) and header.updates == len(numbers)
        self.require(is_whole, life, "sends", parcel, "and not", numbers)
        waiting = self._waiting[life.epoch, header.receiver]
        following = tuple(waiting.popleft() for _ in parcel.numbers)
        self.require(parcel.numbers == following, life, "sends", parcel.numbers, "when it is the turn of", following)

    def _note_finished(self, life: Life) -> None:
        finished = life.peer.core.node.state.finished
        if finished == self._finished[life.epoch]:
            return
        if self.world.schedule.setting.backlog == "latest":
            self._unsent[life.epoch].clear()
        self._unsent[life.epoch].append(finished - 1)
        self._finished[life.epoch] = finished


class EveryMessageHasOneFate(Law):
    """The journals of all peers tell what became of every message, once, and it is what the oracle saw."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._held: dict[int, list[Key]] = {}
        self._seen: dict[Key, Fate] = {}

    def arrived(self, life: Life, parcel: Parcel, verdict: Verdict) -> None:
        for key in _taken(life, parcel, verdict):
            if verdict == Verdict.OVER_BUDGET:
                self._seen[key] = Fate.OVER_BUDGET
            elif self.world.schedule.method.window_s:
                self._held.setdefault(life.epoch, []).append(key)
            else:
                self._seen[key] = Fate.APPLIED

    def window_closed(self, life: Life) -> None:
        self._seen |= dict.fromkeys(self._held.pop(life.epoch), Fate.APPLIED)

    def ended(self, world: World) -> None:
        records = records_of(list(Merged(world.journals)), everybody=True)
        self.require(not records.contradictions, records.contradictions[:3])
        self.require(records.unsettled == 0, records.unsettled, "messages have no fate")
        sent = Counter(
            (user, line[2], outcome[0])
            for user, lines in world.journals.items()
            for line in lines
            if line[0] == "sent"
            for outcome in line[7]
        )
        told = Counter((row.sender, row.number, row.receiver) for row in records.messages)
        self.require(told == sent, "sent and told differ:", (sent - told) or (told - sent))
        for fate in (Fate.APPLIED, Fate.OVER_BUDGET):
            rows = Counter((row.sender, row.number, row.receiver) for row in records.messages if row.fate == fate)
            seen = Counter((key.sender, key.number, key.receiver) for key, one in self._seen.items() if one == fate)
            self.require(rows == seen, fate, "differ:", (rows - seen) or (seen - rows))


class ClockOffsetsAreRight(Law):
    """A neighbour's clock is known to half of the quickest of the last round trips, and what the clocks drifted.

    Round trips are to the neighbour as it is now: of its clock before it was started again nothing is left.
    """

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._round_trips: dict[tuple[int, int], deque[tuple[float, float]]] = {}  # (took, true time)

    def came(self, life: Life, other: Life) -> None:
        if life.peer.core.state.members.get(other.user) != other.epoch:
            self._round_trips.pop((life.epoch, other.user), None)

    def answered(self, life: Life, parcel: Parcel, asked_s: float, now_s: float, answer: Answer) -> None:
        neighbour = parcel.header.receiver
        if life.peer.core.state.members.get(neighbour) == answer.epoch:
            trips = self._round_trips.setdefault((life.epoch, neighbour), deque(maxlen=16))
            trips.append((now_s - asked_s, self.world.now_s))

    def posted(self, life: Life, parcel: Parcel) -> None:
        now_s, header = self.world.now_s, parcel.header
        trips = self._round_trips.get((life.epoch, header.receiver))
        if not trips:
            self.require(math.isnan(header.offset_s), life, "guesses the clock of", header.receiver)
            return
        took_s, noted_s = min(trips)
        true_s = self.world.by_epoch[header.to_epoch].clock.shows(now_s) - life.clock.shows(now_s)
        drifted_s = 2 * MOST_DRIFT * (now_s - noted_s + took_s)
        wrong_s = abs(header.offset_s - true_s)
        is_right = wrong_s <= 0.5 * took_s + drifted_s + 1e-9
        self.require(is_right, life, "is wrong by", wrong_s, "s about", header.receiver, "after a trip of", took_s)


MESSAGE_LAWS: tuple[type[Law], ...] = (
    NothingIsTakenTwice,
    NewsIsTaken,
    BudgetIsKept,
    UpdatesAreConserved,
    EveryMessageHasOneFate,
    ClockOffsetsAreRight,
)
