"""Drives one player of a replay at its connection: sends, waits, and reports the steps reached to the others.

`ClientDriver` sends each recorded step when it is due on the `Timeline`: recorded time, perhaps faster, with long
silences cut short.  Where the replay could not follow the recording, `why_it_failed`, `why_it_fell_short` and
`never_came` give the reason in words.

`Timeouts` decides how long to wait for the server.  A server that denies read access delivers nothing of a
subscription, and waiting for each message in full would stall the replay.  So the first vain wait for a connection and
Topic Filter cuts the next one to a quarter, and ever more of the messages that follow are not waited for at all.  One
message that does come resets this.
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
from mqttscope.mqtt.stream import PacketStream, StreamItem, Unparsed
from mqttscope.mqtt.topics import compile_filter, parse_shared
from mqttscope.replay.client.player import ClientPlayer, Until, Wait
from mqttscope.replay.live import Close, NoteKind, Send
from mqttscope.replay.order import End, Gates, Step, Timer
from mqttscope.replay.script import Ending, Entry, Script
from mqttscope.secrets.credentials import starred_name

if TYPE_CHECKING:
    from mqttscope.transport.link import Link

MAX_TURN = 200
"""Steps that one connection takes before others get their turn."""
MAX_TURN_BYTES = 256 * 1024
"""So much is sent before it is looked whether the server takes it."""
MAX_SLICE_BYTES = 16 * 1024
"""So much of one connection is read before others, timers and signals get their turn."""
KEEP_ALIVE_SHARE = 0.75
"""Part of the Keep Alive after which a PINGREQ is sent."""
LEAST_TAKEN_BYTES = 1024
"""A server that takes less than this in each second reads no more."""


class MonotonicClock:
    """Real time without its steps."""

    def __init__(self) -> None:
        self._epoch_ns = time.time_ns() - time.monotonic_ns()
        self.started_ns = time.monotonic_ns()

    def now_ns(self) -> int:
        """Nanoseconds since 1970, which never go back."""
        return self._epoch_ns + time.monotonic_ns()

    def since_start_ns(self) -> int:
        """Nanoseconds since the replay began."""
        return time.monotonic_ns() - self.started_ns


@dataclass(slots=True)
class ReplayContext:
    """What all drivers of a replay share."""

    gates: Gates
    timeline: Timeline
    clock: MonotonicClock
    patience_s: float
    """How long anything is waited for that the server has to send."""
    rate: float | None = None
    """Messages per second of all connections together, at most."""
    came: Callable[[Entry], None] = lambda _: None
    """Told what the server has sent of what was recorded."""
    progress: int = 0
    """Grows with everything that happens."""
    sent: int = 0
    received: int = 0
    pending: int = 0
    """Timers that run: while there are any, silence is no reason to give up."""
    useful: int = 0
    """Packets of the recording that the server has sent again."""
    _next_ns: int = 0
    _started: set[Step] = field(default_factory=set)
    _readers: deque[ClientDriver] = field(default_factory=deque)
    """Those who have more to read than their turn allows."""

    def line_up(self, reader: ClientDriver) -> None:
        """Somebody has more to read than its turn allows: one slice of one of them in each turn of the event loop."""
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
        """A step was taken, from which timers may count."""
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
        """How many seconds the next message has to wait for the rate; 0 takes its turn."""
        if self.rate is None:
            return 0.0
        now = self.clock.since_start_ns()
        if now < self._next_ns:
            return (self._next_ns - now) / 1e9
        self._next_ns = max(self._next_ns, now - 10_000_000) + int(1e9 / self.rate)
        return 0.0


@dataclass(slots=True, eq=False)
class ClientDriver:
    """Drives a player; the listener of its link."""

    index: int
    player: ClientPlayer
    context: ReplayContext
    finished: asyncio.Event = field(default_factory=asyncio.Event)
    link: Link | None = None
    failure: str = ""
    """Why there was no connection, or why it broke."""
    shortfall: str = ""
    """Why what was recorded of it could not be done, although nothing broke."""
    _stream: PacketStream = field(default_factory=PacketStream)
    _unread: deque[bytes] = field(default_factory=deque)
    """What has come and was not looked at yet; meanwhile nothing more is read."""
    _position: int = 0
    """In the first of it."""
    _end: tuple[str, str] | None = None
    """How the server ended, after what is not read yet."""
    _reading: bool = True
    _paused: bool = False
    _closing: bool = False
    _arranged: bool = False
    _waiting_for: Step | None = None
    _until: Until | None = None
    """What it loses its patience with."""
    _hopeless: Until | None = None
    """What did not come in time, while nothing has come since."""
    _timer: asyncio.TimerHandle | None = None
    _patience: asyncio.TimerHandle | None = None
    _stuck: asyncio.TimerHandle | None = None
    """Runs while the server does not take what is sent."""
    _unsent: int = 0
    _keep_alive: asyncio.TimerHandle | None = None
    _closed: asyncio.Task[None] | None = None
    _performed_ns: int = 0
    """Recorded time of the last step."""

    def __post_init__(self) -> None:
        self._stream.version = self.player.version

    def limit_packets(self, longest: int) -> None:
        """Pass over packets of the server that are longer."""
        self._stream.max_packet_bytes = longest

    # Of the link

    def opened(self, link: Link) -> None:
        self.link = link
        self._performed_ns = self.player.script.opened_ns
        self.wake()

    def failed(self, detail: str) -> None:
        self.failure = detail
        self._over(Ending("refused", "server", self.context.clock.now_ns(), detail))

    def received(self, data: bytes) -> None:
        """Bytes of the server."""
        if not self._unread and len(data) <= MAX_SLICE_BYTES:
            self._hear(data)
            return
        self._unread.append(data)
        if len(self._unread) == 1:
            self.context.line_up(self)
            self._read()

    def read_on(self) -> bool:
        """Look at some of what has come; returns whether there is more."""
        if self.finished.is_set():
            self._unread.clear()
        if not self._unread:
            return False
        first, start = self._unread[0], self._position
        self._position += MAX_SLICE_BYTES
        if self._position >= len(first):
            self._unread.popleft()
            self._position = 0
        self._hear(first[start : start + MAX_SLICE_BYTES])
        if not self._unread:
            self._read()
            if self._end is not None:
                self.ended(*self._end)
        return bool(self._unread)

    def _hear(self, data: bytes) -> None:
        now = self.context.clock.now_ns()
        player = self.player
        useful, before = len(player.correspondence.came), player.progress
        for item in self._stream.feed(data):
            self._take(item, now)
        self.context.useful += len(player.correspondence.came) - useful
        if self._keep_alive is None:
            # It counts from the CONNECT on, also for a client that says nothing more.
            self._watch_keep_alive()
        if player.progress != before:
            # What the recording does not have, such as the answer to a PINGREQ of our own, prolongs no wait.
            self._hopeless = None
            self._forget_patience()
        self.pump()

    def _take(self, item: StreamItem, now_ns: int) -> None:
        if isinstance(item, Unparsed):
            if item.reason == "too_large":
                limit = self._stream.max_packet_bytes
                self.player.live.note(NoteKind.ENDED, f"a packet of more than {limit:,} bytes was not kept")
            return
        self.player.receive(item, now_ns)
        self.context.received += 1

    def _read(self) -> None:
        """Read on, unless more has come than was looked at, or than can be acknowledged."""
        reading = not self._unread and not self.player.acknowledger.busy
        if self.link is not None and reading is not self._reading and not self._closing:
            self._reading = reading
            self.link.read(reading)

    def ended(self, how: str, detail: str) -> None:
        """The server has ended the connection, or it broke."""
        if self._closing:
            return
        if self._unread:
            self._end = how, detail
            return
        if how == "failed":
            self.failure = detail
        self._over(Ending(how, "server", self.context.clock.now_ns(), detail))

    def stop(self) -> None:
        """End now, whatever is left to do."""
        if self.link is None:
            self._over(Ending("refused", "client", self.context.clock.now_ns(), "stopped", stopped=True))
            return
        self.link.abort()
        self._over(Ending("reset", "client", self.context.clock.now_ns(), "stopped", stopped=True))

    def await_nothing(self) -> None:
        """Nobody waits any longer for what the server was recorded to send."""
        self.player.correspondence.await_nothing()
        self._tell()

    def writable(self, on: bool) -> None:
        """Whether the server takes what is sent."""
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
        """Whether the server has taken anything of what is sent."""
        link = self.link
        self._stuck = None
        if link is None or self.finished.is_set() or self._closing:
            return
        if self._unsent - link.unsent >= LEAST_TAKEN_BYTES * self.context.patience_s:
            self._watch_stuck()
            return
        self.player.gave_up = Until.TAKEN
        self.player.live.note(NoteKind.ENDED, "reset by us, since the server read no more")
        link.abort()
        self._over(Ending("reset", "client", self.context.clock.now_ns()))

    def _forget_stuck(self) -> None:
        if self._stuck is not None:
            self._stuck.cancel()
            self._stuck = None

    # Its own

    def wake(self) -> None:
        if not self._arranged and not self.finished.is_set():
            self._arranged = True
            asyncio.get_running_loop().call_soon(self.pump)

    def pump(self) -> None:
        """Do what can be done now."""
        self._arranged = False
        link = self.link
        if link is None or self.finished.is_set():
            return
        sent: list[bytes] = []
        before = self.player.progress
        again = self._turn(sent)
        if sent:
            link.write(b"".join(sent))
            self.context.sent += len(sent)
            self._watch_keep_alive()
        self.context.progress += self.player.progress - before
        self._tell()
        self._read()
        if again:
            self.wake()

    def _turn(self, sent: list[bytes]) -> bool:
        """Collect what is to be sent; returns whether there is more at once."""
        player, context = self.player, self.context
        timers = context.gates.order.timers
        now, sending = context.clock.now_ns(), 0
        for _ in range(MAX_TURN):
            if sending > MAX_TURN_BYTES:
                return True
            if self._paused or self._closing:
                # Nor is anything acknowledged: a server that does not read would fill our memory.
                return False
            sent += [send.data for send in player.react(now)]
            if not player.urgent and not self._is_turn():
                break
            action = player.perform(now)
            if not isinstance(action, Wait):
                self._forget_patience()
            if isinstance(action, Send):
                sent.append(action.data)
                sending += len(action.data)
                source = action.entry.source
                if source is not None:
                    self._performed_ns = source.timestamp_ns
                    if source in timers:
                        context.start_timers(source)
            elif isinstance(action, Wait):
                if action.until is self._hopeless:
                    # The steps after the one that waited in vain would wait for the same.
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
            self._at((due - now) / 1e9)
        return False

    def _is_turn(self) -> bool:
        """Whether the next step may happen now; arranges for later otherwise."""
        context, entry = self.context, self.player.peek()
        recorded_ns = entry.timestamp_ns if entry is not None else self.player.script.ending.timestamp_ns
        wait_ns = context.timeline.due_ns(recorded_ns) - context.clock.since_start_ns()
        if wait_ns > 0:
            self._at(wait_ns / 1e9)
            return False
        # Only what is due waits for others, so that silence means that something does not come.
        step: Step = entry if entry is not None else End(self.index)
        if not context.gates.open_for(step):
            if self._waiting_for != step:
                self._waiting_for = step
                context.gates.when_open(step, self._gate_opened)
            return False
        if entry is not None and context.rate is not None and isinstance(entry.packet, Publish):
            seconds = context.may_publish()
            if seconds:
                self._at(seconds)
                return False
        return True

    def _gate_opened(self) -> None:
        self._waiting_for = None
        self.wake()

    def _at(self, seconds: float) -> None:
        """Look again after so long, or earlier."""
        loop = asyncio.get_running_loop()
        when = loop.time() + max(0.0, seconds)
        if self._timer is not None:
            if loop.time() < self._timer.when() <= when:
                return
            self._timer.cancel()
        self._timer = loop.call_at(when, self.wake)

    def _wait(self, until: Until) -> None:
        """Wait for the server, but not forever."""
        if self._patience is None:
            self._until = until
            seconds = self.context.patience_s
            if until is Until.CLOSE:
                seconds += self._recorded_silence_s()
            self.context.pending += 1
            self._patience = asyncio.get_running_loop().call_later(seconds, self._lose_patience)

    def _recorded_silence_s(self) -> float:
        """How long the recorded server took to miss its client's Keep Alive; 0 where that is not why it closed."""
        script, keep_alive = self.player.script, self.player.connection.keep_alive or 0
        last = next((one.timestamp_ns for one in reversed(script.entries) if one.from_client), script.opened_ns)
        silence = (script.ending.timestamp_ns - last) / 1e9
        return silence if 0 < keep_alive <= silence else 0.0

    def _lose_patience(self) -> None:
        self._forget_patience()
        # The end of a connection is waited for once.
        self._hopeless = None if self._until is Until.CLOSE else self._until
        action = self.player.give_up()
        if isinstance(action, Close):
            self.player.live.note(NoteKind.ENDED, "ended by us, since the server did not")
            self._close(action.how, [])
        self._tell()
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
            self._over(Ending("reset", "client", self.context.clock.now_ns()))
        else:
            link.close()
            self._closed = asyncio.create_task(self._await_close(link))

    async def _await_close(self, link: Link) -> None:
        """The connection has ended when the server has taken the end as well."""
        await link.closed.wait()
        self._over(Ending("fin", "client", self.context.clock.now_ns()))

    def _over(self, ending: Ending) -> None:
        if self.finished.is_set():
            return
        for timer in (self._timer, self._keep_alive):
            if timer is not None:
                timer.cancel()
        self._forget_patience()
        self._forget_stuck()
        self._unread.clear()
        self.finished.set()
        self.failure = self.failure or why_it_failed(self.player, ending, self.context.patience_s)
        self.shortfall = "" if self.failure else why_it_fell_short(self.player, ending)
        self.player.ended(ending)
        if self.link is not None:
            self.link.close()
        self._tell()
        if self.link is not None:
            self.context.start_timers(End(self.index))
        self.context.drop_timers(End(self.index))
        for skipped in self.player.skipped:
            self.context.drop_timers(skipped)
        self.context.gates.reach(End(self.index))
        self.context.progress += 1

    def _tell(self) -> None:
        """Tell the others which milestones are reached."""
        done, gates = self.player.correspondence.done, self.context.gates
        while done:
            reached = done.copy()
            done.clear()
            for entry in reached:
                if entry in self.player.correspondence.came:
                    self.context.came(entry)
                if gates.reach(entry):
                    self.context.progress += 1

    def _watch_keep_alive(self) -> None:
        """Keep the connection alive where the live pace is slower than the recorded one."""
        keep_alive_ns = self.player.keep_alive_ns
        if self._keep_alive is not None:
            self._keep_alive.cancel()
            self._keep_alive = None
        if keep_alive_ns and not self.player.options.faithful:
            self._keep_alive = asyncio.get_running_loop().call_later(KEEP_ALIVE_SHARE * keep_alive_ns / 1e9, self._ping)

    def _ping(self) -> None:
        self._keep_alive = None
        player, link = self.player, self.link
        if link is None or self._closing or self.finished.is_set() or player.over:
            return
        if self._paused:
            # What waits to be sent keeps it alive as well.
            self._watch_keep_alive()
            return
        entry: Entry | None = player.peek()
        until_ns = entry.timestamp_ns if entry is not None else player.script.ending.timestamp_ns
        if until_ns - self._performed_ns > 1.5 * player.keep_alive_ns:
            # The recorded client was silent for longer than servers bear (5.0 3.1.2.10).
            return
        link.write(player.ping(self.context.clock.now_ns()).data)
        self.context.sent += 1
        self._watch_keep_alive()


