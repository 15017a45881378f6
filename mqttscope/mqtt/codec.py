"""Decodes, traces and encodes single packets.

`decode` never raises on input: a packet that is not well formed comes back as a `Malformed` value with every field that
could be read.  `trace` gives the byte spans of the fields, `encode` writes a packet from its fields without judging
them.

PUBLISH, its acknowledgements and pings are most of all traffic, so their decoders are written by hand.  They return
the same packets as `declare.plan`, and leave everything unusual to it; a test compares both.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Final

from mqttscope.mqtt import packets
from mqttscope.mqtt.constants import RESERVED, V5, MalformedReason, PacketType, ProtocolVersion, type_name
from mqttscope.mqtt.declare import (
    PACKETS,
    ControlPacket,
    Examination,
    FaultReport,
    FieldSpan,
    Malformed,
    encode_body,
    flags_fault,
    frame_packet,
    plan,
    qos_fault,
)
from mqttscope.mqtt.packets import Acknowledgement, Pingreq, Pingresp, Puback, Pubcomp, Publish, Pubrec, Pubrel
from mqttscope.mqtt.properties import EMPTY, reader
from mqttscope.mqtt.wire import LayoutFault, counted, read_u16, read_utf8

_CONNECT: Final = PacketType.CONNECT
_AUTH: Final = PacketType.AUTH
"""Aliases, since an attribute of an enum takes longer than a name."""
Decoder = Callable[[bytes, int], ControlPacket]
BytesLike = bytes | bytearray | memoryview

_new: Final = Publish.__new__


def decoder(kind: int, version: ProtocolVersion) -> Decoder:
    """The decoder of a packet type in a version, hand-written or planned: ``(raw, start of the body) -> packet``."""
    if kind == PacketType.PUBLISH:
        return _publish(version)
    cls = PACKETS[kind]
    if cls is Puback or cls is Pubrec or cls is Pubrel or cls is Pubcomp:
        return _acknowledgement(cls, version)
    if cls is Pingreq or cls is Pingresp:
        return _ping(cls, version)
    return plan(cls, version)


_read_block: Final = reader(PacketType.PUBLISH)
MAX_CACHED_NAMES: Final = 10_000
"""Maximum number of cached Topic Names: lookups in tables are faster if equal names are the same object."""
MAX_NAME_BYTES: Final = 256
"""Maximum length of a cached Topic Name in bytes."""
_NAMES: Final[dict[bytes, str]] = {}


def read_publish(raw: bytes, position: int, *, five: bool, into: Publish | None = None) -> Publish:
    """Decode a PUBLISH with its body at ``position``; ``five``: in MQTT 5.0.  Raises `LayoutFault` if it is malformed.

    ``into``: an unused packet that is filled and returned instead of a new one.
    """
    flags = raw[0]
    qos = flags >> 1 & 3
    if qos == 3:
        raise qos_fault()
    end = len(raw)
    start = position + 2
    after = start + (raw[position] << 8 | raw[position + 1]) if start <= end else end + 1
    name = raw[start:after]
    known = _NAMES.get(name)
    if known is not None and after <= end:
        topic_name = known
    else:
        try:
            topic_name = name.decode()
        except UnicodeDecodeError:
            topic_name = "\0"
        if after > end or "\0" in topic_name:
            topic_name, after = read_utf8(raw, position, end)  # raises the exact fault
        elif after - start <= MAX_NAME_BYTES:
            if len(_NAMES) >= MAX_CACHED_NAMES:
                _NAMES.clear()
            _NAMES[name] = topic_name
    packet_identifier = None
    if qos:
        packet_identifier, after = read_u16(raw, after, end)
    properties = None
    if five:
        if after < end and not raw[after]:
            properties = EMPTY
            after += 1
        else:
            properties, after = _read_block(raw, after, end)
    packet: Publish = _new(Publish) if into is None else into
    packet.dup = flags & 8 != 0
    packet.qos = qos
    packet.retain = flags & 1 != 0
    packet.topic_name = topic_name
    packet.packet_identifier = packet_identifier
    packet.properties = properties
    packet.payload = raw[after:]
    packet.raw = raw
    packet.header_flags = None
    packet.missing = 0
    return packet


def _publish(version: ProtocolVersion) -> Decoder:
    five = version == ProtocolVersion.V5

    def decode(raw: bytes, position: int) -> ControlPacket:
        return read_publish(raw, position, five=five)

    return decode


def short_acknowledgement(make: Callable[[], Acknowledgement], raw: bytes) -> Acknowledgement:
    """Decode an acknowledgement of four bytes, with a Packet Identifier alone; ``make`` comes from `SHORT`."""
    packet = make()
    packet.packet_identifier = raw[2] << 8 | raw[3]
    packet.reason_code = None
    packet.properties = None
    packet.raw = raw
    packet.header_flags = None
    packet.missing = 0
    return packet


SHORT: Final[dict[int, Callable[[], Acknowledgement]]] = {
    cls.packet_type << 4 | cls.fixed_flags: partial(cls.__new__, cls) for cls in (Puback, Pubrec, Pubrel, Pubcomp)
}
"""Functions that make acknowledgements without calling ``__init__``, by the first byte of a well-formed packet."""


def _acknowledgement(cls: type[Acknowledgement], version: ProtocolVersion) -> Decoder:
    planned = plan(cls, version)
    first = cls.packet_type << 4 | cls.fixed_flags
    make = SHORT[first]

    def decode(raw: bytes, position: int) -> ControlPacket:
        if len(raw) != 4 or position != 2 or raw[0] != first:
            return planned(raw, position)
        return short_acknowledgement(make, raw)

    return decode


def _ping(cls: type[ControlPacket], version: ProtocolVersion) -> Decoder:
    planned = plan(cls, version)
    first = cls.packet_type << 4 | cls.fixed_flags
    make = partial(cls.__new__, cls)

    def decode(raw: bytes, position: int) -> ControlPacket:
        if len(raw) != 2 or raw[0] != first:
            return planned(raw, position)
        packet = make()
        packet.raw = raw
        packet.header_flags = None
        packet.missing = 0
        return packet

    return decode


DECODERS: Final[tuple[tuple[Callable[[bytes, int], ControlPacket] | None, ...], ...]] = tuple(
    tuple(
        decoder(kind, ProtocolVersion(version))
        if version >= ProtocolVersion.V3_1 and kind in PACKETS and (kind != PacketType.AUTH or version == V5)
        else None
        for kind in range(16)
    )
    for version in range(6)
)
"""Decoders by protocol level and packet type."""
FAST: Final = tuple((None, None, *row[2:]) for row in DECODERS)
"""`DECODERS` without CONNECT, which has a version of its own."""

NEED_MORE: Final = 0
TOO_LONG: Final = -1


def packet_end(data: bytes, position: int, end: int) -> tuple[int, int]:
    """Start of the body and end of the packet that starts at ``position``.

    Returns ``(body, end of the packet)``; the latter may exceed ``end``.  ``(NEED_MORE, 0)`` when the fixed header is
    incomplete, ``(TOO_LONG, 0)`` when its fourth length byte asks for a fifth (5.0 2.1.4).
    """
    at = position + 1
    if at >= end:
        return NEED_MORE, 0
    byte = data[at]
    if byte < 0x80:
        at += 1
        return at, at + byte
    length = byte & 0x7F
    for shift in (7, 14, 21):
        at += 1
        if at >= end:
            return NEED_MORE, 0
        byte = data[at]
        length |= (byte & 0x7F) << shift
        if byte < 0x80:
            at += 1
            return at, at + length
    return TOO_LONG, 0


def connect_version(raw: bytes, body: int) -> ProtocolVersion:
    """Version of a CONNECT from its protocol level; 3.1.1 if the level is missing or unknown."""
    at = body + 2
    if len(raw) < at:
        return ProtocolVersion.V3_1_1
    at += int.from_bytes(raw[body:at], "big")
    return packets.version_of_level(raw[at] if at < len(raw) else None)


def decode_framed(raw: bytes, body: int, version: ProtocolVersion) -> ControlPacket | Malformed:
    """Decode one packet with a fixed header that was read: ``body`` is the end of the header, ``raw`` the packet."""
    kind = raw[0] >> 4
    if kind == _CONNECT:
        version = connect_version(raw, body)
    decode_it = DECODERS[version][kind]
    if decode_it is not None and (raw[body - 1] or body == 2 or version < V5):
        try:
            return decode_it(raw, body)
        except LayoutFault:
            pass
    return examine(raw, version)


def well_formed(raw: bytes, body: int, version: ProtocolVersion) -> ControlPacket | None:
    """As `decode_framed`, but faster: returns ``None`` for any malformed packet."""
    kind = raw[0] >> 4
    if kind == _CONNECT:
        version = connect_version(raw, body)
    decode_it = DECODERS[version][kind]
    if decode_it is None or (body > 2 and not raw[body - 1] and version == V5):
        return None
    try:
        return decode_it(raw, body)
    except LayoutFault:
        return None


def decode(data: BytesLike, version: ProtocolVersion = ProtocolVersion.V3_1_1) -> ControlPacket | Malformed:
    """Decode exactly one packet.

    ``version`` is the version of the connection; a CONNECT has its own.  An incomplete packet is `Malformed` with
    reason ``truncated``, bytes after its end with reason ``trailing_bytes``.
    """
    raw = bytes(data)
    body, end = packet_end(raw, 0, len(raw))
    if body > 0 and end == len(raw):
        return decode_framed(raw, body, version)
    if body > 0 and end < len(raw):
        return _plain(
            MalformedReason.TRAILING_BYTES,
            end,
            "",
            f"{counted(len(raw) - end, 'byte')} after the end of the packet",
            raw,
        )
    if body == TOO_LONG:
        return too_long(raw)
    return truncated(raw, version)


def too_long(raw: bytes) -> Malformed:
    """`Malformed` for a Remaining Length that asks for a fifth byte."""
    detail = "Remaining Length runs past four bytes"
    return _plain(MalformedReason.REMAINING_LENGTH_TOO_LONG, 4, "remaining_length", detail, raw)


def implausible_length(raw: bytes, version: ProtocolVersion) -> Malformed:
    """`Malformed` for an implausible Remaining Length; ``raw`` is the header and bytes that may belong to it."""
    kind = raw[0] >> 4
    if reserved(kind, version):
        return _reserved(raw, version)
    header = truncated(raw, version)
    nibble, wanted = raw[0] & 15, PACKETS[kind].fixed_flags
    if kind == PacketType.PUBLISH:
        fault = qos_fault() if nibble & 6 == 6 else None
    else:
        fault = flags_fault(nibble, wanted) if nibble != wanted and version != ProtocolVersion.V3_1 else None
    if fault is None:
        detail = "the Remaining Length cannot belong to this packet: framing is lost"
        fault = LayoutFault(MalformedReason.REMAINING_LENGTH_WRONG, 1, detail, field="remaining_length")
    header.reason, header.offset, header.field, header.detail = fault.reason, fault.offset, fault.field, fault.detail
    header.missing = 0
    header.faults = (FaultReport(header.reason, header.offset, header.field, header.detail),)
    return header


def _reserved(raw: bytes, version: ProtocolVersion) -> Malformed:
    fault = first_byte_fault(raw[0], version)
    assert fault is not None
    return _plain(fault.reason, fault.offset, fault.field, fault.detail, raw)


def header_fault(raw: bytes, version: ProtocolVersion) -> FaultReport | None:
    """The fault of a fixed header, as far as it was captured; ``None`` if a packet may have it."""
    fault = first_byte_fault(raw[0], version)
    body, end = packet_end(raw, 0, len(raw))
    limits = packets.FIXED_LENGTHS.get((raw[0] >> 4, version))
    if fault is None and body > 0 and limits is not None and not limits[0] <= end - body <= limits[1]:
        return _length_fault(end - body, limits, version)
    return fault


def _length_fault(length: int, limits: tuple[int, int], version: ProtocolVersion) -> FaultReport:
    wanted = str(limits[0]) if limits[0] == limits[1] else f"at least {limits[0]}"
    detail = f"Remaining Length is {length}, must be {wanted} in MQTT {version.text}"
    return FaultReport(MalformedReason.REMAINING_LENGTH_WRONG, 1, "remaining_length", detail)


def first_byte_fault(first: int, version: ProtocolVersion) -> FaultReport | None:
    """The fault of a packet that begins with this byte; ``None`` if a packet of this version may begin with it."""
    kind = first >> 4
    if reserved(kind, version):
        return _type_fault(kind, version)
    if kind == PacketType.PUBLISH:
        fault = qos_fault() if first & 6 == 6 else None
    else:
        wanted = PACKETS[kind].fixed_flags
        fault = flags_fault(first & 15, wanted) if version != ProtocolVersion.V3_1 and first & 15 != wanted else None
    return None if fault is None else FaultReport(fault.reason, fault.offset, fault.field, fault.detail)


def _type_fault(kind: int, version: ProtocolVersion) -> FaultReport:
    detail = f"packet type {kind} ({type_name(kind)}) is reserved in MQTT {version.text}"
    return FaultReport(MalformedReason.PACKET_TYPE_RESERVED, 0, "packet_type", detail)


def reserved(kind: int, version: ProtocolVersion) -> bool:
    """Whether no packet has this type in this version."""
    return kind == RESERVED or (kind == _AUTH and version != V5)


def with_header_fault(cut: Malformed, fault: FaultReport) -> Malformed:
    """A packet that is cut by the end of the input, with the fault that its fixed header proves."""
    return replace(
        cut, reason=fault.reason, offset=fault.offset, field=fault.field, detail=fault.detail, faults=(fault,)
    )


def truncated(raw: bytes, version: ProtocolVersion) -> Malformed:
    """`Malformed` for a packet that is cut by the end of the input, with the fields before the cut.

    If its type is reserved, the cut is not its fault.
    """
    cut = _truncated(raw, version)
    is_reserved = bool(raw) and reserved(raw[0] >> 4, version)
    return with_header_fault(cut, _type_fault(raw[0] >> 4, version)) if is_reserved else cut


def _truncated(raw: bytes, version: ProtocolVersion) -> Malformed:
    body, end = packet_end(raw, 0, len(raw))
    if body == NEED_MORE:
        detail = "the input ends inside the fixed header"
        return _plain(MalformedReason.TRUNCATED, len(raw), "remaining_length", detail, raw)
    missing = end - len(raw)
    detail = f"announces {counted(end - body, 'byte')}, {len(raw) - body} of them arrived"
    malformed = _plain(MalformedReason.TRUNCATED, len(raw), "", detail, raw)
    malformed.missing = missing
    kind = PACKETS.get(raw[0] >> 4)
    if kind is not None and len(raw) > body:
        if raw[0] >> 4 == 1:
            version = connect_version(raw, body)
        walk = Examination(raw, kind, version)
        packet, names, _ = walk.run()
        tails = {row.name for row in kind.declaration if row.tail >= version and getattr(packet, row.name) is None}
        malformed.packet, malformed.fields_read = packet, tuple(name for name in names if name not in tails)
        early = [fault for fault in walk.faults if fault.offset < len(raw) and fault.reason not in _FAULTS_OF_A_CUT]
        early.sort(key=lambda fault: fault.offset)
        malformed.faults = (*early, FaultReport(malformed.reason, malformed.offset, malformed.field, malformed.detail))
    return malformed


_FAULTS_OF_A_CUT: Final = (
    MalformedReason.FIELD_OVERRUN,
    MalformedReason.PROPERTY_LENGTH_OVERRUN,
    MalformedReason.PROPERTY_LENGTH_MISSING,
    MalformedReason.CONNECT_PAYLOAD_MISMATCH,
    MalformedReason.TRAILING_BYTES,
)
"""Faults that only show that bytes are missing at the cut."""


def _plain(reason: MalformedReason, offset: int, field: str, detail: str, raw: bytes) -> Malformed:
    kind = raw[0] >> 4 if raw else None
    return Malformed(reason, offset, field, detail, raw, kind, faults=(FaultReport(reason, offset, field, detail),))


def examine(raw: bytes, version: ProtocolVersion) -> ControlPacket | Malformed:
    """Decode one framed packet slowly, with all faults and spans; returns a packet if it has no faults."""
    kind = raw[0] >> 4
    if reserved(kind, version):
        return _reserved(raw, version)
    walk = Examination(raw, PACKETS[kind], version)
    packet, names, complete = walk.run()
    if not walk.faults:
        return packet
    faults = sorted((_refine(fault, raw, kind, version, names) for fault in walk.faults), key=lambda row: row.offset)
    first = faults[0]
    return Malformed(
        first.reason, first.offset, first.field, first.detail, raw, kind, packet, names, complete, tuple(faults)
    )


def _refine(fault: FaultReport, raw: bytes, kind: int, version: ProtocolVersion, names: tuple[str, ...]) -> FaultReport:
    """Replace a fault about the packet's length by the exact one for this packet type."""
    short = fault.reason is MalformedReason.FIELD_OVERRUN
    if not short and fault.reason is not MalformedReason.TRAILING_BYTES:
        return fault
    body, end = packet_end(raw, 0, len(raw))
    if kind == PacketType.CONNECT:
        if fault.field == "client_identifier" and end - fault.offset < 2:
            fault.reason = MalformedReason.CLIENT_IDENTIFIER_MISSING
            fault.detail = "no Client Identifier in the payload"
        elif not short:
            fault.reason = MalformedReason.CONNECT_PAYLOAD_MISMATCH
            fault.detail += ": the payload has more than the connect flags announce"
        elif fault.field in ("user_name", "password") and fault.offset == end:
            fault.reason = MalformedReason.CONNECT_PAYLOAD_MISMATCH
            fault.detail = f"the connect flags announce a {fault.field} but the payload ends before it"
        return fault
    limits = packets.FIXED_LENGTHS.get((kind, version))
    length = end - body
    if limits is not None and not limits[0] <= length <= limits[1]:
        return _length_fault(length, limits, version)
    return fault


