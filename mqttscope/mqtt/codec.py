"""Decodes, traces and encodes single packets.

`decode` never raises on input: a packet that is not well formed comes back as a `Malformed` value with every field that
could be read.  `trace` gives the byte spans of the fields, `encode` writes a packet from its fields without judging
them.

PUBLISH, its acknowledgements and pings are most of all traffic, so their decoders are written out.  They give what
`declare.plan` makes of the declarations and leave to it whatever is not plain; a test compares both.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Final

from mqttscope.mqtt import packets
from mqttscope.mqtt.constants import RESERVED, V5, MalformedReason, PacketType, ProtocolVersion, type_name
from mqttscope.mqtt.declare import (
    PACKETS,
    ControlPacket,
    Examination,
    FaultReport,
    Malformed,
    Span,
    encode_body,
    flags_fault,
    frame_packet,
    plan,
    qos_fault,
)
from mqttscope.mqtt.packets import Acknowledgement, Pingreq, Pingresp, Puback, Pubcomp, Publish, Pubrec, Pubrel
from mqttscope.mqtt.properties import EMPTY, reader
from mqttscope.mqtt.wire import Fault, counted, read_u16, read_utf8

_CONNECT: Final = PacketType.CONNECT
_AUTH: Final = PacketType.AUTH
"""Short names, since an attribute of an enum takes longer than a name."""
Decoder = Callable[[bytes, int], ControlPacket]
BytesLike = bytes | bytearray | memoryview

_new: Final = Publish.__new__


def decoder(kind: int, version: ProtocolVersion) -> Decoder:
    """The decoder of a packet type in a version, written out or planned: ``(raw, start of the body) -> packet``."""
    if kind == PacketType.PUBLISH:
        return _publish(version)
    cls = PACKETS[kind]
    if cls is Puback or cls is Pubrec or cls is Pubrel or cls is Pubcomp:
        return _acknowledgement(cls, version)
    if cls is Pingreq or cls is Pingresp:
        return _ping(cls, version)
    return plan(cls, version)


_read_block: Final = reader(PacketType.PUBLISH)
MAX_NAMES: Final = 10_000
"""Topic Names of which the text is kept: as the same object, it is found in tables without being compared again."""
LONGEST_NAME: Final = 256
"""Bytes of the longest of them."""
_NAMES: Final[dict[bytes, str]] = {}


def read_publish(raw: bytes, position: int, *, five: bool, into: Publish | None = None) -> Publish:
    """A PUBLISH whose body begins at ``position``; ``five``: of 5.0.  Raises `Fault` where it breaks the layout.

    ``into``: one that nobody needs any more, which is filled and returned in the place of a new one.
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
            topic_name, after = read_utf8(raw, position, end)  # which says what is wrong
        elif after - start <= LONGEST_NAME:
            if len(_NAMES) >= MAX_NAMES:
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
    made: Publish = _new(Publish) if into is None else into
    made.dup = flags & 8 != 0
    made.qos = qos
    made.retain = flags & 1 != 0
    made.topic_name = topic_name
    made.packet_identifier = packet_identifier
    made.properties = properties
    made.payload = raw[after:]
    made.raw = raw
    made.header_flags = None
    made.missing = 0
    return made


def _publish(version: ProtocolVersion) -> Decoder:
    five = version == ProtocolVersion.V5

    def decode(raw: bytes, position: int) -> ControlPacket:
        return read_publish(raw, position, five=five)

    return decode


def short_acknowledgement(make: Callable[[], Acknowledgement], raw: bytes) -> Acknowledgement:
    """An acknowledgement of four bytes, which has nothing but the Packet Identifier; ``make`` is that of `SHORT`."""
    made = make()
    made.packet_identifier = raw[2] << 8 | raw[3]
    made.reason_code = None
    made.properties = None
    made.raw = raw
    made.header_flags = None
    made.missing = 0
    return made