LESS = 4
"""By what the time is divided each time that it passed in vain; as much grows what is not waited for."""

Expectation = tuple[int, str]
"""A connection, by the index of its script, and the Topic Filter that messages are awaited on."""


@dataclass(slots=True)
class Timeouts:
    """What is known of the server's silence."""

    scripts: Sequence[Script]
    seconds: float
    """For what it has not failed to send before."""
    vain: dict[Expectation, int] = field(default_factory=dict)
    """How often in a row messages were waited for."""
    learned: dict[Expectation, int] = field(default_factory=dict)
    """Messages that were not waited for in full, since earlier ones had not come."""
    _awaited: dict[Entry, Expectation] | None = None
    _behind: dict[Expectation, list[Entry]] = field(default_factory=dict)

    def for_steps(self, blocking: Iterable[Step]) -> float:
        """How many seconds the server has for these milestones."""
        return max(
            (self.seconds / LESS ** self.vain.get(self._expectation(one) or (-1, ""), 0) for one in blocking), default=0
        )

    def passed(self, missed: Iterable[Step]) -> list[Entry]:
        """Time has passed in vain for these; returns further ones that are not to be waited for."""
        given_up: list[Entry] = []
        last: dict[Expectation, Entry] = {}
        for one in missed:
            expectation = self._expectation(one)
            if expectation is not None and isinstance(one, Entry):
                if expectation in self.vain:
                    self.learned[expectation] = self.learned.get(expectation, 0) + 1
                last[expectation] = one
        for expectation, entry in last.items():
            times = self.vain[expectation] = self.vain.get(expectation, 0) + 1
            if times > 1:
                behind = [one for one in self._behind[expectation] if one.place > entry.place]
                given_up += behind[: LESS**times]
                self.learned[expectation] = self.learned.get(expectation, 0) + len(behind[: LESS**times])
        return given_up

    def came(self, entry: Entry) -> None:
        if self.vain:
            self.vain.pop(self._expectation(entry) or (-1, ""), None)

    def awaited_on(self, entry: Entry) -> str:
        """The Topic Filter that a recorded message is awaited on."""
        expectation = self._expectation(entry)
        return expectation[1] if expectation else entry.topic or ""

    def _expectation(self, step: Step) -> Expectation | None:
        if not isinstance(step, Entry) or step.from_client or not isinstance(step.packet, Publish):
            return None
        if self._awaited is None:
            self._awaited = dict(self._all())
            for entry, expectation in self._awaited.items():
                self._behind.setdefault(expectation, []).append(entry)
        return self._awaited.get(step)

    def _all(self) -> Iterator[tuple[Entry, Expectation]]:
        """Every delivery with what it is awaited on; where the recording has no such subscription, its topic."""
        asked: dict[str, dict[str, Callable[[str], bool]]] = {}
        for index, script in enumerate(self.scripts):
            mine = asked.setdefault(script.connection.client_identifier or f"\0{index}", {})
            for entry in script.entries:
                packet = entry.packet
                if isinstance(packet, Subscribe):
                    for row in packet.subscriptions:
                        shared = parse_shared(row.topic_filter) is not None
                        mine.setdefault(row.topic_filter, compile_filter(row.topic_filter, shared=shared))
                elif isinstance(packet, Publish) and not entry.from_client and entry.topic is not None:
                    topic = entry.topic
                    yield entry, (index, next((one for one, matches in mine.items() if matches(topic)), topic))


