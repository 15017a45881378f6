"""One share of the flows of captures: all frames are walked, and the flows of this share are taken up.

A flow belongs to the share that its endpoints say, whatever tags it has and in whichever direction, so that all that
may be one connection is in one share.  Of the frames of other shares nothing is read but the endpoints and the time:
time that has come is the same for all flows, and what times out with a frame of another share does so at that frame.

`Walk.events` gives the events of the share.  While one is looked at, `Walk.place` is its place among those of all
shares: events of one frame lie in one share, and what several shares say at one frame, at time-outs and at the end of
the captures, is put in order by `Walk.rank`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final
from zlib import crc32

from mqttscope.dissect import Dissector, FastPath, dissect_segments
from mqttscope.dissect.clock_watch import STEP_NS
from mqttscope.errors import MqttscopeError
from mqttscope.events import Event, PacketEvent
from mqttscope.net.fragments import FragmentTable
from mqttscope.net.frame import CaptureDrops, CaptureError, CaptureNotice, CaptureSecrets, Frame
from mqttscope.net.headers import ONE_TAG, PLAIN_IPV4, PLAIN_IPV6
from mqttscope.net.headers import segment as segment_of
from mqttscope.net.segment import DnsMessage, Fragment, NotSegment, Segment, group_key, plain_key

MAX_OWNERS: Final = 200_000
"""Directions of flows of which it is kept whose they are."""
STRIDE: Final = 8_192
"""After so many frames a share says how far it is, also where it has nothing else to say."""

Rank = tuple[int, ...] | tuple[int, int, bytes]
"""The order of what several shares say at one place."""

_TCP: Final = 6
_WHOLE: Final = (b"\x40\0", b"\0\0")
"""Flags and offset of an IPv4 datagram that is not a fragment."""
_CLOCK_SET: Final = "the clock of a capture may have been set, which all flows together show"
MARK: Final = CaptureDrops("", -1, None, 0)
"""Passes through the dissector in the place of a frame of another share: time has come, or a stride is over."""


class IndivisibleError(MqttscopeError):
    """What the captures hold cannot be shared out: one process has to read them."""


@dataclass(slots=True)
class Share:
    """Which flows are those of one of several processes."""

    number: int
    """From 0; the first share says what belongs to no flow."""
    count: int

    def has(self, key: bytes) -> bool:
        """Whether a flow belongs to it, by the direction key of any of its segments."""
        return crc32(group_key(key)) % self.count == self.number


@dataclass(slots=True)
class Span:
    """The times of the segments of one capture."""

    first: int
    """Place of the first of them."""
    first_ns: int
    latest_ns: int


def plain_endpoints(data: bytes, start: int, stop: int, link_type: int) -> bytes:
    """The endpoints of a TCP segment in a usual Ethernet frame, else empty; the TCP header may be damaged."""
    if link_type != 1 or stop - start < 54:
        return b""
    begin = data[start + 12 : start + 15]
    at = start if begin == PLAIN_IPV4 else start + 4  # with a VLAN tag
    if begin == PLAIN_IPV6:
        return data[start + 22 : start + 58] if stop - start >= 74 and data[start + 20] == _TCP else b""
    if at != start and (stop - start < 74 or begin[:2] != ONE_TAG or data[at + 12 : at + 15] != PLAIN_IPV4):
        return b""
    return data[at + 26 : at + 38] if data[at + 23] == _TCP and data[at + 20 : at + 22] in _WHOLE else b""


class Walk:
    """The frames of captures as one share sees them."""

    def __init__(self, share: Share, dissector: Dissector) -> None:
        self.share = share
        self.dissector = dissector
        dissector.clock.stand_aside()
        self.skipped: Counter[str] = Counter()
        """Frames without a segment, by reason: those that only this share looks at."""
        self.spans: dict[str, Span] = {}
        """By capture, those of the segments of this share."""
        self.place = 0
        """Of the event at hand: odd for what a frame or notice brings, even for what times out before it."""
        self.rank: Rank | None = None
        """Its order among events of other shares at the same place, where there may be such."""
        self.frames = 0
        """Frames and notices so far."""
        self.at = -1
        """Index of the frame or notice at hand."""
        self.offered = (0, "")
        """Number and capture of the last frame that a `ShareSink` was offered: what is yielded then was counted."""
        self.stride = STRIDE
        """Index of the frame at which the share says next how far it is."""
        self._owners: dict[bytes, bool] = {}
        self._now_ns: int | None = None
        """Capture time that has come where the next `MARK` does."""

    def owns(self, key: bytes) -> bool:
        """Whether the flow of a direction key belongs to this share; remembered, as there is one for each frame."""
        mine = self._owners.get(key)
        if mine is None:
            if len(self._owners) >= MAX_OWNERS:
                self._owners.clear()
            mine = self._owners[key] = self.share.has(key)
        return mine

    def stream(self, frames: Iterable[Frame | CaptureNotice], *, timed: bool) -> Iterator[Event]:
        """The events of this share, with `MARK` now and then; what is no packet goes through `unfold`.

        ``timed``: note the times of captures in ``spans``.
        """
        return dissect_segments(self._items(frames, timed), dissector=self.dissector, more=True)

    def unfold(self, event: Event) -> Iterator[Event]:
        """An event of the stream, and in the place of a mark what times out there before it."""
        if event is MARK and self._now_ns is not None:
            yield from self._time_outs(self._now_ns)
            self._now_ns = self.rank = None
        yield event

    def endings(self) -> Iterator[Event]:
        """The events of the end of all captures."""
        self.place = 2 * self.frames + 2
        for place, event in self.dissector.closing():
            self.rank = place
            yield event

    def events(self, frames: Iterable[Frame | CaptureNotice], *, timed: bool) -> Iterator[Event]:
        """All of these."""
        for event in self.stream(frames, timed=timed):
            if type(event) is PacketEvent:
                yield event
            else:
                yield from self.unfold(event)
        yield from self.endings()

    def _time_outs(self, now: int) -> Iterator[Event]:
        """What times out up to a capture time, each with its rank: by time, then by the last frame of the flow."""
        dissector, flows = self.dissector, self.dissector.flows
        while (due_ns := flows.next_due_ns) is not None and due_ns <= now:
            last: dict[bytes, Rank] = {}
            for flow in flows.next_to_time_out():
                last[flow.key] = last[group_key(flow.key)] = (due_ns, flow.last_frame, flow.key)
            self.rank = (due_ns, 0, b"")
            for event in dissector.advance(due_ns):
                key = getattr(event, "connection").flow_key  # noqa: B009 - of whichever event
                self.rank = last.get(key) or last.get(group_key(key)) or self.rank
                yield event
        for event in dissector.advance(now):
            yield event

    def _items(self, frames: Iterable[Frame | CaptureNotice], timed: bool) -> Iterator[Segment | CaptureNotice]:
        share, flows, fragments = self.share, self.dissector.flows, FragmentTable()
        first = not share.number
        skipped = self.skipped
        told: set[tuple[str, str]] = set()
        look_ns = flows.next_look_ns
        clock = self.dissector.clock
        for frame in frames:
            if type(frame) is Frame:
                clock.pass_time(frame.timestamp_ns, frame.capture)
            if type(frame) is not Frame or self.offered != (frame.number, frame.capture):
                self.at += 1
            else:
                look_ns = flows.next_look_ns  # others may have passed it by
            at = self.at
            if at >= self.stride:
                self.stride = at + STRIDE
                self.place, self.frames = 2 * at, at
                yield MARK
                look_ns = flows.next_look_ns
            if type(frame) is not Frame:
                if type(frame) is CaptureSecrets:
                    raise IndivisibleError("a capture holds keys, so that TLS may be decrypted")
                if first:
                    self.place = 2 * at + 1
                    yield frame  # type: ignore[misc]
                    look_ns = flows.next_look_ns
                continue
            data = frame.data
            key = plain_endpoints(data, 0, len(data), frame.link_type)
            if key and not self.owns(key):
                if frame.timestamp_ns >= look_ns and type(segment_of(frame)) is Segment:
                    yield from self._pass(at, frame.timestamp_ns)
                    look_ns = flows.next_look_ns
                continue
            found = segment_of(frame)
            whole = fragments.feed(found) if type(found) is Fragment else found
            if type(whole) is Segment:
                if not key and not share.has(plain_key(whole.key)):
                    if frame.timestamp_ns >= look_ns:
                        yield from self._pass(at, frame.timestamp_ns)
                        look_ns = flows.next_look_ns
                    continue
                if clock.contradicts(whole):
                    raise IndivisibleError(_CLOCK_SET)
                now = whole.timestamp_ns
                if now >= look_ns:
                    yield from self._pass(at, now)
                if timed:
                    self.note(at, whole.capture, whole.timestamp_ns)
                self.place = 2 * at + 1
                yield whole
                look_ns = flows.next_look_ns
                continue
            if type(whole) is DnsMessage:
                self.dissector.names.feed(whole)
            if isinstance(whole, NotSegment) and (key or first):
                skipped[whole.reason] += 1
                if whole.reason == "unsupported_link_type" and (frame.capture, whole.detail) not in told:
                    told.add((frame.capture, whole.detail))
                    self.place = 2 * at + 1
                    yield CaptureError(frame.capture, whole.detail, None, frame.number - 1)
                    look_ns = flows.next_look_ns
        self.frames = self.at + 1
        if first and (incomplete := fragments.incomplete_by_capture().total()):
            skipped["incomplete_fragments"] += incomplete

    def _pass(self, at: int, now: int) -> Iterator[CaptureNotice]:
        """Let time come without a segment of this share."""
        self.place, self._now_ns = 2 * at, now
        yield MARK

    def note(self, at: int, capture: str, timestamp_ns: int) -> None:
        """Take note of the time of a segment of this share."""
        span = self.spans.get(capture)
        if span is None:
            self.spans[capture] = Span(at, timestamp_ns, timestamp_ns)
        elif timestamp_ns > span.latest_ns:
            span.latest_ns = timestamp_ns


class ShareSink:
    """The fast path of a share: passes by the frames of others, and takes those of known connections of its own."""

    def __init__(self, walk: Walk, feed: Callable[[Event], object], *, timed: bool) -> None:
        """``feed`` takes the events of packets and keeps none, nor their packets; ``timed`` is as in `Walk.stream`."""
        self.base = 0
        """As `FrameSink.base`."""
        self._walk = walk
        self._flows = walk.dissector.flows
        self._clock = walk.dissector.clock
        self._path = FastPath(walk.dissector, feed, passing=True, reusing=True)
        self._timed = timed

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
        walk = self._walk
        walk.at = at = walk.at + 1
        walk.offered = (number, capture)
        clock = self._clock
        if not -STEP_NS < timestamp_ns - clock.last_ns < STEP_NS:
            return False
        clock.last_ns = timestamp_ns
        if at >= walk.stride:
            return False
        key = plain_endpoints(data, start, end, link_type)
        if not key:
            return False
        if not walk.owns(key):
            return timestamp_ns < self._flows.next_look_ns
        walk.place = 2 * at + 1
        if not self._path.take(data, start, end, number, timestamp_ns, link_type, original_length, capture):
            return False
        if self._timed:
            walk.note(at, capture, timestamp_ns)
        return True