SHORT: Final[dict[int, Callable[[], Acknowledgement]]] = {
    cls.packet_type << 4 | cls.fixed_flags: partial(cls.__new__, cls) for cls in (Puback, Pubrec, Pubrel, Pubcomp)
}
"""What makes acknowledgements without calling ``__init__``, by the first byte of one without a fault in it."""


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
        made = make()
        made.raw = raw
        made.header_flags = None
        made.missing = 0
        return made

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
"""The same without CONNECT, which brings a version of its own."""

NEED_MORE: Final = 0
TOO_LONG: Final = -1


def packet_end(data: bytes, position: int, end: int) -> tuple[int, int]:
    """Where the packet that starts at ``position`` has its body and its end.

    Returns ``(body, end of the packet)``; the end may lie after ``end``.  ``(NEED_MORE, 0)`` when the fixed header is
    not complete, ``(TOO_LONG, 0)`` when its fourth length byte asks for a fifth (5.0 2.1.4).
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
    """Version of a CONNECT from its protocol level; 3.1.1 where it cannot be read or is unknown."""
    at = body + 2
    if len(raw) < at:
        return ProtocolVersion.V3_1_1
    at += int.from_bytes(raw[body:at], "big")
    return packets.version_of_level(raw[at] if at < len(raw) else None)


def decode_framed(raw: bytes, body: int, version: ProtocolVersion) -> ControlPacket | Malformed:
    """Decode one packet whose fixed header was read: ``body`` is where it ends; ``raw`` is exactly the packet."""
    kind = raw[0] >> 4
    if kind == _CONNECT:
        version = connect_version(raw, body)
    decode_it = DECODERS[version][kind]
    if decode_it is not None and (raw[body - 1] or body == 2 or version < V5):
        try:
            return decode_it(raw, body)
        except Fault:
            pass
    return examine(raw, version)


def well_formed(raw: bytes, body: int, version: ProtocolVersion) -> ControlPacket | None:
    """`decode_framed` for one who does not care what is wrong: ``None`` instead of a `Malformed`, and quickly."""
    kind = raw[0] >> 4
    if kind == _CONNECT:
        version = connect_version(raw, body)
    decode_it = DECODERS[version][kind]
    if decode_it is None or (body > 2 and not raw[body - 1] and version == V5):
        return None
    try:
        return decode_it(raw, body)
    except Fault:
        return None


def decode(data: BytesLike, version: ProtocolVersion = ProtocolVersion.V3_1_1) -> ControlPacket | Malformed:
    """Decode exactly one packet.

    ``version`` is the one spoken on the connection; a CONNECT brings its own.  An incomplete packet is `Malformed` with
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
    """The value for a Remaining Length that asks for a fifth byte."""
    detail = "Remaining Length runs past four bytes"
    return _plain(MalformedReason.REMAINING_LENGTH_TOO_LONG, 4, "remaining_length", detail, raw)


def unbelieved(raw: bytes, version: ProtocolVersion) -> Malformed:
    """The value for a header whose Remaining Length is not believed; ``raw`` is what belongs to it at most."""
    kind = raw[0] >> 4
    if reserved(kind, version):
        return _reserved(raw, version)
    found = truncated(raw, version)
    nibble, wanted = raw[0] & 15, PACKETS[kind].fixed_flags
    if kind == PacketType.PUBLISH:
        fault = qos_fault() if nibble & 6 == 6 else None
    else:
        fault = flags_fault(nibble, wanted) if nibble != wanted and version != ProtocolVersion.V3_1 else None
    if fault is None:
        detail = "the Remaining Length cannot belong to this packet: framing is lost"
        fault = Fault(MalformedReason.REMAINING_LENGTH_WRONG, 1, detail, field="remaining_length")
    found.reason, found.offset, found.field, found.detail = fault.reason, fault.offset, fault.field, fault.detail
    found.missing = 0
    found.faults = (FaultReport(found.reason, found.offset, found.field, found.detail),)
    return found


def _reserved(raw: bytes, version: ProtocolVersion) -> Malformed:
    fault = first_byte_fault(raw[0], version)
    assert fault is not None
    return _plain(fault.reason, fault.offset, fault.field, fault.detail, raw)