@dataclass(slots=True)
class Timeline:
    """Recorded times to nanoseconds from the start of the replay.

    ``speed``: how many recorded seconds pass in one; ``None`` for as soon as possible.  ``max_gap_ns``: the longest
    silence, in recorded time, in which no connection takes a step; longer ones are cut to it.
    """

    times: Iterable[int]
    """Of all steps, in nanoseconds since 1970."""
    speed: float | None = 1.0
    max_gap_ns: int | None = None
    _starts: list[int] = field(default_factory=list)
    """From here on ..."""
    _cuts: list[int] = field(default_factory=list)
    """... so much is left out."""
    cut_ns: int = 0
    """How much of the recorded time is left out in all."""
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
        """When a step is due, counted from the start; 0 for what is as soon as possible."""
        if self.speed is None or not self._starts:
            return 0
        cut = self._cuts[max(0, bisect_right(self._starts, timestamp_ns) - 1)]
        return max(0, int((timestamp_ns - self.first_ns - cut) / self.speed))

    @property
    def length_ns(self) -> int:
        return self.due_ns(self.last_ns)


_OTHER_VERSION = b"\x20\x02\x00\x01"
"""How brokers refuse a version that they do not know, in the form of 3.1.1 (3.1.1 section 3.2.2.3)."""


def why_it_failed(player: ClientPlayer, ending: Ending, patience_s: float) -> str:
    """Why a connection that was made led nowhere; empty for one that did not."""
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
    """Why a connection could not be played to its recorded end, where the broker kept to the protocol; else empty."""
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
    """The cause of all differences of a connection, to follow a "because"; empty where they stand for themselves."""
    if failure.startswith("cannot "):
        return f"there is no connection: {failure}"
    return failure or (f"the broker refused the connection: {player.refused}" if player.refused else "")


def never_came(drivers: Collection[ClientDriver], missed: Collection[Step], timeouts: Timeouts) -> Counter[str]:
    """What was waited for and did not come later either, in words."""
    found: Counter[str] = Counter()
    for driver in drivers if missed else ():
        player = driver.player
        for entry in player.correspondence.awaited:
            if entry not in missed or entry in player.correspondence.came:
                continue
            what = entry.type.upper()
            if isinstance(entry.packet, Publish):
                what = f"messages of {starred_name(timeouts.awaited_on(entry))!r}"
            found[f"{what} for {starred_name(player.script.name)}"] += 1
    return found
