"""Quality of captures: missing parts, and whether the rest is good enough to judge the traffic.

There is one ledger.  `Quality` counts what is missing from one capture or from all captures of a run.  `QualityLedger`
has one `Quality` per capture.  The quality line in reports, the JSON form and ``--require-quality`` all use these
counts, so they cannot contradict each other.

A lack is *outside* if it is before or after the capture: a connection joined in the middle, or one that had not ended
when the capture did.  Such a capture is usable.  Bytes, frames or a direction missing *inside* the capture make it
unusable, since a fault may be hidden there.  Bytes of a device that cannot be understood are a fault of the *sender*:
the capture is still good enough.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from enum import Enum, StrEnum, auto
from typing import Any, Final

from mqttscope import events
from mqttscope.mqtt.constants import MalformedReason, PacketType
from mqttscope.net.frame import CaptureDrops, CaptureError
from mqttscope.net.segment import INCOMPLETE_FRAGMENTS, MALFORMED, TRUNCATED, UNREAD
from mqttscope.session.connection import Connection

CONNACK_WAIT_NS: Final = 5_000_000_000
"""How long a capture may continue after a CONNECT before a missing CONNACK counts as a lack inside it.

Brokers answer within milliseconds, and mobile networks take up to two seconds.  A capture that ends earlier may have
ended before the CONNACK."""

_OPEN_ENDS: Final = frozenset(("capture_end", "idle", "evicted"))
"""Ends that only the reader sees (`Connection.closed_how`), and reasons for unparsed bytes of the last packet."""
_NOTHING_MISSING: Final = frozenset(("proxy_header", "reset", "port_reused"))
"""Reasons for unparsed bytes without a lack: their sender stopped within the packet, or they are not MQTT."""
_UNREAD: Final = frozenset(("too_large", "no_room", "websocket", "tls", "capture_changed"))
"""Reasons for unparsed bytes that no rule blames on a side."""
_UNTAKEN: Final = "out_of_window"
"""Reason for discarded segments with bytes that a receiver may have read."""
_BEFORE: Final = "before_start"
"""Reason for discarded segments from before the first byte that was read."""
_DAMAGED: Final = {
    INCOMPLETE_FRAGMENTS: "incomplete_fragments",
    MALFORMED: "malformed_frames",
    TRUNCATED: "truncated_frames",
}
"""Counts of frames that the capture has damaged, by the reason why they hold no segment."""


class QualityLevel(StrEnum):
    """Levels of ``--require-quality``."""

    USABLE = "usable"
    """Nothing is missing between the beginning and the end of the capture."""
    COMPLETE = "complete"
    """Nothing is missing, and all connections begin and end in the capture."""


class LackPlace(Enum):
    """Where something is missing."""

    INSIDE = auto()
    """Between the beginning and the end of the capture, or of its readable part."""
    OUTSIDE = auto()
    """Before the beginning or after the end."""
    END = auto()
    """After the end, without influence on findings: connections that continue."""
    SENDER = auto()
    """In the traffic itself: the capture has all of it."""


@dataclass(slots=True, frozen=True)
class Lack:
    """One thing that is missing from a capture."""

    text: str
    place: LackPlace


_REFUSED: Final = {
    QualityLevel.USABLE: (LackPlace.INSIDE,),
    QualityLevel.COMPLETE: (LackPlace.INSIDE, LackPlace.OUTSIDE, LackPlace.END),
}


@dataclass(slots=True, frozen=True)
class Shortfall:
    """A capture that is not as good as required."""

    capture: str
    causes: tuple[str, ...]

    def sentence(self, level: QualityLevel) -> str:
        """``a.pcapng is not usable: 40 frames dropped by the capture``."""
        return f"{self.capture} is not {level}: {'; '.join(self.causes)}"


@dataclass(slots=True)
class Quality:
    """Counts of one capture, or of all captures of a run."""

    connections: int = 0
    joined: int = 0
    """Connections without a captured CONNECT."""
    version_assumed: int = 0
    """Connections with an uncertain version."""
    one_sided: int = 0
    """Connections with segments of only one side."""
    unanswered: int = 0
    """Connections with a CONNECT and without a CONNACK, although the capture has both sides."""
    unawaited: int = 0
    """Unanswered connections with a capture that ended too early for the CONNACK."""
    answered: int = 0
    """Connections with packets of the server."""
    gapped: int = 0
    """Connections with missing bytes."""
    ambiguous: int = 0
    """Connections with bytes that were repeated with other content, or accepted with a wrong checksum."""
    open_ended: int = 0
    """Connections without an end in the capture."""
    encrypted: int = 0
    """TLS connections, which cannot be checked."""
    lost_bytes: int = 0
    cut_bytes: int = 0
    """Lost bytes that the snap length cut off."""
    unparsed_bytes: int = 0
    unread_bytes: int = 0
    """Unparsed bytes that this program could not read and no rule blames on a side."""
    outside_bytes: int = 0
    """Unparsed bytes of packets that began before the capture or ended after it."""
    discarded_segments: int = 0
    """Segments with data that no connection took, although their receiver may have read them."""
    early_segments: int = 0
    """Segments with data from before the first byte that was read of their connection."""
    dropped_frames: int = 0
    """Frames that the capture itself reports as dropped."""
    clock_steps: int = 0
    """Number of clock steps of the capture."""
    incomplete_fragments: int = 0
    """IP fragments of TCP segments with other fragments missing."""
    malformed_frames: int = 0
    truncated_frames: int = 0
    """Frames that the snap length cut inside their headers."""
    errors: list[str] = field(default_factory=list)
    """Captures that could not be read to the end."""

    def feed(self, event: events.Event) -> None:
        """Count one event that is not a well-formed packet."""
        if isinstance(event, events.ConnectionOpened):
            self.connections += 1
        elif isinstance(event, events.ConnectionClosed):
            self.note_beginning(event.connection, event.timestamp_ns)
            self.note_end(event.connection)
        elif isinstance(event, events.GapEvent):
            self.gapped += event.connection.gaps == 1 and not _is_encrypted(event.connection)
            self.lost_bytes += event.length
            self.cut_bytes += event.length if event.reason == "cut" else 0
        elif isinstance(event, events.UnparsedEvent):
            self._unparsed(event)
        elif isinstance(event, events.DiscardedEvent):
            self.discarded_segments += event.reason == _UNTAKEN
            self.early_segments += event.reason == _BEFORE
        elif isinstance(event, CaptureDrops):
            self.dropped_frames += event.dropped
        elif isinstance(event, events.ClockStep):
            self.clock_steps += event.by_ns != 0
        elif isinstance(event, CaptureError):
            self.errors.append(event.capture)

    def _unparsed(self, event: events.UnparsedEvent) -> None:
        reason, length, connection = event.unparsed.reason, event.unparsed.length, event.connection
        if reason in _NOTHING_MISSING:
            return
        self.unparsed_bytes += length
        self.unread_bytes += length if reason in _UNREAD else 0
        if reason in _OPEN_ENDS or (reason == "resynchronised" and _is_joined(connection) and not connection.gaps):
            self.outside_bytes += length

    def note_beginning(self, connection: Connection, end_ns: int) -> None:
        """Count what is missing from the beginning of an ended connection, or from all of it.

        ``end_ns``: time of the last segment in the capture that has the connection's last frame.
        """
        if _is_encrypted(connection):
            self.encrypted += 1
            return
        if _is_attempt(connection):
            return
        packets = connection.client_side.packets, connection.server_side.packets
        spoken = any(packets) or connection.gaps > 0
        self.joined += _is_joined(connection)
        self.version_assumed += spoken and not connection.version_known
        self.one_sided += connection.one_sided is not None
        self.answered += packets[1] > 0
        is_whole = not connection.gaps and not connection.unseen_bytes and connection.one_sided is None
        if is_whole and _lacks_connack(connection):
            self.unanswered += 1
            self.unawaited += _ended_early(connection, end_ns)

    def note_end(self, connection: Connection) -> None:
        """Count what is missing from the end of an ended connection."""
        if _is_encrypted(connection) or _is_attempt(connection):
            return
        self.gapped += connection.unseen_bytes > 0 and not connection.gaps
        self.lost_bytes += connection.unseen_bytes
        self.ambiguous += _counted_segments(connection, "overlaps") > 0
        self.open_ended += connection.closed_how in _OPEN_ENDS and connection.disconnect_by is None

    def add(self, other: Quality) -> None:
        """Add the counts of other connections or another capture."""
        for count in fields(self):
            setattr(self, count.name, getattr(self, count.name) + getattr(other, count.name))

    @property
    def unheard(self) -> str:
        """The message if no contacted server answered in MQTT; empty if one did."""
        if not self.unanswered or self.answered:
            return ""
        many = self.unanswered > 1
        return (
            f"no broker answered: {_count(self.unanswered, 'connection')} {'have' if many else 'has'} a CONNECT and no"
            " CONNACK, so that only what clients sent was judged"
        )

    @property
    def clean(self) -> bool:
        """Whether nothing that a finding could depend on is missing."""
        return not self.sentences()

    @property
    def is_usable(self) -> bool:
        return not self.causes(QualityLevel.USABLE)

    def lacks(self) -> list[Lack]:
        """The missing parts; empty for a complete capture."""
        cut = f", {self.cut_bytes:,} of them cut by the snap length" if self.cut_bytes else ""
        strange_bytes = self.unparsed_bytes - self.unread_bytes - self.outside_bytes
        inside, outside = LackPlace.INSIDE, LackPlace.OUTSIDE
        rows: list[tuple[int, str, str, LackPlace]] = [
            (self.joined, "connection", "joined after the CONNECT", outside),
            # Joined, or of a version that does not exist.
            (self.version_assumed, "connection", "with an assumed version", LackPlace.SENDER),
            (self.one_sided, "connection", "with one direction only", inside),
            (self.unanswered - self.unawaited, "connection", "without CONNACK", inside),
            (self.unawaited, "connection", "without CONNACK when the capture ended", outside),
            (self.gapped, "connection", "with lost bytes", inside),
            (
                self.ambiguous,
                "connection",
                "with bytes that came again with other content, or with a wrong checksum",
                inside,
            ),
            (self.encrypted, "connection", "inside TLS, not checked", inside),
            (self.open_ended, "connection", "without an end in the capture", LackPlace.END),
            (self.lost_bytes, "byte", f"lost{cut}", inside),
            (self.unread_bytes, "byte", "not read", inside),
            (self.outside_bytes, "byte", "of packets that begin or end outside the capture", outside),
            (strange_bytes, "byte", "not understood", LackPlace.SENDER),
            (self.discarded_segments, "segment", "that no connection took", inside),
            (self.early_segments, "segment", "from before the first byte that was read", outside),
            (self.dropped_frames, "frame", "dropped by the capture", inside),
            (self.clock_steps, "step", "of the capture's clock", inside),
            *((getattr(self, name), "frame", UNREAD[reason].words, inside) for reason, name in _DAMAGED.items()),
            (len(self.errors), "capture", "not read to the end", inside),
        ]
        return [Lack(f"{_count(number, noun)} {what}", place) for number, noun, what, place in rows if number]

    def sentences(self, level: QualityLevel | None = None) -> list[str]:
        """Phrases for the missing parts.

        Most captures end while devices stay connected: that is named only if ``level`` requires complete captures.
        """
        is_named = {*LackPlace} if level is QualityLevel.COMPLETE else {*LackPlace} - {LackPlace.END}
        return [lack.text for lack in self.lacks() if lack.place in is_named]

    def causes(self, level: QualityLevel) -> tuple[str, ...]:
        """Reasons why a capture is not as good as ``level``; empty if it is."""
        return tuple(lack.text for lack in self.lacks() if lack.place in _REFUSED[level])

    def as_json(self) -> dict[str, Any]:
        counts = {count.name: getattr(self, count.name) for count in fields(self) if count.name != "errors"}
        return {**counts, "capture_errors": len(self.errors)}


@dataclass(slots=True)
class QualityLedger:
    """Quality of each capture of a run.  Feed it all events except well-formed packets.  Plain data."""

    by_capture: dict[str, Quality] = field(default_factory=dict)

    def of(self, capture: str) -> Quality:
        """The counts of a capture."""
        quality = self.by_capture.get(capture)
        if quality is None:
            quality = self.by_capture[capture] = Quality()
        return quality

    def total(self) -> Quality:
        """The counts of all captures together."""
        total = Quality()
        for quality in self.by_capture.values():
            total.add(quality)
        return total

    def add(self, other: QualityLedger) -> None:
        """Add the counts of another run over other connections."""
        for capture, quality in other.by_capture.items():
            self.of(capture).add(quality)

    def note_skipped(self, capture: str, reason: str, frames: int) -> None:
        """Count damaged frames without a TCP segment (`net.segment.NoteSkipped`)."""
        name = _DAMAGED.get(reason)
        if name is not None:
            quality = self.of(capture)
            setattr(quality, name, getattr(quality, name) + frames)

    def feed(self, event: events.Event) -> None:
        """Count one event."""
        if isinstance(event, events.ConnectionClosed):
            self.close(event)
        else:
            self.of(event.capture).feed(event)

    def close(self, event: events.ConnectionClosed, end_ns: int | None = None) -> None:
        """Count the end of a connection; ``end_ns``: time of the latest segment of the capture.

        Counts for the whole connection belong to the capture with its beginning.
        """
        latest_ns = event.timestamp_ns if end_ns is None else max(event.timestamp_ns, end_ns)
        self.of(event.connection.capture).note_beginning(event.connection, latest_ns)
        self.of(event.capture).note_end(event.connection)

    def shortfalls(self, level: QualityLevel, silent: list[str]) -> list[Shortfall]:
        """The captures that are not as good as ``level``; ``silent`` are those without an MQTT packet."""
        shortfalls = []
        for capture in sorted({*self.by_capture, *silent}):
            causes = self.of(capture).causes(level) if capture in self.by_capture else ()
            if capture in silent:
                causes = (*causes, "no MQTT packet to judge")
            if causes:
                shortfalls.append(Shortfall(capture, causes))
        return shortfalls


def _is_encrypted(connection: Connection) -> bool:
    return connection.transport == "tls" and not connection.decrypted


def _is_joined(connection: Connection) -> bool:
    """Whether a connection began before its capture."""
    if connection.connect_packet is not None or connection.handshake_seen:
        return False
    # A damaged CONNECT is not a packet of the connection, but it contains the version.
    return not connection.version_known or connection.version_evidence == "given"


def _lacks_connack(connection: Connection) -> bool:
    """Whether a CONNECT was captured, but no answer to it."""
    if connection.connect_packet is None or connection.connack_packet is not None:
        return False
    history = connection.history
    return history is None or (history.connack_malformed is None and not history.server.counts[PacketType.AUTH])


def _ended_early(connection: Connection, end_ns: int) -> bool:
    """Whether the capture ended before a CONNACK was due."""
    history, sent_ns = connection.history, connection.connect_timestamp_ns
    if sent_ns is None or connection.closed_how not in _OPEN_ENDS or (history is not None and history.foreign):
        return False
    return end_ns < sent_ns + CONNACK_WAIT_NS


def _is_attempt(connection: Connection) -> bool:
    """Whether one side tried to connect and got no answer, so that the other side sent nothing to capture."""
    return connection.one_sided is not None and _counted_segments(connection, "data_segments") == 0


def _counted_segments(connection: Connection, counter: str) -> int:
    """The sum of a counter of TCP over both directions (`dissect.dissector.COUNTERS`); -1 without counters."""
    counters = connection.details.get("tcp")
    return sum(side[counter] for side in counters.values()) if isinstance(counters, dict) else -1


def is_whole_packet(event: events.Event) -> bool:
    """Whether an event is a complete MQTT packet; bytes of another protocol are not."""
    if isinstance(event, events.MalformedEvent):
        packet, history = event.malformed, event.connection.history
        if packet.reason is MalformedReason.TRUNCATED or any(
            fault.reason is MalformedReason.TRUNCATED for fault in packet.faults
        ):
            return False
        return history is None or not history.foreign
    return isinstance(event, events.PacketEvent)


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