def header_fault(raw: bytes, version: ProtocolVersion) -> FaultReport | None:
    """Why the fixed header of a packet is that of none, as far as it is there; ``None`` where it may be one."""
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
    """Why no packet of this version begins with this byte; ``None`` where one does."""
    kind = first >> 4
    if reserved(kind, version):
        detail = f"packet type {kind} ({type_name(kind)}) is reserved in MQTT {version.text}"
        return FaultReport(MalformedReason.PACKET_TYPE_RESERVED, 0, "packet_type", detail)
    if kind == PacketType.PUBLISH:
        fault = qos_fault() if first & 6 == 6 else None
    else:
        wanted = PACKETS[kind].fixed_flags
        fault = flags_fault(first & 15, wanted) if version != ProtocolVersion.V3_1 and first & 15 != wanted else None
    return None if fault is None else FaultReport(fault.reason, fault.offset, fault.field, fault.detail)


def reserved(kind: int, version: ProtocolVersion) -> bool:
    """Whether no packet has this type in this version."""
    return kind == RESERVED or (kind == _AUTH and version != V5)


def truncated(raw: bytes, version: ProtocolVersion) -> Malformed:
    """The value for a packet that the input ends in; carries the fields that came before."""
    body, end = packet_end(raw, 0, len(raw))
    if body == NEED_MORE:
        detail = "the input ends inside the fixed header"
        return _plain(MalformedReason.TRUNCATED, len(raw), "remaining_length", detail, raw)
    missing = end - len(raw)
    detail = f"announces {counted(end - body, 'byte')}, {len(raw) - body} of them came"
    found = _plain(MalformedReason.TRUNCATED, len(raw), "", detail, raw)
    found.missing = missing
    kind = PACKETS.get(raw[0] >> 4)
    if kind is not None and len(raw) > body:
        if raw[0] >> 4 == 1:
            version = connect_version(raw, body)
        walk = Examination(raw, kind, version)
        made, names, _ = walk.run()
        tails = {row.name for row in kind.declaration if row.tail >= version and getattr(made, row.name) is None}
        found.packet, found.fields_read = made, tuple(name for name in names if name not in tails)
        early = [one for one in walk.faults if one.offset < len(raw) and one.reason not in _FAULTS_OF_A_CUT]
        early.sort(key=lambda one: one.offset)
        found.faults = (*early, FaultReport(found.reason, found.offset, found.field, found.detail))
    return found


_FAULTS_OF_A_CUT: Final = (
    MalformedReason.FIELD_OVERRUN,
    MalformedReason.PROPERTY_LENGTH_OVERRUN,
    MalformedReason.PROPERTY_LENGTH_MISSING,
    MalformedReason.CONNECT_PAYLOAD_MISMATCH,
    MalformedReason.TRAILING_BYTES,
)
"""Whatever lacks bytes at the end of the input lacks them because the packet was cut."""


def _plain(reason: MalformedReason, offset: int, field: str, detail: str, raw: bytes) -> Malformed:
    kind = raw[0] >> 4 if raw else None
    return Malformed(reason, offset, field, detail, raw, kind, faults=(FaultReport(reason, offset, field, detail),))


def examine(raw: bytes, version: ProtocolVersion) -> ControlPacket | Malformed:
    """Decode one framed packet slowly: all faults, all spans.  Returns a packet when there is no fault."""
    kind = raw[0] >> 4
    if reserved(kind, version):
        return _reserved(raw, version)
    walk = Examination(raw, PACKETS[kind], version)
    made, names, complete = walk.run()
    if not walk.faults:
        return made
    faults = sorted((_refine(one, raw, kind, version, names) for one in walk.faults), key=lambda one: one.offset)
    first = faults[0]
    return Malformed(
        first.reason, first.offset, first.field, first.detail, raw, kind, made, names, complete, tuple(faults)
    )


def _refine(fault: FaultReport, raw: bytes, kind: int, version: ProtocolVersion, names: tuple[str, ...]) -> FaultReport:
    """Name a fault of the packet's length by what it means for this packet type."""
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


