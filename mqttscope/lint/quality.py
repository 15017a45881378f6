"""How good the captures are: what findings can and cannot be made from them."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

from mqttscope.events import (
    ConnectionClosed,
    ConnectionOpened,
    Event,
    GapEvent,
    MalformedEvent,
    PacketEvent,
    UnparsedEvent,
)
from mqttscope.mqtt.constants import MalformedReason
from mqttscope.net.frame import CaptureDrops, CaptureError


@dataclass(slots=True)
class Quality:
    """Counts over all captures of a run."""

    connections: int = 0
    joined: int = 0
    """Connections whose CONNECT was not captured."""
    version_assumed: int = 0
    """Connections whose version is not known for certain."""
    one_sided: int = 0
    """Connections of which the capture has segments of one side alone."""
    unanswered: int = 0
    """Connections whose CONNECT was captured and that got no CONNACK, although the capture has both sides."""
    answered: int = 0
    """Connections of which packets of the server were captured."""
    gapped: int = 0
    """Connections of which bytes are missing."""
    encrypted: int = 0
    """TLS connections: nothing of them can be checked."""
    lost_bytes: int = 0
    cut_bytes: int = 0
    """Lost bytes that the snap length cut off."""
    unparsed_bytes: int = 0
    dropped_frames: int = 0
    """Frames that the capture itself reports as dropped."""
    errors: list[str] = field(default_factory=list)
    """Captures that could not be read to their end."""

    def feed(self, event: Event) -> None:
        """Count one event that is no packet."""
        if isinstance(event, ConnectionOpened):
            self.connections += 1
        elif isinstance(event, ConnectionClosed):
            self._closed(event)
        elif isinstance(event, GapEvent):
            self.lost_bytes += event.length
            self.cut_bytes += event.length if event.reason == "cut" else 0
        elif isinstance(event, UnparsedEvent):
            self.unparsed_bytes += 0 if event.unparsed.reason == "proxy_header" else event.unparsed.length
        elif isinstance(event, CaptureDrops):
            self.dropped_frames += event.dropped
        elif isinstance(event, CaptureError):
            self.errors.append(event.capture)

    def _closed(self, event: ConnectionClosed) -> None:
        connection = event.connection
        if connection.transport == "tls" and not connection.decrypted:
            self.encrypted += 1
            return
        packets = connection.client_side.packets, connection.server_side.packets
        spoken = any(packets) or connection.gaps > 0
        no_connect = connection.connect_packet is None and not connection.version_known
        self.joined += no_connect and not connection.handshake_seen
        self.version_assumed += spoken and not connection.version_known
        self.one_sided += connection.one_sided is not None
        self.answered += packets[1] > 0
        asked = connection.connect_packet is not None and connection.connack_packet is None
        self.unanswered += asked and connection.one_sided is None and not connection.gaps
        self.gapped += connection.gaps > 0

    def add(self, other: Quality) -> None:
        """Add the counts of another run over other connections."""
        for one in fields(self):
            setattr(self, one.name, getattr(self, one.name) + getattr(other, one.name))

    @property
    def unheard(self) -> str:
        """The message where servers were reached and none of them answered in MQTT; empty where one did."""
        if not self.unanswered or self.answered:
            return ""
        many = self.unanswered > 1
        return (
            f"no broker answered: {_count(self.unanswered, 'connection')} {'have' if many else 'has'} a CONNECT and no"
            " CONNACK, so that only what clients sent was judged"
        )

    @property
    def clean(self) -> bool:
        """Whether nothing is missing that a finding could depend on."""
        return not (
            self.joined
            or self.version_assumed
            or self.one_sided
            or self.unanswered
            or self.gapped
            or self.encrypted
            or self.unparsed_bytes
            or self.dropped_frames
            or self.errors
        )

    def sentences(self) -> list[str]:
        """What is missing, for people; empty when the capture is complete."""
        told = [
            (self.joined, "{} joined after the CONNECT"),
            (self.version_assumed, "{} with an assumed version"),
            (self.one_sided, "{} with one direction only"),
            (self.unanswered, "{} without CONNACK"),
            (self.gapped, "{} with lost bytes"),
            (self.encrypted, "{} inside TLS, not checked"),
        ]
        said = [form.format(_count(number, "connection")) for number, form in told if number]
        if self.lost_bytes:
            cut = f", {self.cut_bytes:,} of them cut by the snap length" if self.cut_bytes else ""
            said.append(f"{_count(self.lost_bytes, 'byte')} lost{cut}")
        if self.unparsed_bytes:
            said.append(f"{_count(self.unparsed_bytes, 'byte')} not understood")
        if self.dropped_frames:
            said.append(f"{_count(self.dropped_frames, 'frame')} dropped by the capture")
        if self.errors:
            said.append(f"{_count(len(self.errors), 'capture')} not read to the end")
        return said

    def as_json(self) -> dict[str, Any]:
        """The counts by name."""
        return {
            "connections": self.connections,
            "joined": self.joined,
            "version_assumed": self.version_assumed,
            "one_sided": self.one_sided,
            "unanswered": self.unanswered,
            "gapped": self.gapped,
            "encrypted": self.encrypted,
            "lost_bytes": self.lost_bytes,
            "cut_bytes": self.cut_bytes,
            "unparsed_bytes": self.unparsed_bytes,
            "dropped_frames": self.dropped_frames,
            "capture_errors": len(self.errors),
        }


def is_whole_packet(event: Event) -> bool:
    """Whether an event is an MQTT packet that came to its end; what another protocol sends is none."""
    if isinstance(event, MalformedEvent):
        found, history = event.malformed, event.connection.history
        if found.reason is MalformedReason.TRUNCATED or any(
            fault.reason is MalformedReason.TRUNCATED for fault in found.faults
        ):
            return False
        return history is None or not history.foreign
    return isinstance(event, PacketEvent)


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
