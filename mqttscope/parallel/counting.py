"""Statistics from several processes: each counts its flows, and what depends on the order of all is counted by one.

The peaks of a second, which topic and client came first, and the books of connections that end need the order of all
packets.  So a process sends for each packet its time, size, capture and topic, and a connection when it has ended; all
other counts are added up at the end (`Parts`).  Where a limit of `stats.collect` may be reached, one process counts.
"""

from __future__ import annotations

import pickle
from array import array
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from mqttscope.capture.pcap import FrameSink
from mqttscope.dissect import Dissector
from mqttscope.events import ConnectionOpened, Event, PacketEvent
from mqttscope.mqtt.packets import Publish
from mqttscope.net.frame import CaptureNotice, Frame
from mqttscope.parallel.counts import Counts
from mqttscope.parallel.crew import Outlet, Stop
from mqttscope.parallel.lines import NOTICE, Frames, noted
from mqttscope.parallel.merge import BATCH_BYTES, ENTRY_BYTES, EVERYTHING, Entries, Sender
from mqttscope.parallel.walk import IndivisibleError, Share, ShareSink, Walk
from mqttscope.session.connection import Connection
from mqttscope.stats.collect import Statistics
from mqttscope.stats.rows import CaptureRow, ClientRow, ConnectionRow, Outcomes, TopicRow, Window

OPENED: Final = -21
"""A connection begins, and gets its number."""
TOPIC: Final = -22
"""A topic, and the number that stands for it."""
CAPTURE: Final = -23
"""A capture, likewise."""
IDENTIFIED: Final = -24
"""What is known of the client of a connection."""
ENDED: Final = -25
"""The row of a connection, pickled."""
_CAPTURES: Final = 1 << 22
"""More than there are numbers of captures."""
_SECOND: Final = 1_000_000_000

Choose = Callable[[Iterable[Event]], Iterator[Event]]


@dataclass(slots=True)
class Uncounted(Window):
    """Seconds that are counted elsewhere."""

    def add(self, second: int, size: int) -> None:
        """Leave a packet out."""


@dataclass(slots=True)
class Parts:
    """What one process has counted."""

    counts: Counts
    captures: dict[str, CaptureRow]
    topics: dict[str | None, TopicRow]
    clients: dict[object, int]
    """Numbers of clients in this process."""
    limited: bool
    """Whether a limit was reached here."""
    matched: bool = False
    """Whether a filter let anything through."""


