"""The packet that a finding points at, as `inspect` shows it: one line, and the bytes with carets under them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from mqttscope.events import MalformedEvent, PacketEvent
from mqttscope.lint.finding import Finding
from mqttscope.mqtt.codec import NEED_MORE, decode, packet_end
from mqttscope.mqtt.constants import Direction, PacketType, ProtocolVersion
from mqttscope.mqtt.declare import ControlPacket, Malformed, Span
from mqttscope.mqtt.packets import Publish
from mqttscope.mqtt.wire import write_variable_byte_integer
from mqttscope.redact.packets import BROKEN, covered, hidden_ranges
from mqttscope.redact.secrets import find_all
from mqttscope.report.base import View, hidden_of
from mqttscope.report.hexdump import Hexdump, Mark
from mqttscope.report.payload import PayloadView
from mqttscope.report.style import Painter
from mqttscope.report.summary import Summary
from mqttscope.report.text import TextLines
from mqttscope.session.connection import Connection

INDENT = 2
"""Columns in front of the line of a packet, as in front of its bytes."""
HEAD_BYTES = 32
"""What is always shown of a packet."""
MARKED_BYTES = 64
"""What is shown of a long field that is to blame."""
AROUND_BYTES = 16
LEAST_SKIP = 48
"""Fewer bytes than these are not worth leaving out."""

_COMPRESSED = (b"\x1f", b"\x78", b"\x28")
"""First bytes of gzip, zlib and zstd."""


class _Nowhere:
    """A sink for a reporter that only makes lines."""

    def write(self, data: bytes, /) -> object:
        """Drop the bytes."""
        return len(data)


def _lines(view: View) -> TextLines:
    """Lines of packets that are shown alone."""
    text = TextLines(_Nowhere(), view)
    text.summary = Summary(view, text.painter, alone=True)
    return text


class PacketView:
    """Shows packets of findings.  Of their connections no more is known than the findings say."""

    def __init__(self, view: View) -> None:
        self.view = view
        self.painter = Painter(view)
        narrower = replace(view, width=max(1, view.width - INDENT) if view.width > 0 else 0)
        self.text = _lines(narrower)
        self.bare = _lines(replace(narrower, payload="none"))
        self.payload = PayloadView(limit=view.payload_limit, show_secrets=view.show_secrets)

    def event(self, finding: Finding) -> PacketEvent | MalformedEvent | None:
        """The event of the packet; ``None`` for a finding that is about no packet."""
        if not finding.raw or finding.packet is None:
            return None
        version = ProtocolVersion.from_text(finding.version)
        direction = Direction(finding.sender or finding.direction or Direction.CLIENT_TO_SERVER)
        connection = Connection(
            finding.connection, finding.client, finding.server, finding.capture, finding.frame, finding.timestamp_ns,
            handshake_seen=True, version=version, version_known=True, client_identifier=finding.client_identifier,
        )  # fmt: skip
        connection.side(direction).doubt = finding.doubt
        connection.doubtful = finding.doubt >= BROKEN
        place = connection, direction, finding.packet, finding.frame, finding.timestamp_ns, finding.capture
        # What is in doubt may be malformed for want of its end, and then its topic is none.
        found = _decoded(finding.raw, 0 if finding.doubt else finding.missing, version, whole=self.view.show_secrets)
        if isinstance(found, Malformed):
            return MalformedEvent(*place, found, finding.topic)
        return PacketEvent(*place, found, finding.topic)

    def lines(self, event: PacketEvent | MalformedEvent) -> list[str]:
        """The line of a packet; more than one for a malformed packet in a narrow terminal."""
        text = self.bare if isinstance(event, PacketEvent) and self._unpacks_secret(event.packet) else self.text
        text.heads.forget(event.connection)
        if isinstance(event, PacketEvent):
            made = [str(text.packet(event)).rstrip(" ")]
        else:
            made = text.other(event)
        return [" " * INDENT + one for one in made]

    def _unpacks_secret(self, packet: ControlPacket) -> bool:
        """Whether a compressed payload, which the line shows unpacked, holds a secret: its bytes do not tell."""
        if self.view.show_secrets or not isinstance(packet, Publish) or packet.payload[:1] not in _COMPRESSED:
            return False
        told = self.payload.preview(packet.payload, self.view.payload_limit, missing=packet.missing)
        return bool(find_all(told, length=self.view.secret_length))

    def dump(
        self, finding: Finding, event: PacketEvent | MalformedEvent, concealed: Sequence[tuple[int, int]] = ()
    ) -> list[str]:
        """The bytes of a packet: its beginning, and what is to blame with carets under it.

        ``concealed`` are ranges of secrets that were covered before.
        """
        raw = finding.raw
        hidden = [] if self.view.show_secrets else [*hidden_of(event), *concealed]
        marks: list[Mark] = []
        spans: list[Span] = []
        shown = [(0, HEAD_BYTES)]
        if finding.offset is not None and finding.field:
            start, end = finding.offset, min(finding.offset + (finding.length or 0), len(raw))
            cut = min(end, start + MARKED_BYTES)
            marks = [Mark(start, cut, self.painter.safe(finding.field))]
            spans = [Span(finding.field, start, end)] if self.painter.colour else []
            shown.append((start - AROUND_BYTES, cut + AROUND_BYTES))
        return list(Hexdump(raw, spans, self.painter, marks=marks, hidden=hidden, skip=_skips(shown, len(raw))).lines())


def _skips(shown: list[tuple[int, int]], length: int) -> list[tuple[int, int]]:
    """What lies between the parts that are shown, in whole rows of 16 bytes."""
    skips = []
    at = 0
    for start, end in [*shown, (length + LEAST_SKIP, length + LEAST_SKIP)]:
        first, stop = -(-at // 16) * 16, max(0, start) // 16 * 16
        if stop - first >= LEAST_SKIP and first < length:
            skips.append((first, stop))
        at = max(at, end)
    return skips


def _decoded(raw: bytes, missing: int, version: ProtocolVersion, *, whole: bool) -> ControlPacket | Malformed:
    """The packet as it was when it was found; a PUBLISH may lack bytes of its payload.

    What came of that may be another packet, which a wrong length took for payload: it is shown if ``whole``.
    """
    if missing and raw[0] >> 4 == PacketType.PUBLISH:
        body, _ = packet_end(raw, 0, len(raw))
        if body > NEED_MORE:
            came = (raw if whole else covered(raw, hidden_ranges(raw, version)))[body:]
            found = decode(raw[:1] + write_variable_byte_integer(len(came)) + came, version)
            if isinstance(found, ControlPacket):
                found.raw, found.missing = raw, missing
                return found
    return decode(raw, version)
