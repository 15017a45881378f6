"""Drives one player of a replay at its connection: sends, waits, and reports reached milestones to the others.

`ClientDriver` sends each recorded step when it is due on the `Timeline`: at recorded times, perhaps faster, with long
silences cut short.  `why_it_failed`, `why_it_fell_short` and `never_came` explain where the replay could not follow
the recording.

`Timeouts` decides how long to wait for the server.  A server that denies read access delivers nothing of a
subscription, and waiting for each message in full would stall the replay.  So the first wait that times out for a
connection and Topic Filter cuts the next one to a quarter, and more and more of the following messages are not waited
for at all.  One message that does come resets this.
"""

from __future__ import annotations

import asyncio
import time
from bisect import bisect_right
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING

from mqttscope.mqtt.packets import Publish, Subscribe
from mqttscope.mqtt.stream import StreamItem, Unparsed
from mqttscope.mqtt.topics import compile_filter, parse_shared
from mqttscope.replay.client.player import AwaitedEvent, ClientPlayer, ClientWait
from mqttscope.replay.live import Close, NoteKind, Send
from mqttscope.replay.order import ConnectionEnd, Gates, Step, Timer
from mqttscope.replay.script import Ending, Script, ScriptEntry
from mqttscope.secrets.credentials import starred_name
from mqttscope.transport.peer import LivePeer

if TYPE_CHECKING:
    from mqttscope.transport.link import Link

MAX_TURN = 200
"""Maximum number of steps of one connection before others get their turn."""
MAX_TURN_BYTES = 256 * 1024
"""Maximum number of bytes sent before checking whether the server reads."""
KEEP_ALIVE_SHARE = 0.75
"""Part of the Keep Alive that passes before a PINGREQ is sent."""
LEAST_TAKEN_BYTES = 1024
"""Minimum number of bytes per second that a reading server takes."""


class MonotonicClock:
    """Real time that never goes back."""

    def __init__(self) -> None:
        self._epoch_ns = time.time_ns() - time.monotonic_ns()
        self.started_ns = time.monotonic_ns()

    def now_ns(self) -> int:
        """Monotonic time in nanoseconds since 1970."""
        return self._epoch_ns + time.monotonic_ns()

    def since_start_ns(self) -> int:
        return time.monotonic_ns() - self.started_ns


@dataclass(slots=True)
class ReplayContext:
    """State shared by all drivers of a replay."""

    gates: Gates
    timeline: Timeline
    clock: MonotonicClock
    patience_s: float
    """Timeout for every packet that the server has to send."""
    rate: float | None = None
    """Maximum number of messages per second, of all connections together."""
    on_match: Callable[[ScriptEntry], None] = lambda _: None
    """Called with each recorded packet that the server has sent."""
    progress: int = 0
    """Counter that grows with every event."""
    sent: int = 0
    received: int = 0
    pending: int = 0
    """Number of running timers: while any runs, silence is not a reason to give up."""
    useful: int = 0
    """Number of recorded packets that the server has sent again."""
    _next_ns: int = 0
    _started: set[Step] = field(default_factory=set)
    _readers: deque[ClientDriver] = field(default_factory=deque)
    """Drivers that have more to read than their turn allows."""

    def line_up(self, reader: ClientDriver) -> None:
        """Queue a driver that has more to read; each turn of the event loop reads one slice of one driver."""
        self._readers.append(reader)
        if len(self._readers) == 1:
            asyncio.get_running_loop().call_soon(self._read_on)

    def _read_on(self) -> None:
        reader = self._readers[0]
        more = reader.read_on()
        self._readers.popleft()
        if more:
            self._readers.append(reader)
        if self._readers:
            asyncio.get_running_loop().call_soon(self._read_on)

    def start_timers(self, step: Step) -> None:
        """Start the timers that count from a step just performed."""
        for timer in self.gates.order.timers.get(step, ()):
            self.pending += 1
            asyncio.get_running_loop().call_later(timer.wait_ns / 1e9, self._elapsed, timer)
        self._started.add(step)

    def drop_timers(self, step: Step) -> None:
        if step not in self._started:
            for timer in self.gates.order.timers.get(step, ()):
                self.gates.reach(timer)

    def _elapsed(self, timer: Timer) -> None:
        self.pending -= 1
        self.progress += 1
        self.gates.reach(timer)

    def may_publish(self) -> float:
        """Seconds that the next message has to wait because of the rate; 0 takes its turn."""
        if self.rate is None:
            return 0.0
        now = self.clock.since_start_ns()
        if now < self._next_ns:
            return (self._next_ns - now) / 1e9
        self._next_ns = max(self._next_ns, now - 10_000_000) + int(1e9 / self.rate)
        return 0.0