class ShareStatistics(Statistics):
    """The statistics of one process."""

    def __init__(self, share: Share, sender: Sender, stop: Stop) -> None:
        """``stop``: whether the captures end here."""
        super().__init__()
        self._stop = stop
        self._share = share
        self._sender = sender
        self.shown = 0
        """Events that were counted."""
        self._window = Uncounted()
        self._topic_codes: dict[str | None, int] = {}
        self._capture_codes: dict[str, int] = {}

    @property
    def limited(self) -> int:
        """How many things it remembers whose number is limited."""
        return self._releases

    def frames(self, source: Iterable[Frame | CaptureNotice]) -> Iterator[Frame | CaptureNotice]:
        """Pass frames on, and count those that no sink was offered (`count_frame`)."""
        walk = self._sender.walk
        name, row = "", self.other_capture
        for frame in source:
            if self._stop.asked:
                return
            if type(frame) is Frame:
                if frame.capture != name or not name:
                    name = frame.capture
                    row = self._capture_row(name)
                if walk.offered != (frame.number, frame.capture):
                    self.count_frame(row, frame.number, frame.timestamp_ns, frame.original_length, len(frame.data))
            yield frame

    def count_frame(self, row: CaptureRow, number: int, now: int, original_length: int, captured_length: int) -> None:
        """Count a frame of a capture if it falls to this share: of two shares, each counts every second frame."""
        if number % self._share.count != self._share.number:
            return
        row.frames += 1
        row.frame_bytes += original_length
        row.captured_bytes += captured_length
        if row.last_ns is None or now > row.last_ns:
            row.last_ns = now
        if row.first_ns is None or now < row.first_ns:
            row.first_ns = now

    def count(self, event: Event) -> None:
        """Count an event, and send what the order of all packets needs of it."""
        sender = self._sender
        walk = sender.walk
        self.shown += 1
        self.feed(event)
        if type(event) is PacketEvent:
            packet = event.packet
            code = self._capture_codes.get(event.capture) or self._capture_code(event.capture)
            if type(packet) is Publish:
                code += (self._topic_codes.get(event.topic) or self._topic_code(event)) * _CAPTURES
            places = sender.places
            if walk.rank is not None:
                sender.ranks[len(places)] = walk.rank
            places.append(walk.place)
            sender.texts.append(event.timestamp_ns)
            sender.codes.append(len(packet.raw) + packet.missing)
            sender.more.append(code)
            sender.size += ENTRY_BYTES
            if sender.size >= BATCH_BYTES:
                sender.send(walk.place)

    def parts(self, counts: Counts) -> Parts:
        """What was counted."""
        limited = bool(
            self.other_captures
            or self.early_closed
            or self.missed_releases
            or any(self.other_topic.messages)
            or len(self.clients) >= self.limits["clients"]
        )
        return Parts(
            counts, self.captures, self.topics, {key: row.number for key, row in self.clients.items()}, limited
        )

    def _capture_code(self, name: str) -> int:
        code = self._capture_codes[name] = (len(self._capture_codes) + 1) * self._share.count + self._share.number
        self._sender.add("", CAPTURE, (code, name))
        return code

    def _topic_code(self, event: PacketEvent) -> int:
        code = (len(self._topic_codes) + 1) * self._share.count + self._share.number
        self._topic_codes[event.topic] = code
        self._sender.add("", TOPIC, (code, event.topic, event.timestamp_ns), len(event.topic or ""))
        return code

    def _capture_row(self, name: str) -> CaptureRow:
        row = super()._capture_row(name)
        if type(row.traffic.window) is Window:
            row.traffic.window = Uncounted()
        return row

    def _topic_row(self, topic: str | None, now: int) -> TopicRow:
        row = super()._topic_row(topic, now)
        if type(row.window) is Window:
            row.window = Uncounted()
        return row

    def _identify(self, row: ConnectionRow, connection: Connection) -> None:
        super()._identify(row, connection)
        told = connection.client_identifier, connection.opened_ns, connection.client.rpartition(":")[0]
        self._sender.add("", IDENTIFIED, (self._share.number, row.number, *told))

    def _book(self, row: ConnectionRow, outcomes: Outcomes) -> None:
        row.live, row.client_row, row.releases = None, None, {}
        self._sender.add("", ENDED, (self._share.number, pickle.dumps((row, outcomes))), 2 * ENTRY_BYTES)


class CountingSink(ShareSink):
    """The fast path of a share that counts the frames it is offered, whosever they are."""

    def __init__(
        self, walk: Walk, statistics: ShareStatistics, feed: Callable[[Event], object], *, timed: bool
    ) -> None:
        """As `ShareSink`."""
        super().__init__(walk, feed, timed=timed)
        self._statistics = statistics
        self._capture = ""
        self._row = statistics.other_capture

    def take(
        self,
        data: bytes,
        start: int,
        end: int,
        number: int,
        timestamp_ns: int,
        link_type: int,
        original_length: int,
        capture: str,
    ) -> bool:
        """As `FrameSink.take`."""
        if capture != self._capture or not capture:
            self._capture = capture
            self._row = self._statistics._capture_row(capture)
        self._statistics.count_frame(self._row, number, timestamp_ns, original_length, end - start)
        return super().take(data, start, end, number, timestamp_ns, link_type, original_length, capture)


def count_share(
    share: Share, outlet: Outlet, frames: Frames, dissector: Dissector, choose: Choose | None, matched: list[bool],
    *, timed: bool,
) -> Parts:  # fmt: skip
    """Be one process: count the flows of a share.

    ``choose``: passes on the events that are counted.  ``matched``: whether it let anything through.  Ctrl-C ends it
    with what was counted so far.
    """
    walk = Walk(share, dissector)
    sender = Sender(outlet, walk)
    statistics = ShareStatistics(share, sender, Stop())

    def goes_to_parent(event: Event) -> bool:
        """Whether the parent counts an event, and not this process; sends what the parent needs."""
        if type(event) is not PacketEvent:
            if noted(event, sender, statistics.limited):
                return True
            if isinstance(event, ConnectionOpened):
                sender.add("", OPENED, share.number)
        return False

    def take(event: Any) -> None:
        if not goes_to_parent(event):
            statistics.count(event)

    def events(sink: FrameSink | None) -> Iterator[Event]:
        for event in walk.events(statistics.frames(frames(sink)), timed=timed):
            if not goes_to_parent(event):
                yield event

    found_events = choose(events(None)) if choose else events(CountingSink(walk, statistics, take, timed=timed))
    for event in found_events:
        statistics.count(event)
    sender.send(EVERYTHING)
    found = statistics.parts(Counts.of(walk, statistics.shown))
    found.matched = matched[0]
    return found


