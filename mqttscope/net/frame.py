"""The contents of a capture: frames, notices of the capture source, and decrypted TLS content.

Capture sources (``mqttscope.capture``) yield frames and notices in file order; the layers above work on these values
alone and does no I/O.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from mqttscope.net.segment import DnsMessage, Segment

FlowIdentity = tuple[bytes, int, str]
"""Direction key of a flow, number and capture of its first frame."""


@dataclass(slots=True)
class Plaintext:
    """The decrypted content of a TLS record, or a part of it; it comes before the segment that completed the record."""

    flow: FlowIdentity
    from_initiator: bool
    data: bytes
    offset: int
    """Stream offset of the delivered bytes that completed the record."""
    frame: int
    """The frame that completed the record."""
    timestamp_ns: int
    capture: str


@dataclass(slots=True)
class UndecryptedSession:
    """Why a TLS session, or a part of it, could not be decrypted; reported when its flow ends."""

    flow: FlowIdentity
    reason: str
    """A sentence without its full stop."""
    has_keys: bool
    """Whether keys of this session are available."""


Decrypted = Plaintext | UndecryptedSession


@dataclass(slots=True)
class Frame:
    """One captured link-layer record."""

    number: int
    """Number of the frame in its capture, counted from 1."""
    timestamp_ns: int
    """Capture time in nanoseconds since the Unix epoch, UTC."""
    link_type: int
    """LINKTYPE_ value of the interface (https://www.tcpdump.org/linktypes.html)."""
    data: bytes
    """The captured bytes; shorter than ``original_length`` when a snap length cut the frame."""
    original_length: int
    """Length of the frame on the wire, in bytes."""
    capture: str
    """Name of the capture the frame was read from, as the user gave it."""
    interface: int = field(default=0, compare=False)
    """Number of the interface in its section of a pcapng file; 0 without interface numbers. Ignored in comparisons."""


@dataclass(slots=True)
class CaptureError:
    """A capture could not be read to its end, or at all.  The frames before the error are good."""

    capture: str
    message: str
    """The error, in one sentence without the capture's name."""
    offset: int | None = None
    """Offset of the first unread byte in the (decompressed) file; ``None`` if the file could not be opened."""
    frames: int = 0
    """Number of frames read before the error."""


@dataclass(slots=True)
class CaptureDrops:
    """The capture file reports dropped frames (pcapng Interface Statistics Block)."""

    capture: str
    interface: int
    received: int | None
    dropped: int


@dataclass(slots=True)
class CaptureSecrets:
    """Key log lines stored in a pcapng Decryption Secrets Block."""

    capture: str
    secrets_type: int
    data: bytes


CaptureNotice = CaptureError | CaptureDrops | CaptureSecrets
SegmentItem = Segment | DnsMessage | CaptureNotice
"""Items of a capture after its frames are parsed."""