@dataclass(slots=True, eq=False)
class ClientDriver(LivePeer):
    """Drives a player; the listener of its link."""

    index: int
    player: ClientPlayer
    context: ReplayContext
    finished: asyncio.Event = field(default_factory=asyncio.Event)
    failure: str = ""
    """Why the connection could not be made, or why it broke."""
    shortfall: str = ""
    """Why the recorded steps could not be completed, although nothing broke."""
    _paused: bool = False
    _closing: bool = False
    _waiting_for: Step | None = None
    _until: AwaitedEvent | None = None
    """Event that the running timeout waits for."""
    _hopeless: AwaitedEvent | None = None
    """Event that timed out, while nothing has come since."""
    _timer: asyncio.TimerHandle | None = None
    _patience: asyncio.TimerHandle | None = None
    _stuck: asyncio.TimerHandle | None = None
    """Timer that runs while the server does not read."""
    _unsent: int = 0
    _keep_alive: asyncio.TimerHandle | None = None
    _closed: asyncio.Task[None] | None = None
    _performed_ns: int = 0
    """Recorded time of the last step."""

    def __post_init__(self) -> None:
        self.stream.version = self.player.version

    # Called by the link

    def opened(self, link: Link) -> None:
        self.link = link
        self._performed_ns = self.player.script.opened_ns
        self.wake()

    def failed(self, detail: str) -> None:
        self.failure = detail
        self._finish(Ending("refused", "server", self.context.clock.now_ns(), detail))

    def wait_for_turn(self) -> None:
        self.context.line_up(self)

    def parse(self, data: bytes) -> None:
        """Process bytes of the server."""
        now = self.context.clock.now_ns()
        player = self.player
        useful, before = len(player.correspondence.matched), player.progress
        for item in self.stream.feed(data):
            self._process(item, now)
        self.context.useful += len(player.correspondence.matched) - useful
        if self._keep_alive is None:
            # The Keep Alive counts from the CONNECT, also for a client that sends nothing more.
            self._watch_keep_alive()
        if player.progress != before:
            # Packets that the recording does not have, such as the answer to our own PINGREQ, prolong no wait.
            self._hopeless = None
            self._forget_patience()
        self.pump()

    def _process(self, item: StreamItem, now_ns: int) -> None:
        if isinstance(item, Unparsed):
            if item.reason == "too_large":
                limit = self.stream.max_packet_bytes
                self.player.live.note(NoteKind.ENDED, f"a packet of more than {limit:,} bytes was not kept")
            return
        self.player.receive(item, now_ns)
        self.context.received += 1

    @property
    def has_room(self) -> bool:
        """Whether few enough acknowledgements are pending."""
        return not self.player.acknowledger.busy

    def on_end(self, how: str, detail: str) -> None:
        """The server has ended the connection, or it broke."""
        if self._closing:
            return
        if how == "failed":
            self.failure = detail
        self._finish(Ending(how, "server", self.context.clock.now_ns(), detail))

    def stop(self) -> None:
        """End now, whatever steps are left."""
        if self.link is None:
            self._finish(Ending("refused", "client", self.context.clock.now_ns(), "stopped", stopped=True))
            return
        self.link.abort()
        self._finish(Ending("reset", "client", self.context.clock.now_ns(), "stopped", stopped=True))

    def await_nothing(self) -> None:
        """Let no connection wait for recorded packets of this connection's server any longer."""
        self.player.correspondence.await_nothing()
        self._reach_milestones()

    def writable(self, on: bool) -> None:
        """Note whether the server reads."""
        self._paused = not on
        if on:
            self._forget_stuck()
            self.wake()
        elif self._stuck is None:
            self._watch_stuck()

    def _watch_stuck(self) -> None:
        assert self.link is not None
        self._unsent = self.link.unsent
        self._stuck = asyncio.get_running_loop().call_later(self.context.patience_s, self._see_stuck)

    def _see_stuck(self) -> None:
        """Reset the connection if the server has read too little."""
        link = self.link
        self._stuck = None
        if link is None or self.is_over or self._closing:
            return
        if self._unsent - link.unsent >= LEAST_TAKEN_BYTES * self.context.patience_s:
            self._watch_stuck()
            return
        self.player.gave_up = AwaitedEvent.TAKEN
        self.player.live.note(NoteKind.ENDED, "reset by us, since the server read no more")
        link.abort()
        self._finish(Ending("reset", "client", self.context.clock.now_ns()))

    def _forget_stuck(self) -> None:
        if self._stuck is not None:
            self._stuck.cancel()
            self._stuck = None

    # Internal

    def pump(self) -> None:
        """Perform what can be done now."""
        self._is_woken = False
        link = self.link
        if link is None or self.is_over:
            return
        sent: list[bytes] = []
        before = self.player.progress
        has_more = self._collect(sent)
        if sent:
            link.write(b"".join(sent))
            self.context.sent += len(sent)
            self._watch_keep_alive()
        self.context.progress += self.player.progress - before
        self._reach_milestones()
        self.listen()
        if has_more:
            self.wake()

    def _collect(self, sent: list[bytes]) -> bool:
        """Collect packets to send; returns whether more can follow at once."""
        player, context = self.player, self.context
        timers = context.gates.order.timers
        now, sending = context.clock.now_ns(), 0
        for _ in range(MAX_TURN):
            if sending > MAX_TURN_BYTES:
                return True
            if self._paused or self._closing:
                # Acknowledgements wait too: a server that does not read would fill our memory.
                return False
            sent += [send.data for send in player.react(now)]
            if not player.urgent and not self._is_turn():
                break
            action = player.perform(now)
            if not isinstance(action, ClientWait):
                self._forget_patience()
            if isinstance(action, Send):
                sent.append(action.data)
                sending += len(action.data)
                source = action.entry.source
                if source is not None:
                    self._performed_ns = source.timestamp_ns
                    if source in timers:
                        context.start_timers(source)
            elif isinstance(action, ClientWait):
                if action.until is self._hopeless:
                    # The steps after the one that timed out would wait for the same event.
                    action = player.give_up()
                    continue
                self._wait(action.until)
                break
            elif isinstance(action, Close):
                self._close(action.how, sent)
                return False
        else:
            return True
        due = player.acknowledger.due_ns
        if due is not None:
            self._wake_after((due - now) / 1e9)
        return False

    def _is_turn(self) -> bool:
        """Whether the next step may happen now; otherwise schedules a later check."""
        context, entry = self.context, self.player.peek()
        recorded_ns = entry.timestamp_ns if entry is not None else self.player.script.ending.timestamp_ns
        wait_ns = context.timeline.due_ns(recorded_ns) - context.clock.since_start_ns()
        if wait_ns > 0:
            self._wake_after(wait_ns / 1e9)
            return False
        # Only a step that is due waits for others, so that silence means that something does not come.
        step: Step = entry if entry is not None else ConnectionEnd(self.index)
        if not context.gates.open_for(step):
            if self._waiting_for != step:
                self._waiting_for = step
                context.gates.when_open(step, self._gate_opened)
            return False
        if entry is not None and context.rate is not None and isinstance(entry.packet, Publish):
            seconds = context.may_publish()
            if seconds:
                self._wake_after(seconds)
                return False
        return True

    def _gate_opened(self) -> None:
        self._waiting_for = None
        self.wake()

    def _wake_after(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        when = loop.time() + max(0.0, seconds)
        if self._timer is not None:
            if loop.time() < self._timer.when() <= when:
                return
            self._timer.cancel()
        self._timer = loop.call_at(when, self.wake)

    def _wait(self, until: AwaitedEvent) -> None:
        if self._patience is None:
            self._until = until
            seconds = self.context.patience_s
            if until is AwaitedEvent.CLOSE:
                seconds += self._recorded_silence_s()
            self.context.pending += 1
            self._patience = asyncio.get_running_loop().call_later(seconds, self._lose_patience)

    def _recorded_silence_s(self) -> float:
        """Silence before the recorded server closed for a missed Keep Alive; 0 if it closed for another reason."""
        script, keep_alive = self.player.script, self.player.connection.keep_alive or 0
        last = next((entry.timestamp_ns for entry in reversed(script.entries) if entry.from_client), script.opened_ns)
        silence = (script.ending.timestamp_ns - last) / 1e9
        return silence if 0 < keep_alive <= silence else 0.0

    def _lose_patience(self) -> None:
        self._forget_patience()
        # The end of a connection is waited for only once.
        self._hopeless = None if self._until is AwaitedEvent.CLOSE else self._until
        action = self.player.give_up()
        if isinstance(action, Close):
            self.player.live.note(NoteKind.ENDED, "ended by us, since the server did not end it")
            self._close(action.how, [])
        self._reach_milestones()
        self.wake()

    def _forget_patience(self) -> None:
        if self._patience is not None:
            self.context.pending -= 1
            self._patience.cancel()
            self._patience = None

    def _close(self, how: str, sent: list[bytes]) -> None:
        link = self.link
        assert link is not None
        self._closing = True
        if sent:
            link.write(b"".join(sent))
            self.context.sent += len(sent)
            sent.clear()
        if how == "reset":
            link.abort()
            self._finish(Ending("reset", "client", self.context.clock.now_ns()))
        else:
            link.close()
            self._closed = asyncio.create_task(self._await_close(link))

    async def _await_close(self, link: Link) -> None:
        """The connection has ended once the server has ended it too."""
        await link.closed.wait()
        self._finish(Ending("fin", "client", self.context.clock.now_ns()))

    def _finish(self, ending: Ending) -> None:
        if self.is_over:
            return
        for timer in (self._timer, self._keep_alive):
            if timer is not None:
                timer.cancel()
        self._forget_patience()
        self._forget_stuck()
        self.unread.clear()
        self.is_over = True
        self.finished.set()
        self.failure = self.failure or why_it_failed(self.player, ending, self.context.patience_s)
        self.shortfall = "" if self.failure else why_it_fell_short(self.player, ending)
        self.player.ended(ending)
        if self.link is not None:
            self.link.close()
        self._reach_milestones()
        if self.link is not None:
            self.context.start_timers(ConnectionEnd(self.index))
        self.context.drop_timers(ConnectionEnd(self.index))
        for skipped in self.player.skipped:
            self.context.drop_timers(skipped)
        self.context.gates.reach(ConnectionEnd(self.index))
        self.context.progress += 1

    def _reach_milestones(self) -> None:
        """Report to all connections which milestones are reached."""
        done, gates = self.player.correspondence.done, self.context.gates
        while done:
            reached = done.copy()
            done.clear()
            for entry in reached:
                if entry in self.player.correspondence.matched:
                    self.context.on_match(entry)
                if gates.reach(entry):
                    self.context.progress += 1

    def _watch_keep_alive(self) -> None:
        """Restart the timer for a PINGREQ, needed when the live pace is slower than the recorded one."""
        keep_alive_ns = self.player.keep_alive_ns
        if self._keep_alive is not None:
            self._keep_alive.cancel()
            self._keep_alive = None
        if keep_alive_ns and not self.player.options.faithful:
            self._keep_alive = asyncio.get_running_loop().call_later(KEEP_ALIVE_SHARE * keep_alive_ns / 1e9, self._ping)

    def _ping(self) -> None:
        self._keep_alive = None
        player, link = self.player, self.link
        if link is None or self._closing or self.is_over or player.over:
            return
        if self._paused:
            # The bytes that wait to be sent keep the connection alive as well.
            self._watch_keep_alive()
            return
        entry: ScriptEntry | None = player.peek()
        until_ns = entry.timestamp_ns if entry is not None else player.script.ending.timestamp_ns
        if until_ns - self._performed_ns > 1.5 * player.keep_alive_ns:
            # The recorded client was silent for longer than servers tolerate (5.0 3.1.2.10).
            return
        link.write(player.ping(self.context.clock.now_ns()).data)
        self.context.sent += 1
        self._watch_keep_alive()


LESS = 4
"""Divisor of the timeout after each wait that timed out, and factor for the messages not waited for."""

Expectation = tuple[int, str]
"""A connection, by the index of its script, and the Topic Filter of the awaited messages."""


@dataclass(slots=True)
class Timeouts:
    """Timeouts for packets of the server, shorter where it has failed to send."""

    scripts: Sequence[Script]
    seconds: float
    """Timeout where the server has not failed to send before."""
    vain: dict[Expectation, int] = field(default_factory=dict)
    """Number of consecutive waits that timed out."""
    learned: dict[Expectation, int] = field(default_factory=dict)
    """Number of messages not waited for in full, since earlier ones did not come."""
    _awaited: dict[ScriptEntry, Expectation] | None = None
    _behind: dict[Expectation, list[ScriptEntry]] = field(default_factory=dict)

    def for_steps(self, blocking: Iterable[Step]) -> float:
        """Timeout in seconds for these milestones."""
        return max(
            (self.seconds / LESS ** self.vain.get(self._expectation(step) or (-1, ""), 0) for step in blocking),
            default=0,
        )

    def time_out(self, missed: Iterable[Step]) -> list[ScriptEntry]:
        """The wait for these steps timed out; returns further packets that are not to be waited for."""
        given_up: list[ScriptEntry] = []
        last: dict[Expectation, ScriptEntry] = {}
        for step in missed:
            expectation = self._expectation(step)
            if expectation is not None and isinstance(step, ScriptEntry):
                if expectation in self.vain:
                    self.learned[expectation] = self.learned.get(expectation, 0) + 1
                last[expectation] = step
        for expectation, entry in last.items():
            times = self.vain[expectation] = self.vain.get(expectation, 0) + 1
            if times > 1:
                later = [delivery for delivery in self._behind[expectation] if delivery.place > entry.place]
                given_up += later[: LESS**times]
                self.learned[expectation] = self.learned.get(expectation, 0) + len(later[: LESS**times])
        return given_up

    def note_arrival(self, entry: ScriptEntry) -> None:
        if self.vain:
            self.vain.pop(self._expectation(entry) or (-1, ""), None)

    def awaited_on(self, entry: ScriptEntry) -> str:
        """The Topic Filter that a recorded message is awaited on."""
        expectation = self._expectation(entry)
        return expectation[1] if expectation else entry.topic or ""

    def _expectation(self, step: Step) -> Expectation | None:
        if not isinstance(step, ScriptEntry) or step.from_client or not isinstance(step.packet, Publish):
            return None
        if self._awaited is None:
            self._awaited = dict(self._all_expectations())
            for entry, expectation in self._awaited.items():
                self._behind.setdefault(expectation, []).append(entry)
        return self._awaited.get(step)

    def _all_expectations(self) -> Iterator[tuple[ScriptEntry, Expectation]]:
        """Every delivery with its connection and Topic Filter; its topic if the recording has no such subscription."""
        filters: dict[str, dict[str, Callable[[str], bool]]] = {}
        for index, script in enumerate(self.scripts):
            own_filters = filters.setdefault(script.connection.client_identifier or f"\0{index}", {})
            for entry in script.entries:
                packet = entry.packet
                if isinstance(packet, Subscribe):
                    for row in packet.subscriptions:
                        shared = parse_shared(row.topic_filter) is not None
                        own_filters.setdefault(row.topic_filter, compile_filter(row.topic_filter, shared=shared))
                elif isinstance(packet, Publish) and not entry.from_client and entry.topic is not None:
                    topic = entry.topic
                    matching = (topic_filter for topic_filter, matches in own_filters.items() if matches(topic))
                    yield entry, (index, next(matching, topic))


@dataclass(slots=True)
class Timeline:
    """Converts recorded times to nanoseconds from the start of the replay.

    ``speed``: recorded seconds per second; ``None`` for as soon as possible.  ``max_gap_ns``: maximum
    recorded time without a step of any connection; longer silences are cut to it.
    """

    times: Iterable[int]
    """Recorded times of all steps, in nanoseconds since 1970."""
    speed: float | None = 1.0
    max_gap_ns: int | None = None
    _starts: list[int] = field(default_factory=list)
    """Recorded times of the first step after each cut silence."""
    _cuts: list[int] = field(default_factory=list)
    """Total nanoseconds cut out before each of these times."""
    cut_ns: int = 0
    """Total recorded time cut out."""
    first_ns: int = 0
    last_ns: int = 0

    def __post_init__(self) -> None:
        times = sorted(self.times)
        self.times = ()
        if not times:
            return
        self.first_ns, self.last_ns = times[0], times[-1]
        self._starts, self._cuts = [times[0]], [0]
        if self.max_gap_ns is None:
            return
        for before, after in pairwise(times):
            if after - before > self.max_gap_ns:
                self.cut_ns += after - before - self.max_gap_ns
                self._starts.append(after)
                self._cuts.append(self.cut_ns)

    def due_ns(self, timestamp_ns: int) -> int:
        """Due time of a step, from the start; 0 for as soon as possible."""
        if self.speed is None or not self._starts:
            return 0
        cut = self._cuts[max(0, bisect_right(self._starts, timestamp_ns) - 1)]
        return max(0, int((timestamp_ns - self.first_ns - cut) / self.speed))

    @property
    def length_ns(self) -> int:
        return self.due_ns(self.last_ns)


_OTHER_VERSION = b"\x20\x02\x00\x01"
"""CONNACK of brokers that refuse an unknown version, in the form of 3.1.1 (3.1.1 section 3.2.2.3)."""


def why_it_failed(player: ClientPlayer, ending: Ending, patience_s: float) -> str:
    """Why a connection that was made failed; empty if it did not fail."""
    by_server = ending.by == "server"
    if player.connack is None and player.recorded_connack is not None and (by_server or player.gave_up_connack):
        unreadable = player.unreadable
        if unreadable is not None and unreadable.raw == _OTHER_VERSION:
            return f"the broker does not speak MQTT {player.version.text}"
        if unreadable is not None:
            return f"the broker answered CONNECT with a malformed packet: {unreadable.reason.replace('_', ' ')}"
        if by_server:
            return f"the broker ended a connection before it answered CONNECT: {ending.detail}"
        return f"the broker did not answer CONNECT within {patience_s:g} s"
    return ""


def why_it_fell_short(player: ClientPlayer, ending: Ending) -> str:
    """Why a connection was not played to its recorded end, although the broker kept to the protocol; else empty."""
    if player.refused:
        return f"the broker refused a connection: {player.refused}"
    if ending.by == "server" and player.steps:
        if ending.how == "reset" and player.script.ending.how != "reset" and not player.dismissed:
            return f"a connection broke before its end: {ending.detail}"
        return "the broker ended a connection before its end"
    if player.gave_up:
        return f"a connection waited in vain for {player.gave_up}"
    return ""


def cause(player: ClientPlayer, failure: str) -> str:
    """Common cause of all differences of a connection, as a clause after "because"; empty without a common cause."""
    if failure.startswith("cannot "):
        return f"there is no connection: {failure}"
    return failure or (f"the broker refused the connection: {player.refused}" if player.refused else "")


def never_came(drivers: Collection[ClientDriver], missed: Collection[Step], timeouts: Timeouts) -> Counter[str]:
    """Number of awaited packets that never came, by description."""
    missing: Counter[str] = Counter()
    for driver in drivers if missed else ():
        player = driver.player
        for entry in player.correspondence.awaited:
            if entry not in missed or entry in player.correspondence.matched:
                continue
            description = entry.type.upper()
            if isinstance(entry.packet, Publish):
                description = f"messages of {starred_name(timeouts.awaited_on(entry))!r}"
            missing[f"{description} for {starred_name(player.script.name)}"] += 1
    return missing