@dataclass(slots=True)
class _Known:
    """What numbers of the processes stand for."""

    numbers: list[array[int]]
    captures: dict[int, Window] = field(default_factory=dict)
    topics: dict[int, TopicRow] = field(default_factory=dict)
    clients: dict[tuple[int, int], ClientRow] = field(default_factory=dict)
    """By process and number of the connection there."""


class Together(Statistics):
    """The statistics of all processes."""

    def __init__(self, count: int, note: Callable[[CaptureNotice], None], *, along: bool = False) -> None:
        """``note``: told of notices of captures."""
        super().__init__(along=along)
        self._known = _Known([array("q") for _ in range(count)])
        self._opened = 0
        self._note = note

    def take(self, entries: Entries) -> None:
        """Take what processes say, in the order of the captures."""
        captures, topics, add, along = self._known.captures, self._known.topics, self._window.add, self.along
        order, _, times, sizes, codes = entries
        for at in order:
            now, size, code = times[at], sizes[at], codes[at]
            if size < 0:
                self._other(size, code)
                continue
            second = now // _SECOND
            add(second, size)
            if along is not None:
                along.add(now)
                along.add(now, 1, size)
            if code < _CAPTURES:
                captures[code].add(second, size)
                continue
            topic, capture = divmod(code, _CAPTURES)
            captures[capture].add(second, size)
            row = topics[topic]
            row.window.add(second, size)
            row.last_ns = now

    def _other(self, kind: int, more: Any) -> None:
        known = self._known
        if kind == OPENED:
            known.numbers[more].append(self._opened)
            self._opened += 1
        elif kind == CAPTURE:
            known.captures[more[0]] = self._capture_row(more[1]).traffic.window
        elif kind == TOPIC:
            row = known.topics[more[0]] = self._topic_row(more[1], more[2])
            if row is self.other_topic:
                raise IndivisibleError("there are more topics than have a row")
        elif kind == IDENTIFIED:
            share, number, *told = more
            client = known.clients[share, number] = self._client_row(*told)
            if client is self.other_client:
                raise IndivisibleError("there are more clients than have a row")
        elif kind == NOTICE:
            self._note(pickle.loads(more))
        else:
            share, packed = more
            ended, outcomes = pickle.loads(packed)
            ended.client_row = known.clients.pop((share, ended.number))
            ended.number = known.numbers[share][ended.number]
            if len(self.connections) >= self.limits["connections"]:
                raise IndivisibleError("there are more connections than have a row")
            self._book(ended, outcomes)

    def add(self, all_parts: list[Parts]) -> None:
        """Add what processes have counted; then all is as if one had."""
        pairs = 0
        # All of them have seen all captures; the first has what was wrong with them as well.
        all_parts = sorted(all_parts, key=lambda one: not any(row.error_count for row in one.captures.values()))
        if any(one.limited for one in all_parts):
            raise IndivisibleError("a limit of the statistics is reached")
        order = max((one.captures for one in all_parts), key=len)
        self.captures = {name: self._capture_row(name) for name in order}
        for one in all_parts:
            for name, row in one.captures.items():
                _add_capture(self.captures[name], row)
            numbers = {number: self.clients[key].number for key, number in one.clients.items() if key in self.clients}
            for topic in one.topics.values():
                known = self.topics[topic.topic]
                for field_name in ("messages", "bytes", "payload", "qos", "retain", "dup"):
                    sums, more = getattr(known, field_name), getattr(topic, field_name)
                    sums[:] = [left + right for left, right in zip(sums, more, strict=True)]
                for clients, found in zip(known.clients, topic.clients, strict=True):
                    clients.update(numbers[number] for number in found)
        for topic in self.topics.values():
            for clients in topic.clients:
                pairs += len(clients)
                if len(clients) >= self.limits["topic_clients"] or pairs >= self.limits["topic_client_pairs"]:
                    raise IndivisibleError("a topic has more clients than are told apart")


def _add_capture(known: CaptureRow, more: CaptureRow) -> None:
    known.traffic.merge(more.traffic)
    for name in (
        "frames", "frame_bytes", "captured_bytes", "discarded_segments", "discarded_bytes", "dropped", "error_count",
    ):  # fmt: skip
        setattr(known, name, getattr(known, name) + getattr(more, name))
    known.errors += more.errors
    known.first_ns = min((one for one in (known.first_ns, more.first_ns) if one is not None), default=None)
    known.last_ns = max((one for one in (known.last_ns, more.last_ns) if one is not None), default=None)
