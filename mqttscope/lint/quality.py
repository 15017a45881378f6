"""How good the captures are: what findings can and cannot be made from them."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

from mqttscope.events import ConnectionClosed, ConnectionOpened, Event, GapEvent, UnparsedEvent
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
    """Connections of which packets of one side alone were captured."""
    gapped: int = 0
    """Connections of which bytes are missing."""
    encrypted: int = 0
    """TLS connections: nothing of them can be checked."""
    lost_bytes: int = 0
    cut_bytes: int = 0
    """Lost bytes that the snap length cut off."""
    unparsed_bytes: int = 0
    dropped_frames: int = 0
    """Frames that the capture itself says it dropped."""
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
        self.one_sided += bool(packets[0]) != bool(packets[1])
        self.gapped += connection.gaps > 0

    def add(self, other: Quality) -> None:
        """Add the counts of another run over other connections."""
        for one in fields(self):
            setattr(self, one.name, getattr(self, one.name) + getattr(other, one.name))

    @property
    def clean(self) -> bool:
        """Whether nothing is missing that a finding could depend on."""
        return not (
            self.joined
            or self.version_assumed
            or self.one_sided
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
            "gapped": self.gapped,
            "encrypted": self.encrypted,
            "lost_bytes": self.lost_bytes,
            "cut_bytes": self.cut_bytes,
            "unparsed_bytes": self.unparsed_bytes,
            "dropped_frames": self.dropped_frames,
            "capture_errors": len(self.errors),
        }


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