def trace(data: BytesLike, version: ProtocolVersion = ProtocolVersion.V3_1_1) -> list[FieldSpan]:
    """Byte span of every field of one packet, in wire order; of a malformed packet as far as it can be read."""
    raw = bytes(data)
    if not raw:
        return []
    body, end = packet_end(raw, 0, len(raw))
    kind = PACKETS.get(raw[0] >> 4)
    if body <= 0:
        header = FieldSpan("fixed_header", 0, min(5, len(raw)))
        return [header, FieldSpan("unparsed", 5, len(raw))] if len(raw) > 5 else [header]
    if kind is None or reserved(raw[0] >> 4, version):
        spans = [FieldSpan("packet_type", 0, 1), FieldSpan("remaining_length", 1, body)]
        return [*spans, FieldSpan("unparsed", body, len(raw))] if len(raw) > body else spans
    if raw[0] >> 4 == 1:
        version = connect_version(raw, body)
    walk = Examination(raw[:end], kind, version)
    walk.run()
    spans = [span for span in walk.spans if span.end <= len(raw)]
    covered = max((span.end for span in spans), default=0)
    if covered < len(raw):
        spans.append(FieldSpan("unparsed", covered, len(raw)))
    return spans


class SpanIndex:
    """The byte spans of one packet by field path, traced once, when first needed."""

    def __init__(self, raw: bytes, version: ProtocolVersion) -> None:
        self.raw, self.version = raw, version
        self._spans: list[FieldSpan] | None = None
        self._places: dict[str, tuple[int, int]] = {}

    @property
    def spans(self) -> list[FieldSpan]:
        """All spans, in wire order."""
        if self._spans is None:
            self._spans = trace(self.raw, self.version)
            places = self._places
            for span in self._spans:
                # A field counts for every part that contains it: `will`, `subscriptions`, `subscriptions[3]`.
                wholes = (
                    [span.field[: hit.start()] for hit in _PARTS.finditer(span.field)] if len(span.field) > 1 else []
                )
                for path in (span.field, *wholes):
                    known = places.get(path)
                    if known is None:
                        places[path] = span.start, span.end
                    else:
                        places[path] = min(known[0], span.start), max(known[1], span.end)
        return self._spans

    def of(self, packet: ControlPacket, path: str) -> FieldSpan | None:
        """Span of one field by its path; for bits, of their byte; for a part of a list, of the list."""
        wanted = packet.byte_of.get(path, path)
        row, _, name = wanted.rpartition(".")
        if row.startswith("subscriptions") and name in _OPTIONS:
            wanted = f"{row}.options"
        if wanted in ("dup", "qos", "retain", "header_flags"):
            return FieldSpan(path, 0, 1)
        if wanted == "topic_name" and type(packet) is packets.Publish and not packet.missing:
            start, last = packet_end(self.raw, 0, len(self.raw))  # the first field: found without tracing the packet
            end = start + 2 + int.from_bytes(self.raw[start : start + 2], "big")
            if start > 0 and end <= min(last, len(self.raw)):
                return FieldSpan(path, start, end)
        if wanted == "client_identifier" and type(packet) is packets.Connect and packet.client_identifier:
            start, end = _client_identifier_in(self.raw)
            if self.raw[start + 2 : end] == packet.client_identifier.encode("utf-8", "surrogateescape"):
                return FieldSpan(path, start, end)
        bounds = self._places.get(wanted) if self.spans else None
        return None if bounds is None else FieldSpan(path, *bounds)