def trace(data: BytesLike, version: ProtocolVersion = ProtocolVersion.V3_1_1) -> list[Span]:
    """Byte span of every field of one packet, in wire order; of a damaged one as far as it can be read."""
    raw = bytes(data)
    if not raw:
        return []
    body, end = packet_end(raw, 0, len(raw))
    kind = PACKETS.get(raw[0] >> 4)
    if body <= 0:
        header = Span("fixed_header", 0, min(5, len(raw)))
        return [header, Span("unparsed", 5, len(raw))] if len(raw) > 5 else [header]
    if kind is None or reserved(raw[0] >> 4, version):
        spans = [Span("packet_type", 0, 1), Span("remaining_length", 1, body)]
        return [*spans, Span("unparsed", body, len(raw))] if len(raw) > body else spans
    if raw[0] >> 4 == 1:
        version = connect_version(raw, body)
    walk = Examination(raw[:end], kind, version)
    walk.run()
    spans = [one for one in walk.spans if one.end <= len(raw)]
    covered = max((one.end for one in spans), default=0)
    if covered < len(raw):
        spans.append(Span("unparsed", covered, len(raw)))
    return spans


class SpanIndex:
    """The byte spans of one packet, traced when first needed and once, by field path."""

    def __init__(self, raw: bytes, version: ProtocolVersion) -> None:
        self.raw, self.version = raw, version
        self._spans: list[Span] | None = None
        self._places: dict[str, tuple[int, int]] = {}

    @property
    def spans(self) -> list[Span]:
        """All of them, in wire order."""
        if self._spans is None:
            self._spans = trace(self.raw, self.version)
            places = self._places
            for one in self._spans:
                # A field counts for all that it is a part of: `will`, `subscriptions`, `subscriptions[3]`.
                wholes = [one.field[: hit.start()] for hit in _PARTS.finditer(one.field)] if len(one.field) > 1 else []
                for path in (one.field, *wholes):
                    known = places.get(path)
                    if known is None:
                        places[path] = one.start, one.end
                    else:
                        places[path] = min(known[0], one.start), max(known[1], one.end)
        return self._spans

    def of(self, packet: ControlPacket, path: str) -> Span | None:
        """Span of one field by its path; bits give the byte that holds them, parts of a list their whole."""
        wanted = packet.byte_of.get(path, path)
        row, _, name = wanted.rpartition(".")
        if row.startswith("subscriptions") and name in _OPTIONS:
            wanted = f"{row}.options"
        if wanted in ("dup", "qos", "retain", "header_flags"):
            return Span(path, 0, 1)
        if wanted == "topic_name" and type(packet) is packets.Publish and not packet.missing:
            start, last = packet_end(self.raw, 0, len(self.raw))  # the first field: no other has to be read for it
            end = start + 2 + int.from_bytes(self.raw[start : start + 2], "big")
            if start > 0 and end <= min(last, len(self.raw)):
                return Span(path, start, end)
        if wanted == "client_identifier" and type(packet) is packets.Connect and packet.client_identifier:
            start, end = _client_identifier_in(self.raw)
            if self.raw[start + 2 : end] == packet.client_identifier.encode("utf-8", "surrogateescape"):
                return Span(path, start, end)
        found = self._places.get(wanted) if self.spans else None
        return None if found is None else Span(path, *found)


def _client_identifier_in(raw: bytes) -> tuple[int, int]:
    """Where the Client Identifier of a CONNECT begins and ends, if there is no fault in the layout before it."""
    body = max(packet_end(raw, 0, len(raw))[0], 0)
    start = body + 2 + int.from_bytes(raw[body : body + 2], "big") + 4  # protocol name, level, flags, Keep Alive
    if connect_version(raw, body) is ProtocolVersion.V5:
        _, start = packet_end(raw, start - 1, len(raw))  # properties have their length before them as a packet does
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

    ``raw`` is not looked at; a CONNECT is encoded in the layout of its own protocol level.  ``remaining_length``
    replaces the true one.  Values too large for their field are cut to its width.
    """
    if isinstance(packet, packets.Connect):
        version = packet.version
    nibble, body = encode_body(packet, version)
    return frame_packet(packet.packet_type, nibble, body, remaining_length)
