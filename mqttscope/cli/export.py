"""``inspect --write``: the frames of the packets shown, as a new pcapng file."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import BinaryIO, cast

import click

from mqttscope.capture import open_capture
from mqttscope.capture.write import PcapngWriter, open_alone
from mqttscope.cli.errors import ErrorTranslation
from mqttscope.cli.output import CAPTURE, CannotWriteError, Progress, refuse_inputs, refuse_name
from mqttscope.dissect import Dissector
from mqttscope.dissect.flow_state import FlowState
from mqttscope.events import ConnectionClosed, ConnectionOpened, DiscardedEvent, Event, MalformedEvent, PacketEvent
from mqttscope.mqtt.constants import Direction
from mqttscope.mqtt.wire import counted
from mqttscope.net.flow import Flow
from mqttscope.net.fragments import FragmentTable
from mqttscope.net.frame import CaptureNotice, Decrypted, Frame, SegmentItem
from mqttscope.net.segment import FIN, RST, SYN, Fragment, NotSegment, Segment, endpoints, reverse_key

OPTION = "--write"
MAX_FRAMES_OF_A_PACKET = 1_000_000
"""Maximum number of frames kept per direction for an incomplete packet; further frames are omitted."""
MAX_FRAMES_AROUND = 256
"""Maximum number of frames kept for the TCP handshake of a connection, and for its end, before any of its packets is
exported; further frames are omitted."""
MAX_FRAMES_OF_A_CONNECT = 10_000
"""Maximum number of frames kept per CONNECT."""
MAX_FRAMES_OF_A_DATAGRAM = 8_192
"""Maximum number of IP fragments kept per datagram; further fragments are omitted."""
RECORDS_CHECKED = 20_000
"""Number of records that triggers the first removal of ended flows; later whenever the number has doubled."""

Place = tuple[str, int, tuple[tuple[str, int], ...]]
"""Capture and number of a frame, and the places of earlier IP fragments of its datagram, usually empty. A negative
number in the last place is the count of omitted fragments."""

_turned = lru_cache(8192)(reverse_key)


@dataclass(slots=True)
class _Track:
    """One direction of a flow."""

    pending: list[Place] = field(default_factory=list)
    """Frames with data since the last time when no packet was incomplete."""
    left_out: int = 0
    """Number of omitted frames beyond the limit."""
    done: bool = False
    """Whether the current segment completed a packet of this direction."""
    tangled: bool = False
    """Whether segments arrived out of order, so that an incomplete packet may start before the last frame."""


@dataclass(slots=True)
class _Record:
    """One TCP connection that the flow table contains."""

    flow: Flow
    tracks: tuple[_Track, _Track] = field(default_factory=lambda: (_Track(), _Track()))
    """Half of the initiator, half of the other side."""
    connection: int = -1
    """Number of its MQTT connection; -1 without one."""
    exported: bool = False
    """Whether any of its packets was shown, so that its start and end are written too."""
    is_shown: bool = False
    """Whether its latest event was shown, so that following segments without new data are written too."""
    speaking: bool = False
    """A segment with data was seen."""
    ending: bool = False
    """A FIN or RST was seen."""
    begin: list[Place] = field(default_factory=list)
    """Frames before any data: the handshake."""
    connect: list[Place] = field(default_factory=list)
    """Frames of the CONNECT."""
    end: list[Place] = field(default_factory=list)
    """Frames with FIN or RST, and later frames without an event."""
    doubtful: list[Place] = field(default_factory=list)
    """Frames that may belong to the next connection on these ports."""
    deferred: list[Place] = field(default_factory=list)
    """Doubtful frames that belong to the start or end of this connection if they do not belong to the next one."""
    latest: dict[bool, Place] = field(default_factory=dict)
    """Latest frame with data by direction; its sequence numbers show which segments continue the connection."""
    before: _Record | None = None
    """Previous connection on these ports, which this one may continue after a reset that both sides ignored."""
    left_out: int = 0
    """Number of omitted frames of handshake, CONNECT and end beyond their limits."""


class Export:
    """Notes frames while packets are shown, then reads the captures again and writes these frames.

    The frames of a packet are all frames with data of its direction since its first byte, so that captures with
    segments out of order stay complete, and the following segments without data, which acknowledge it.  For each
    connection with a shown packet, the TCP handshake, the CONNECT and the end are written as well: without them the
    client, the version, the end and, on other ports, even the protocol would be unknown.
    A WebSocket connection is written from its start to the packet, because reading it needs the upgrade and the
    compression state; decrypted TLS too, in both directions, because keys alone do not decrypt a record.
    Standard input cannot be read twice, so a temporary file keeps a copy of it.
    """

    def __init__(self, captures: Sequence[str], target: str, *, deduplicate: bool = False) -> None:
        """``deduplicate``: read the captures as several taps, and write their frames by time."""
        self.target = target
        self.captures = tuple(captures)
        self.deduplicate = deduplicate
        self.fragments = _TrackedFragments()
        """Fragment table for reading the captures."""
        self.left_out = 0
        """Number of frames missing in the export because of a limit."""
        self.frames = 0
        """Number of frames written."""
        self._wanted: dict[str, bytearray] = {}
        self._records: dict[bytes, _Record] = {}
        self._numbers: dict[int, _Record] = {}
        self._check_at = RECORDS_CHECKED
        self._noted = False
        self._now: Place = ("", 0, ())
        """Current segment."""
        self._check_target()
        self._spool: BinaryIO | None = None
        self.stdin: BinaryIO | None = None
        """Replacement for standard input."""
        if "-" in captures and sys.stdin is not None:
            self._spool = cast(BinaryIO, tempfile.TemporaryFile(prefix="mqttscope-"))  # noqa: SIM115 (closed by write)
            self.stdin = cast(BinaryIO, _CopiedInput(sys.stdin.buffer, self._spool))

    def _check_target(self) -> None:
        refuse_name(self.target, OPTION, CAPTURE)
        directory = os.path.dirname(os.path.abspath(self.target))
        if not os.path.isdir(directory):
            raise click.UsageError(f"{OPTION}: {directory} is not a directory")
        if os.path.isdir(self.target):
            raise click.UsageError(f"{OPTION}: {self.target} is a directory")
        exists = os.path.exists(self.target)
        if not os.access(self.target if exists else directory, os.W_OK):
            raise click.UsageError(f"{OPTION}: {self.target} cannot be written")
        refuse_inputs(self.target, self.captures, option=OPTION)

    def events(self, source: Iterable[SegmentItem | Decrypted], dissector: Dissector) -> Iterator[Event]:
        """Yield events like `dissect_segments`, and track the frames of each."""
        for segment in source:
            if not isinstance(segment, Segment):
                yield from self._watched(dissector.take(segment), None, dissector)
                continue
            parts = self.fragments.parts.pop((segment.capture, segment.frame), ())
            self._now = place = segment.capture, segment.frame, parts
            yield from self._watched(dissector.feed(segment), place, dissector)
            record = self._record(segment.key, dissector)
            if record is not None:
                self._take(record, segment, place, dissector)
        yield from self._watched(dissector.close(), None, dissector)

    def note(self, event: Event) -> None:
        """Note the frames of a shown event."""
        connection = getattr(event, "connection", None)
        record = None if connection is None else self._numbers.get(connection.number)
        if connection is None or record is None:
            return
        self._noted = True
        self._export(record)
        if "resumes" in connection.details and record.before is not None:
            self._export(record.before)
            for place in record.before.latest.values():
                self._want(*place)
            record.before = None
        direction = getattr(event, "direction", None)
        if direction is None and (isinstance(event, ConnectionOpened) or not record.is_shown):
            return
        if direction is not None:
            capture, frame = event.capture, event.frame  # type: ignore[union-attr]
            self._want(capture, frame, self._now[2] if self._now[:2] == (capture, frame) else ())
        together = direction is None or connection.transport != "tcp"
        for track in record.tracks if together else (_track(record, connection.client, direction),):
            for place in track.pending:
                self._want(*place)
            self.left_out += track.left_out
            # Wanted frames are already noted.
            track.pending, track.left_out = [], 0

    def _export(self, record: _Record) -> None:
        """Want the handshake, CONNECT and end of a connection with a shown packet."""
        if not record.exported:
            record.exported = True
            self.left_out += record.left_out
            for place in (*record.begin, *record.end):
                self._want(*place)
            record.begin, record.end = [], []
        for place in record.connect:
            self._want(*place)
        record.connect = []

    def _watched(self, events: Iterator[Event], place: Place | None, dissector: Dissector) -> Iterator[Event]:
        """Pass events on, and detect which of them are shown."""
        for event in events:
            connection = getattr(event, "connection", None)
            if connection is None:
                yield event
                continue
            if isinstance(event, ConnectionOpened):
                # The current segment may have ended this flow, or started it on the ports of another.
                opened = self._records.get(connection.flow_key)
                begun = connection.frame, connection.opened_ns, connection.capture
                flow = None if opened is None else opened.flow
                if flow is None or (flow.first_frame, flow.opened_ns, flow.capture) != begun:
                    opened = self._record(connection.flow_key, dissector)
                if opened is not None:
                    opened.connection = connection.number
                    self._numbers[connection.number] = opened
            record = self._numbers.get(connection.number)
            if record is not None and isinstance(event, PacketEvent | MalformedEvent):
                track = _track(record, connection.client, event.direction)
                track.done = True
                if event.type == "connect" and not record.exported:
                    here = () if place is None else (place,)
                    _add(record, record.connect, *track.pending, *here, limit=MAX_FRAMES_OF_A_CONNECT)
            elif record is not None and getattr(event, "direction", None) is not None:
                _track(record, connection.client, event.direction).done = True  # type: ignore[union-attr]
            self._noted = False
            yield event
            if record is None:
                continue
            record.is_shown = self._noted
            if isinstance(event, ConnectionClosed) and record.flow.closed:
                record.ending = True
            elif isinstance(event, DiscardedEvent) and not self._noted:
                place = event.capture, event.frame, ()
                if record.exported:
                    self._want(*place)
                else:
                    _add(record, record.end, place)

    def _record(self, key: bytes, dissector: Dissector) -> _Record | None:
        """Record of the flow that a direction key now belongs to."""
        entry = dissector.flows.entry(key)
        if entry is None:
            return self._records.get(key)
        # Use the key of the flow: a second tap shows its segments with other VLAN tags.
        key = entry[0].key
        record = self._records.get(key)
        if record is not None and record.flow is entry[0]:
            return record
        if len(self._records) >= self._check_at:
            self._forget(dissector)
        current = _Record(entry[0], before=record)
        if record is not None:
            record.before = None
            begin = entry[0].capture, entry[0].first_frame
            current.begin = [place for place in record.doubtful if place[:2] >= begin]
            self._around(record, *(place for place in record.deferred if place[:2] < begin))
        self._records[key] = self._records[_turned(key)] = current
        return current

    def _forget(self, dissector: Dissector) -> None:
        """Drop records of flows that are no longer in the flow table, so that both stay bounded."""
        for key, record in list(self._records.items()):
            entry = dissector.flows.entry(key)
            if entry is None or entry[0] is not record.flow:
                del self._records[key]
        known = {record.connection: record for record in self._records.values()}
        self._numbers = {number: record for number, record in self._numbers.items() if known.get(number) is record}
        self._check_at = max(RECORDS_CHECKED, 2 * len(self._records))

    def _take(self, record: _Record, segment: Segment, place: Place, dissector: Dissector) -> None:
        """Classify a segment within its connection, after its events were passed on."""
        filled = bool(segment.payload or segment.missing)
        if record.flow.undecided:
            if len(record.doubtful) < MAX_FRAMES_AROUND:
                record.doubtful.append(place)
            if record.ending or not filled:
                # It may start another connection.
                if len(record.deferred) < MAX_FRAMES_AROUND:
                    record.deferred.append(place)
                return
        elif record.doubtful:
            # They belong to this connection after all.
            self._around(record, *record.deferred)
            record.doubtful, record.deferred = [], []
        flags = segment.flags
        entry = dissector.flows.entry(segment.key)
        from_initiator = segment.key == record.flow.key if entry is None else entry[3]
        over = record.ending
        if flags & (FIN | RST):
            record.ending = True
        if filled:
            record.speaking = True
            if not over:
                record.latest[from_initiator] = place
            track = record.tracks[0 if from_initiator else 1]
            done, track.done = track.done, False
            state = self._state(segment.key, dissector)
            if done:
                if state == "rest":
                    track.pending, track.left_out, track.tangled = [], 0, False
                elif state == "unclear":
                    track.tangled = True
                    _remember(track, place)
                else:
                    if not track.tangled:
                        track.pending, track.left_out = [], 0
                    _remember(track, place)
            elif state == "rest":
                # Earlier frames belong to no packet, or repeat a part of one.
                track.pending, track.left_out, track.tangled = [], 0, False
                if record.is_shown:
                    self._want(*place)
            else:
                if state == "unclear":
                    track.tangled = True
                _remember(track, place)
        elif record.is_shown:
            self._want(*place)
        elif record.speaking and not record.ending:
            # An acknowledgment of the part of a packet that the other side has sent.
            own, other = record.tracks if from_initiator else record.tracks[::-1]
            if other.pending or own.pending:
                _remember(other if other.pending else own, place)
        if record.ending:
            around = bool(flags & (FIN | RST)) or over
        else:
            around = not record.speaking or bool(flags & SYN)
        if around:
            self._around(record, place)

    def _around(self, record: _Record, *places: Place) -> None:
        """Note frames of the start or the end of a connection."""
        if record.exported:
            for place in places:
                self._want(*place)
        else:
            _add(record, record.end if record.ending else record.begin, *places)

    def _state(self, key: bytes, dissector: Dissector) -> str:
        """State of a direction: ``rest`` (between packets), ``next`` (within a packet), or ``unclear``."""
        entry = dissector.flows.entry(key)
        if entry is None:
            return "rest"
        flow, half, _, from_initiator = entry
        dialogue = flow.context
        if not isinstance(dialogue, FlowState):
            return "rest"
        secured = dialogue.tls is not None and dissector.options.decrypting
        if dialogue.web is not None or secured or dialogue.connection is None or half.buffer.size:
            return "unclear"
        if dialogue.tls is not None:
            return "rest"
        stream = dialogue.stream(from_initiator is dialogue.client_is_initiator)
        if stream.searching or stream.skip or dialogue.held:
            return "unclear"
        return "next" if stream.held else "rest"

    def _want(self, capture: str, frame: int, parts: tuple[tuple[str, int], ...] = ()) -> None:
        bits = self._wanted.get(capture)
        if bits is None:
            bits = self._wanted[capture] = bytearray()
        at = frame >> 3
        if at >= len(bits):
            bits.extend(bytes(at + 1 - len(bits) + len(bits) // 8))
        is_new = not bits[at] >> (frame & 7) & 1
        bits[at] |= 1 << (frame & 7)
        for name, number in parts:
            if number > 0:
                self._want(name, number)
            elif is_new:
                self.left_out -= number

    def _is_wanted(self, frame: Frame) -> bool:
        bits = self._wanted.get(frame.capture, b"")
        at = frame.number >> 3
        return at < len(bits) and bool(bits[at] >> (frame.number & 7) & 1)

    def write(self) -> None:
        """Write the noted frames in the order of the captures."""
        if self._spool is not None:
            self._spool.seek(0)
        progress, name = Progress(), os.path.basename(self.target)
        try:
            with (
                ErrorTranslation(CannotWriteError, OSError, ValueError, before=f"{OPTION}: {self.target}: "),
                os.fdopen(open_alone(self.target), "wb", buffering=1 << 18) as file,
                PcapngWriter(file) as writer,
            ):
                for read, frame in enumerate(self._frames()):
                    if isinstance(frame, Frame) and self._is_wanted(frame):
                        writer.write(frame)
                        self.frames += 1
                    if progress.due(read):
                        progress.show(f"{read:,} frames read again, {self.frames:,} written to {name}")
        finally:
            progress.clear()
            if self._spool is not None:
                self._spool.close()

    def _frames(self) -> Iterator[Frame | CaptureNotice]:
        if not self.deduplicate:
            return open_capture(self.captures, stdin=self._spool)
        from mqttscope.capture.taps import Taps, open_taps

        return open_taps(self.captures, Taps(), stdin=self._spool)

    def advice(self) -> str | None:
        """Final message if a limit prevented frames from being written."""
        if not self.left_out:
            return None
        return f"limit: {self.target} lacks {counted(self.left_out, 'frame')} of the packets shown"


class _TrackedFragments(FragmentTable):
    """A table of IP fragments that notes the frames of each datagram."""

    def __init__(self) -> None:
        super().__init__()
        self.parts: dict[tuple[str, int], tuple[tuple[str, int], ...]] = {}
        """Places of earlier frames of reassembled datagrams, by the place of their last frame."""
        self._places: dict[bytes, list[tuple[str, int]]] = {}

    def feed(self, fragment: Fragment) -> Segment | NotSegment | None:
        """Like `FragmentTable.feed`."""
        result = super().feed(fragment)
        if result is None:
            if fragment.key in self.datagrams:
                places = self._places.setdefault(fragment.key, [])
                if len(places) < MAX_FRAMES_OF_A_DATAGRAM:
                    places.append((fragment.capture, fragment.frame))
                else:
                    # The number of omitted fragments, as a negative number.
                    left_out = places[MAX_FRAMES_OF_A_DATAGRAM:] or [("", 0)]
                    places[MAX_FRAMES_OF_A_DATAGRAM:] = [("", left_out[0][1] - 1)]
            if len(self._places) > 2 * self.max_datagrams:
                self._places = {key: places for key, places in self._places.items() if key in self.datagrams}
            return None
        parts = self._places.pop(fragment.key, None)
        if parts and isinstance(result, Segment):
            self.parts[result.capture, result.frame] = tuple(parts)
        return result


class _CopiedInput:
    """A binary input that copies all bytes read."""

    def __init__(self, source: BinaryIO, copy: BinaryIO) -> None:
        self._read = getattr(source, "read1", source.read)
        self._copy = copy

    def read1(self, size: int = -1) -> bytes:
        """Read available bytes, at most ``size``."""
        data: bytes = self._read(size)
        self._copy.write(data)
        return data

    read = read1


def _track(record: _Record, client: str, direction: Direction | None) -> _Track:
    """Direction of an event in a record."""
    from_client = direction is Direction.CLIENT_TO_SERVER
    return record.tracks[0 if from_client is _client_initiates(record.flow.key, client) else 1]


@lru_cache(8192)
def _client_initiates(key: bytes, client: str) -> bool:
    return endpoints(key)[0] == client


def _add(record: _Record, places: list[Place], *more: Place, limit: int | None = None) -> None:
    """Note places of the start or end of a connection before any packet of it is exported."""
    room = max(0, (MAX_FRAMES_AROUND if limit is None else limit) - len(places))
    places += more[:room]
    record.left_out += len(more[room:])


def _remember(track: _Track, place: Place) -> None:
    if len(track.pending) < MAX_FRAMES_OF_A_PACKET:
        track.pending.append(place)
    else:
        track.left_out += 1