def _client_identifier_in(raw: bytes) -> tuple[int, int]:
    """Start and end of the Client Identifier of a CONNECT, if the layout before it is intact."""
    body = max(packet_end(raw, 0, len(raw))[0], 0)
    start = body + 2 + int.from_bytes(raw[body : body + 2], "big") + 4  # protocol name, level, flags, Keep Alive
    if connect_version(raw, body) is ProtocolVersion.V5:
        _, start = packet_end(raw, start - 1, len(raw))  # the Property Length is encoded like a Remaining Length
    return start, start + 2 + int.from_bytes(raw[start : start + 2], "big")


_PARTS: Final = re.compile(r"[.\[]")
_OPTIONS: Final = frozenset(path.rpartition(".")[2] for path in packets.Subscribe.byte_of)
"""Parts of the options byte of a subscription (5.0 3.8.3.1)."""


def encode(
    packet: ControlPacket,
    version: ProtocolVersion = ProtocolVersion.V3_1_1,
    *,
    remaining_length: int | None = None,
) -> bytes:
    """Encode a packet from its fields, without judging them.

    ``raw`` is ignored; a CONNECT is encoded in the layout of its own protocol level.  ``remaining_length``
    replaces the true one.  Values too large for their field are cut to its width.
    """
    if isinstance(packet, packets.Connect):
        version = packet.version
    nibble, body = encode_body(packet, version)
    return frame_packet(packet.packet_type, nibble, body, remaining_length)
