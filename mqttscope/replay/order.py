"""Which events a step waits for: recorded order across connections, where it decides what is delivered.

Every packet of the recorded server, and the end of every connection, is a *milestone* at its place in the capture.  A
step that changes what is delivered to whom (opening, CONNECT, SUBSCRIBE, UNSUBSCRIBE, DISCONNECT, the end of a
connection) waits for all milestones before it.  Any other step waits only for earlier milestones that confirm such a
change (CONNACK, SUBACK, UNSUBACK, an end).  A retained message that replaces another client's also waits for all,
since the last one stays.  With ``causal`` every step waits for all.

Some effects come with time: sessions and messages expire, Wills are delayed.  They take as long in the replay: a
*timer* starts with the step that it counts from, and is a milestone before the first later step that changes what is
delivered.

QoS 0 messages are never answered.  If another connection then changes what is delivered, a *fence* follows the
message: a PINGREQ with an answer that proves that the server has handled the packets before it.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Container, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import count

from mqttscope.mqtt import packets
from mqttscope.mqtt.declare import Malformed
from mqttscope.replay.script import Script, ScriptEntry

_CHANGES = (packets.Connect, packets.Subscribe, packets.Unsubscribe, packets.Disconnect)
_CHANGE_ANSWERS = (packets.Connack, packets.Suback, packets.Unsuback)
_NO_MILESTONE = (packets.Disconnect, Malformed)
_ANSWERS = (packets.Acknowledgement, packets.Suback, packets.Unsuback)
_OWN_TOPICS = "$SYS/"
SECOND = 1_000_000_000
_ENDED, _OPENED, _PACKET = range(3)
MAX_TIMER_S = 60
"""Maximum length of a timer; longer ones are not waited for."""
MAX_SLACK_NS = 2_000_000_000
"""Maximum time granted to a server beyond the length of a timer."""


@dataclass(slots=True, frozen=True)
class ConnectionOpening:
    """The step of opening a connection."""

    index: int
    """Index of its script."""


@dataclass(slots=True, frozen=True)
class ConnectionEnd:
    """The step or milestone of the end of a connection."""

    index: int


@dataclass(slots=True, frozen=True)
class Timer:
    """A time that has passed since a step."""

    number: int
    wait_ns: int


Step = ScriptEntry | ConnectionOpening | ConnectionEnd | Timer


@dataclass(slots=True)
class RequiredMilestones:
    """Number of milestones that have to be reached: of all, and of those confirming a change."""

    all: int = 0
    changes: int = 0


@dataclass(slots=True)
class StepOrder:
    """Order of the steps of a set of scripts."""

    needs: dict[Step, RequiredMilestones] = field(default_factory=dict)
    milestones: dict[Step, tuple[int, int | None]] = field(default_factory=dict)
    """Number of each milestone among all, and among the milestones confirming a change."""
    fences: list[set[ScriptEntry]] = field(default_factory=list)
    """Messages followed by a fence, by script; among the milestones they stand for the fence."""
    timers: dict[Step, list[Timer]] = field(default_factory=dict)
    """Timers by the step that they count from."""
    too_long: int = 0
    """Number of timers longer than `MAX_TIMER_S`, which are not waited for."""
    sequence: list[Step] = field(default_factory=list)
    """All milestones."""
    change_sequence: list[Step] = field(default_factory=list)
    """Milestones confirming a change."""

    @property
    def all(self) -> int:
        return len(self.sequence)

    @property
    def changes(self) -> int:
        return len(self.change_sequence)

    def milestone(self, milestone: Step, *, change: bool) -> None:
        """Append a milestone."""
        self.milestones[milestone] = (self.all, self.changes if change else None)
        self.sequence.append(milestone)
        if change:
            self.change_sequence.append(milestone)

    def need(self, step: Step, *, change: bool) -> None:
        """Let a step wait for the milestones appended before it."""
        self.needs[step] = RequiredMilestones(self.all if change else 0, self.changes)


def make_order(
    scripts: Iterable[Script],
    *,
    causal: bool = False,
    fenced: bool = True,
    faithful: bool = False,
    unreachable: Container[ScriptEntry] = (),
) -> StepOrder:
    """Work out the order of scripts, which may come from several captures.

    With ``faithful`` clients acknowledge with the recorded packet identifiers, which no server answers.
    ``unreachable``: recorded packets of servers that cannot come.
    """
    order = StepOrder()
    scripts = list(scripts)
    happenings: list[tuple[int, int, int, ScriptEntry | None]] = []
    for index, script in enumerate(scripts):
        order.fences.append(set())
        happenings.append((script.opened_place, _OPENED, index, None))
        happenings.append((script.ended_place, _ENDED, index, None))
        happenings += [(entry.place, _PACKET, index, entry) for entry in script.entries]
    happenings.sort(key=lambda event: event[:3])
    unproven: dict[int, ScriptEntry] = {}
    """Last QoS 0 message not yet proven to be handled, by script."""
    keepers: dict[str, int] = {}
    """Script that published the last retained message, by topic."""
    running: list[tuple[int, int, int, Step]] = []
    """Heap of timers: end, number, length, and the step that they count from."""
    for _, kind, index, entry in happenings:
        if entry is None:
            step: Step = ConnectionOpening(index) if kind == _OPENED else ConnectionEnd(index)
        else:
            step = entry
            if not entry.from_client:
                if not isinstance(entry.packet, packets.Publish):
                    unproven.pop(index, None)
                if _is_expected_again(entry, faithful=faithful) and entry not in unreachable:
                    order.milestone(step, change=isinstance(entry.packet, _CHANGE_ANSWERS))
                continue
        script = scripts[index]
        change = entry is None or isinstance(entry.packet, _CHANGES)
        now = entry.timestamp_ns if entry else script.opened_ns if kind == _OPENED else script.ending.timestamp_ns
        if change:
            _add_elapsed_timers(order, running, now)
        replaced = _replaced_publisher(entry, index, keepers)
        if fenced and (change or replaced is not None):
            for other in [at for at in unproven if (at != index if change else at == replaced)]:
                message = unproven.pop(other)
                order.fences[other].add(message)
                order.milestone(message, change=False)
        order.need(step, change=change or causal or replaced is not None)
        for length in _timers_of(entry, script) if kind != _OPENED else ():
            heapq.heappush(running, (now + length, len(order.needs), length, step))
        if kind == _ENDED:
            unproven.pop(index, None)
            order.milestone(step, change=True)
        elif entry is not None and isinstance(entry.packet, packets.Publish) and not entry.packet.qos:
            unproven[index] = entry
    return order


def _replaced_publisher(entry: ScriptEntry | None, index: int, keepers: dict[str, int]) -> int | None:
    """The other script that published the retained message replaced by this one."""
    if entry is None or entry.topic is None or not isinstance(entry.packet, packets.Publish) or not entry.packet.retain:
        return None
    before = keepers.get(entry.topic, index)
    keepers[entry.topic] = index
    return before if before != index else None


def _is_expected_again(entry: ScriptEntry, *, faithful: bool) -> bool:
    """Whether a live server is expected to send a packet that the recorded one sent."""
    packet = entry.packet
    if faithful and isinstance(packet, packets.Pubrel):
        return False
    if isinstance(packet, _NO_MILESTONE) or entry.resends is not None:
        return False
    if isinstance(packet, _ANSWERS) and entry.answers is None:
        # Its request is not in the recording, or was not answered as such: neither is it sent.
        return False
    # A broker's messages about itself differ from one run to the next.
    return entry.topic is None or not entry.topic.startswith(_OWN_TOPICS)


def _add_elapsed_timers(order: StepOrder, running: list[tuple[int, int, int, Step]], now: int) -> None:
    """Make milestones of the timers that have elapsed."""
    while running and running[0][0] <= now:
        elapsed, _, length, start = heapq.heappop(running)
        if length > MAX_TIMER_S * SECOND:
            order.too_long += 1
            continue
        # Servers check their clocks at intervals; the recorded one had done so by the time of this step.
        timer = Timer(order.all, length + min(now - elapsed, MAX_SLACK_NS))
        order.milestone(timer, change=False)
        order.timers.setdefault(start, []).append(timer)


def _timers_of(entry: ScriptEntry | None, script: Script) -> Iterator[int]:
    """Durations in nanoseconds that begin with a step: with a PUBLISH, or with the end of a script (``None``)."""
    packet = None if entry is None else entry.packet
    seconds: list[int | None] = []
    if isinstance(packet, packets.Publish) and packet.properties is not None:
        seconds.append(packet.properties.message_expiry_interval)
    elif entry is None:
        connect = script.connect_packet
        seconds.append(script.connection.session_expiry_interval)
        if connect is not None and connect.will is not None and connect.will.properties is not None:
            seconds.append(connect.will.properties.will_delay_interval)
    for interval in seconds:
        if interval:
            yield interval * SECOND


@dataclass(slots=True)
class Gates:
    """Reached milestones, and callbacks of the steps that wait for others."""

    order: StepOrder
    missed: int = 0
    """Number of milestones given up."""
    _all: _MilestoneRow = field(init=False)
    _changes: _MilestoneRow = field(init=False)

    def __post_init__(self) -> None:
        self._all = _MilestoneRow(bytearray(self.order.all))
        self._changes = _MilestoneRow(bytearray(self.order.changes))

    def open_for(self, step: Step) -> bool:
        need = self.order.needs[step]
        return self._all.at >= need.all and self._changes.at >= need.changes

    def when_open(self, step: Step, call: Callable[[], None]) -> None:
        """Call back when a step may happen, or earlier: check again then."""
        need = self.order.needs[step]
        mark, position = (self._all, need.all) if self._all.at < need.all else (self._changes, need.changes)
        mark.wait(position, call)

    def reach(self, milestone: Step) -> bool:
        """Mark a milestone as reached; returns whether that is new.  Ignores steps that are not milestones."""
        numbers = self.order.milestones.get(milestone)
        if numbers is None or self._all.reached[numbers[0]]:
            return False
        # Mark both before the callbacks, which may ask about either.
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
        """Milestones that the first waiting step still needs."""
        missing = dict.fromkeys(self._all.missing(self.order.sequence))
        missing.update(dict.fromkeys(self._changes.missing(self.order.change_sequence)))
        return list(missing)

    def give_up(self) -> list[Step]:
        """Give up the milestones that the first waiting step needs; returns them."""
        missed = self.blocking()
        self.missed += len(missed)
        for milestone in missed:
            self.reach(milestone)
        return missed


@dataclass(slots=True)
class _MilestoneRow:
    """A sequence of milestones; all before ``at`` are reached."""

    reached: bytearray
    at: int = 0
    waiting: list[tuple[int, int, Callable[[], None]]] = field(default_factory=list)
    _ticket: Callable[[], int] = field(default_factory=lambda: count().__next__)

    def reach(self, number: int) -> list[Callable[[], None]]:
        """Mark a milestone; returns the callbacks that are no longer blocked."""
        self.reached[number] = 1
        if number == self.at:
            end = self.reached.find(0, self.at)
            self.at = len(self.reached) if end < 0 else end
        calls = []
        while self.waiting and self.waiting[0][0] <= self.at:
            calls.append(heapq.heappop(self.waiting)[2])
        return calls

    def missing(self, sequence: list[Step]) -> list[Step]:
        position = self.waiting[0][0] if self.waiting else 0
        return [sequence[at] for at in range(self.at, position) if not self.reached[at]]

    def wait(self, position: int, call: Callable[[], None]) -> None:
        heapq.heappush(self.waiting, (position, self._ticket(), call))
