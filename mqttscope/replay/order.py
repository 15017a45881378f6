"""What has to have happened before a step: recorded order across connections, kept where it decides what is delivered.

Everything that the recorded server said, and the end of every connection, is a *milestone*; its place is that in the
capture.  A step that changes what is delivered to whom (opening, CONNECT, SUBSCRIBE, UNSUBSCRIBE, DISCONNECT, the end
of a connection) waits for all milestones before it; any other step only for those milestones before it that tell of
such a change (CONNACK, SUBACK, UNSUBACK, an end).  A retained message that replaces one of another client waits for all
as well, since the last one stays.  With ``causal`` every step waits for all.

What the recorded server did because time had passed (sessions and messages that expired, wills that were delayed) takes
as long in the replay: a *timer* starts with the step that it counts from, and is a milestone before the first step that
changes what is delivered after it had elapsed.

QoS 0 messages are never answered.  Where another connection changes what is delivered after one, a *fence* is put
after it: a PINGREQ, whose answer says that the server has handled what came before.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Container, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import count

from mqttscope.mqtt import packets
from mqttscope.mqtt.declare import Malformed
from mqttscope.replay.script import Entry, Script

_CHANGES = (packets.Connect, packets.Subscribe, packets.Unsubscribe, packets.Disconnect)
_TOLD = (packets.Connack, packets.Suback, packets.Unsuback)
_NO_MILESTONE = (packets.Disconnect, Malformed)
_ANSWERS = (packets.Acknowledgement, packets.Suback, packets.Unsuback)
_OWN_TOPICS = "$SYS/"
SECOND = 1_000_000_000
_ENDED, _OPENED, _PACKET = range(3)
MAX_TIMER_S = 60
"""Maximum length of a timer that is waited for."""
MAX_SLACK_NS = 2_000_000_000
"""Maximum time that a server is given beyond the length of a timer."""


@dataclass(slots=True, frozen=True)
class Opening:
    """The step of opening a connection."""

    index: int
    """Of its script."""


@dataclass(slots=True, frozen=True)
class End:
    """The step, or the milestone, of the end of a connection."""

    index: int


@dataclass(slots=True, frozen=True)
class Timer:
    """So much time has passed since a step."""

    number: int
    wait_ns: int


Step = Entry | Opening | End | Timer


@dataclass(slots=True)
class Need:
    """How many of the milestones have to be reached: of all, and of those that tell of changes."""

    all: int = 0
    changes: int = 0


@dataclass(slots=True)
class Order:
    """The order of a set of scripts."""

    needs: dict[Step, Need] = field(default_factory=dict)
    milestones: dict[Step, tuple[int, int | None]] = field(default_factory=dict)
    """Number of each milestone among all, and among those that tell of changes."""
    fences: list[set[Entry]] = field(default_factory=list)
    """By script: messages after which a fence is put, and which stand for it among the milestones."""
    timers: dict[Step, list[Timer]] = field(default_factory=dict)
    """By the step that they count from."""
    too_long: int = 0
    """Timers of more than `MAX_TIMER_S`, which are not waited for."""
    sequence: list[Step] = field(default_factory=list)
    """All milestones."""
    told: list[Step] = field(default_factory=list)
    """Those that tell of changes."""

    @property
    def all(self) -> int:
        return len(self.sequence)

    @property
    def changes(self) -> int:
        return len(self.told)

    def milestone(self, what: Step, *, change: bool) -> None:
        """Add a milestone after those there are."""
        self.milestones[what] = (self.all, self.changes if change else None)
        self.sequence.append(what)
        if change:
            self.told.append(what)

    def need(self, what: Step, *, change: bool) -> None:
        """A step waits for what was added before it."""
        self.needs[what] = Need(self.all if change else 0, self.changes)


def make_order(
    scripts: Iterable[Script],
    *,
    causal: bool = False,
    fenced: bool = True,
    faithful: bool = False,
    unreachable: Container[Entry] = (),
) -> Order:
    """Work out the order of scripts, which may be of several captures.

    With ``faithful`` clients acknowledge with the recorded packet identifiers, so that no server answers them;
    ``unreachable`` are recorded packets of servers that cannot come.
    """
    order = Order()
    scripts = list(scripts)
    happenings: list[tuple[int, int, int, Entry | None]] = []
    for index, script in enumerate(scripts):
        order.fences.append(set())
        happenings.append((script.opened_place, _OPENED, index, None))
        happenings.append((script.ended_place, _ENDED, index, None))
        happenings += [(entry.place, _PACKET, index, entry) for entry in script.entries]
    happenings.sort(key=lambda one: one[:3])
    unproven: dict[int, Entry] = {}
    """By script: the last QoS 0 message that nothing has proven to be handled."""
    keepers: dict[str, int] = {}
    """By topic: the script that published the last retained message."""
    running: list[tuple[int, int, int, Step]] = []
    """A heap of timers: when they elapse, number, how long they are, what they count from."""
    for _, what, index, entry in happenings:
        if entry is None:
            step: Step = Opening(index) if what == _OPENED else End(index)
        else:
            step = entry
            if not entry.from_client:
                if not isinstance(entry.packet, packets.Publish):
                    unproven.pop(index, None)
                if _comes_again(entry, faithful=faithful) and entry not in unreachable:
                    order.milestone(step, change=isinstance(entry.packet, _TOLD))
                continue
        script = scripts[index]
        change = entry is None or isinstance(entry.packet, _CHANGES)
        now = entry.timestamp_ns if entry else script.opened_ns if what == _OPENED else script.ending.timestamp_ns
        if change:
            _elapse(order, running, now)
        replaced = _replaced(entry, index, keepers)
        if fenced and (change or replaced is not None):
            for other in [one for one in unproven if (one != index if change else one == replaced)]:
                message = unproven.pop(other)
                order.fences[other].add(message)
                order.milestone(message, change=False)
        order.need(step, change=change or causal or replaced is not None)
        for length in _timers_of(entry, script) if what != _OPENED else ():
            heapq.heappush(running, (now + length, len(order.needs), length, step))
        if what == _ENDED:
            unproven.pop(index, None)
            order.milestone(step, change=True)
        elif entry is not None and isinstance(entry.packet, packets.Publish) and not entry.packet.qos:
            unproven[index] = entry
    return order


def _replaced(entry: Entry | None, index: int, keepers: dict[str, int]) -> int | None:
    """The other script whose retained message is replaced by this one."""
    if entry is None or entry.topic is None or not isinstance(entry.packet, packets.Publish) or not entry.packet.retain:
        return None
    before = keepers.get(entry.topic, index)
    keepers[entry.topic] = index
    return before if before != index else None


def _comes_again(entry: Entry, *, faithful: bool) -> bool:
    """Whether a live server can be expected to send what the recorded one sent."""
    packet = entry.packet
    if faithful and isinstance(packet, packets.Pubrel):
        return False
    if isinstance(packet, _NO_MILESTONE) or entry.resends is not None:
        return False
    if isinstance(packet, _ANSWERS) and entry.answers is None:
        # What it answers is not in the recording, or was nothing that is answered: neither is it sent.
        return False
    # What a broker tells of itself differs from one run to the next.
    return entry.topic is None or not entry.topic.startswith(_OWN_TOPICS)


def _elapse(order: Order, running: list[tuple[int, int, int, Step]], now: int) -> None:
    """Timers that had elapsed become milestones."""
    while running and running[0][0] <= now:
        elapsed, _, length, start = heapq.heappop(running)
        if length > MAX_TIMER_S * SECOND:
            order.too_long += 1
            continue
        # Servers look at their clocks now and then; the recorded one had done so by the time of this step.
        timer = Timer(order.all, length + min(now - elapsed, MAX_SLACK_NS))
        order.milestone(timer, change=False)
        order.timers.setdefault(start, []).append(timer)


def _timers_of(entry: Entry | None, script: Script) -> Iterator[int]:
    """How long what a step begins takes by itself, in nanoseconds: a PUBLISH, or with ``None`` the end of a script."""
    packet = None if entry is None else entry.packet
    seconds: list[int | None] = []
    if isinstance(packet, packets.Publish) and packet.properties is not None:
        seconds.append(packet.properties.message_expiry_interval)
    elif entry is None:
        connect = script.connect_packet
        seconds.append(script.connection.session_expiry_interval)
        if connect is not None and connect.will is not None and connect.will.properties is not None:
            seconds.append(connect.will.properties.will_delay_interval)
    for one in seconds:
        if one:
            yield one * SECOND


@dataclass(slots=True)
class Gates:
    """Which milestones are reached, and who waits for them."""

    order: Order
    missed: int = 0
    """Milestones that were given up."""
    _all: _Mark = field(init=False)
    _changes: _Mark = field(init=False)

    def __post_init__(self) -> None:
        self._all, self._changes = _Mark(bytearray(self.order.all)), _Mark(bytearray(self.order.changes))

    def open_for(self, step: Step) -> bool:
        need = self.order.needs[step]
        return self._all.at >= need.all and self._changes.at >= need.changes

    def when_open(self, step: Step, call: Callable[[], None]) -> None:
        """Call back when a step may happen (or earlier: ask again)."""
        need = self.order.needs[step]
        mark, wanted = (self._all, need.all) if self._all.at < need.all else (self._changes, need.changes)
        mark.wait(wanted, call)

    def reach(self, what: Step) -> bool:
        """A milestone is reached; returns whether that is new.  What is none is passed over."""
        numbers = self.order.milestones.get(what)
        if numbers is None or self._all.reached[numbers[0]]:
            return False
        # First both, then the calls, which may ask about either.
        calls = self._all.reach(numbers[0])
        if numbers[1] is not None:
            calls += self._changes.reach(numbers[1])
        for call in calls:
            call()
        return True

    @property
    def waiting(self) -> bool:
        return bool(self._all.waiting or self._changes.waiting)

    def blocking(self) -> list[Step]:
        """What the first of those who wait still waits for."""
        found = dict.fromkeys(self._all.missing(self.order.sequence))
        found.update(dict.fromkeys(self._changes.missing(self.order.told)))
        return list(found)

    def give_up(self) -> list[Step]:
        """Let the first of those who wait continue: returns the milestones that were not reached."""
        missed = self.blocking()
        self.missed += len(missed)
        for what in missed:
            self.reach(what)
        return missed


@dataclass(slots=True)
class _Mark:
    """A row of milestones: all before ``at`` are reached."""

    reached: bytearray
    at: int = 0
    waiting: list[tuple[int, int, Callable[[], None]]] = field(default_factory=list)
    _ticket: Callable[[], int] = field(default_factory=lambda: count().__next__)

    def reach(self, number: int) -> list[Callable[[], None]]:
        """Mark one; returns who can continue."""
        self.reached[number] = 1
        if number == self.at:
            end = self.reached.find(0, self.at)
            self.at = len(self.reached) if end < 0 else end
        calls = []
        while self.waiting and self.waiting[0][0] <= self.at:
            calls.append(heapq.heappop(self.waiting)[2])
        return calls

    def missing(self, sequence: list[Step]) -> list[Step]:
        wanted = self.waiting[0][0] if self.waiting else 0
        return [sequence[at] for at in range(self.at, wanted) if not self.reached[at]]

    def wait(self, wanted: int, call: Callable[[], None]) -> None:
        heapq.heappush(self.waiting, (wanted, self._ticket(), call))
