"""One row of the table of packets: its bytes, and what they must mean.

A row is written as hex with one field per line and a comment after ``#``.  Its id is a sentence.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from mqttscope.mqtt import ControlPacket, MalformedReason, ProtocolVersion

V3_1, V3_1_1, V5 = ProtocolVersion
V3 = (V3_1, V3_1_1)
ALL = (V3_1, V3_1_1, V5)


@dataclass(slots=True)
class Case:
    """Bytes of one packet in one version with the expected packet, or the reason why they are malformed."""

    id: str
    version: ProtocolVersion
    raw: bytes
    packet: ControlPacket | None = None
    reason: MalformedReason | None = None
    field: str = ""
    offset: int = 0
    canonical: bool = True
    """Encoding the packet gives the bytes back: false where the bytes use a freedom that the encoder does not."""

    @property
    def framed(self) -> bool:
        """Whether the bytes are exactly what their fixed header announces."""
        return self.reason not in (MalformedReason.TRUNCATED, MalformedReason.REMAINING_LENGTH_TOO_LONG)


def parse(text: str) -> bytes:
    """The bytes of a commented hex text."""
    return bytes.fromhex("".join(line.partition("#")[0] for line in text.splitlines()))


def _versions(versions: ProtocolVersion | Iterable[ProtocolVersion]) -> tuple[ProtocolVersion, ...]:
    return (versions,) if isinstance(versions, ProtocolVersion) else tuple(versions)


def good(
    sentence: str,
    versions: ProtocolVersion | Iterable[ProtocolVersion],
    text: str | bytes,
    packet: ControlPacket,
    *,
    canonical: bool = True,
) -> list[Case]:
    """A well-formed packet, in one version or in several."""
    raw = text if isinstance(text, bytes) else parse(text)
    return [Case(f"{one.text}: {sentence}", one, raw, packet, canonical=canonical) for one in _versions(versions)]


def bad(
    sentence: str,
    versions: ProtocolVersion | Iterable[ProtocolVersion],
    text: str | bytes,
    reason: MalformedReason,
    field: str,
    offset: int,
) -> list[Case]:
    """A malformed packet: the first fault, the field it is in, and its offset."""
    raw = text if isinstance(text, bytes) else parse(text)
    return [
        Case(f"{one.text}: {sentence}", one, raw, reason=reason, field=field, offset=offset)
        for one in _versions(versions)
    ]
