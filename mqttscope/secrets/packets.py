"""Finds the ranges of secrets in the bytes of a packet, even if malformed; bytes in doubt count as secret.

A well-formed packet has secrets in the fields ``password`` and ``authentication_data``.  A malformed CONNECT is shown
up to its first untrusted field: a field is trusted if it is clean text and the next announced field is inside the
packet.  Lengths, flags and everything else that explains the fault come before that.  Other malformed packets are shown
up to their first faulty property.  Bytes that look like the beginning of a CONNECT or of an HTTP request are treated as
such in every packet.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from mqttscope.mqtt.codec import decode, packet_end, trace
from mqttscope.mqtt.constants import RESERVED, MalformedReason, PacketType, ProtocolVersion
from mqttscope.mqtt.declare import ControlPacket, Malformed
from mqttscope.mqtt.packets import BRIDGE_LEVELS, FIXED_LENGTHS, Connect, Publish
from mqttscope.mqtt.properties import BY_IDENTIFIER, BY_NAME, LISTS, WILL, Properties
from mqttscope.mqtt.stream import Unparsed
from mqttscope.mqtt.wire import LayoutFault, read_variable_byte_integer
from mqttscope.secrets.credentials import TEXT_NAMES, credential_bytes, without_property_credentials
from mqttscope.secrets.forms import joined, token_places, token_ranges
from mqttscope.secrets.names import MAX_NAME as MAX_PROPERTY_NAME
from mqttscope.secrets.names import is_secret_name, is_secret_value

CLEAR, SUSPECT, BROKEN, LOST = range(4)
"""Level of distrust in the bytes of one direction.  Clear: the last packet was well-formed and without secrets.
Suspect: no packet yet, or one with secrets.  Broken: bytes are not a packet.  Lost: a packet with a secret is damaged.
A well-formed packet lowers the level by one: a secret may contain bytes like one such packet, but hardly like two."""
AUTHENTICATION_DATA = BY_NAME["authentication_data"].identifier
_HOLDERS = (PacketType.CONNACK, PacketType.DISCONNECT, PacketType.AUTH)
"""Other packets that can carry Authentication Data (DISCONNECT only by mistake)."""
_WITH_SECRETS = (PacketType.CONNECT, *_HOLDERS)
_LEVELS = (*ProtocolVersion, *BRIDGE_LEVELS)
_NAMES = (b"MQTT", b"MQIsdp")
DISGUISED: Final = frozenset(("MQTT", "MQIsdp"))
"""Topics of a CONNECT that is read as a PUBLISH because of a wrong first byte."""
_CONNECT = re.compile(rb"\x00\x04MQTT|\x00\x06MQIsdp", re.IGNORECASE)
_HTTP = re.compile(
    rb"HTTP/1\.|authori[sz]ation:|cookie:|sec-websocket-protocol:|[?&;][\w.~-]{0,40}=|bearer[ .]", re.IGNORECASE
)
UNCLEAN = re.compile(rb"[\x00-\x1f\x7f]")
_OF_VALUES = frozenset(
    (
        MalformedReason.FIXED_HEADER_FLAGS,
        MalformedReason.QOS_INVALID,
        MalformedReason.UTF8_ILL_FORMED,
        MalformedReason.UTF8_NULL_CHARACTER,
        MalformedReason.VARIABLE_BYTE_INTEGER_NOT_MINIMAL,
        MalformedReason.PROPERTY_NOT_ALLOWED,
        MalformedReason.PROPERTY_UNKNOWN,
        MalformedReason.REASON_CODE_INVALID,
        MalformedReason.SUBSCRIPTION_OPTIONS_RESERVED,
        MalformedReason.SUBSCRIPTION_QOS_INVALID,
    )
)
"""Faults that do not move any field."""
MAX_CUT = 1_024
"""Maximum number of missing bytes of a truncated field; if more are missing, its length counts as wrong."""
MAX_NAME = 8
"""Maximum length of an unknown protocol name that is shown: a longer one may be another field."""
PASSWORD_FLAG = 0x40
"""The connect flag that announces a password."""
MAX_FAULTS = 2
"""Maximum number of faults in values; with more faults, the packet type counts as wrong."""
MAX_LEFT = 4
"""Maximum number of leftover bytes in front of whole packets that are shown; more may be part of a secret."""
MAX_SHIFT = 64
"""Maximum offset of whole packets that are searched in a damaged packet."""
MAX_EXPLAINED = 4_096
"""Maximum size of a damaged packet that is searched for whole packets."""
MIN_EXPLAINED = 4
"""Minimum total size of the whole packets in a damaged packet."""
_SIZES = {"Byte": 1, "Two Byte Integer": 2, "Four Byte Integer": 4}

Ranges = list[tuple[int, int]]


def hidden_in_packet(
    packet: ControlPacket, version: ProtocolVersion, doubt: int = CLEAR, shown: int | None = None
) -> Ranges:
    """Ranges of a well-formed packet that contain, or may contain, a secret.

    ``shown`` is the number of payload bytes that are shown; ``None`` for all.
    """
    kind = packet.packet_type
    if kind == PacketType.PUBLISH:
        if doubt < BROKEN and packet.topic_name not in DISGUISED:  # type: ignore[attr-defined]
            return _with_property_credentials(token_places(packet, shown), packet)
        length = len(packet.payload or b"")  # type: ignore[attr-defined]
        start = len(packet.raw) - length
        if doubt >= BROKEN:
            start = max(2, packet_end(packet.raw, 0, len(packet.raw))[0])
        return _tail(start, len(packet.raw))
    if isinstance(packet, Connect):
        will, password = packet.will, packet.password
        if _has_data(packet.properties) or (
            will is not None
            and (
                (password is not None and packet.user_name is None)
                or _has_data(will.properties)
                or token_ranges(will.will_payload)
            )
        ):
            return _with_property_credentials(_by_fields(packet.raw, version), packet)
        # The password is the last field, and in most packets with a secret the only one.
        ranges = _tail(len(packet.raw) - len(password), len(packet.raw)) if password else []
        return _with_property_credentials(ranges, packet)
    block: Properties | None = getattr(packet, "properties", None)
    if not block:
        return []
    # A packet with properties is read as 5.0, even if the connection seems to be another version.
    ranges = _by_fields(packet.raw, ProtocolVersion.V5) if kind in _HOLDERS and _has_data(block) else []
    return _with_property_credentials(ranges, packet)


def _with_property_credentials(ranges: Ranges, packet: ControlPacket) -> Ranges:
    """The given ranges, and the ranges of credentials in the properties of the packet and its will."""
    will = packet.will if isinstance(packet, Connect) else None
    blocks: list[Properties] = [packet.properties] if packet.properties else []  # type: ignore[attr-defined]
    if will is not None and will.properties:
        blocks.append(will.properties)
    if all(without_property_credentials(block) is block for block in blocks):
        return ranges
    return joined([*ranges, *_property_credentials(packet.raw)])


def _property_credentials(raw: bytes) -> Iterator[tuple[int, int]]:
    """Ranges of credentials in the string properties of a packet."""
    methods: set[str] = set()
    for span in trace(raw, ProtocolVersion.V5):
        name = span.field.rpartition(".")[2]
        if name in TEXT_NAMES:
            at = span.start + 3
            yield from _credentials_at(raw, at, span.end)
        elif name == "authentication_method":
            if span.field in methods:
                yield span.start + 3, span.end
            methods.add(span.field)
        elif name == "user_property":
            at = span.start + 3
            middle = at + int.from_bytes(raw[at - 2 : at], "big")
            yield from _credentials_at(raw, at, middle)
            name, value = raw[at:middle].decode("utf-8", "replace"), raw[middle + 2 : span.end]
            if is_secret_value(name, value.decode("utf-8", "replace")):
                yield middle + 2, span.end
            else:
                yield from _credentials_at(raw, middle + 2, span.end)


def _has_data(block: Properties | None) -> bool:
    return block is not None and block.first(AUTHENTICATION_DATA) is not None


def hides_payload(packet: Publish, doubt: int) -> bool:
    """Whether the payload of a PUBLISH may be the rest of a CONNECT."""
    return bool(packet.payload) and (doubt >= BROKEN or packet.topic_name in DISGUISED)


def hidden_in_damaged(raw: bytes, version: ProtocolVersion, doubt: int = CLEAR) -> Ranges:
    """Ranges of a malformed packet that may contain a secret, including credentials by name and form."""
    hidden = doubted_in_damaged(raw, version, doubt)
    return hidden if _covers_body(raw, hidden) else joined([*hidden, *credentials_in_damaged(raw, version)])


def _covers_body(raw: bytes, hidden: Ranges) -> bool:
    body = packet_end(raw, 0, len(raw))[0] if raw else 0
    return body <= 0 or (len(hidden) == 1 and hidden[0][0] <= body and hidden[0][1] == len(raw))


def credentials_in_damaged(raw: bytes, version: ProtocolVersion) -> Ranges:
    """Credentials by name and form in the fields and bytes of a malformed packet.

    The fields may be fields of 5.0 on a connection of another version, and a wrong field may contain other fields.
    """
    body = max(0, packet_end(raw, 0, len(raw))[0])
    ranges = [*_property_credentials(raw), *secret_pairs(raw, body)]
    if raw[:1] and raw[0] >> 4 != PacketType.CONNECT:  # the name in a CONNECT would hide all later bytes
        ranges += token_ranges(raw, body)
    for span in trace(raw, version):
        name = span.field.rpartition(".")[2]
        if name in ("payload", "will_payload"):
            ranges += token_ranges(raw[: span.end], span.start + 2 * (name == "will_payload"))
        elif name in ("unparsed", "trailing_bytes"):
            ranges += _credentials_at(raw, span.start, span.end)
    return joined([*ranges, *names_hidden(raw, version)])


def credentials_in_beginning(raw: bytes) -> Ranges:
    """Credentials of a possibly truncated packet, except in names, which are needed to read the rest of the packet."""
    body, end = packet_end(raw, 0, len(raw))
    if body <= 0:
        return []
    raw = raw[:end]
    ranges = [*_property_credentials(raw), *secret_pairs(raw, body)]
    if raw[0] >> 4 == PacketType.PUBLISH:
        ranges += token_ranges(raw, body + 2 + int.from_bytes(raw[body : body + 2], "big"))
    return joined(ranges)


def secret_pairs(raw: bytes, at: int) -> Iterator[tuple[int, int]]:
    """Values of apparent User Properties with the name of a secret."""
    while (at := raw.find(b"&", at) + 1) > 0:
        middle = at + 2 + int.from_bytes(raw[at : at + 2], "big")
        if middle <= at + 2 + MAX_PROPERTY_NAME and is_secret_name(raw[at + 2 : middle].decode("utf-8", "replace")):
            yield middle + 2, min(len(raw), middle + 2 + int.from_bytes(raw[middle : middle + 2], "big"))


def names_hidden(raw: bytes, version: ProtocolVersion) -> Ranges:
    """Ranges of credentials in the Client Identifier, User Name and topics of a packet."""
    return [
        place
        for span in trace(raw, version)
        if span.field.rpartition(".")[2]
        in ("client_identifier", "user_name", "topic_name", "will_topic", "topic_filter")
        or span.field.startswith("topic_filters")
        for place in _credentials_at(raw, span.start + 2, span.end)
    ]


def _credentials_at(raw: bytes, at: int, end: int) -> Iterator[tuple[int, int]]:
    return ((at + first, at + last) for first, last in credential_bytes(raw[at:end]))


def doubted_in_damaged(raw: bytes, version: ProtocolVersion, doubt: int = CLEAR) -> Ranges:
    """Ranges of a malformed packet that may be part of a secret, by its layout."""
    if not raw:
        return []
    kind = raw[0] >> 4
    body, end = packet_end(raw, 0, len(raw))
    if body <= 0:
        return _tail(min(2, len(raw)), len(raw))
    if kind == PacketType.CONNECT:
        ranges = _read_connect(raw, body, end).hidden
    elif doubt >= SUSPECT or kind == RESERVED:
        ranges = _tail(body, len(raw))
    elif kind in _HOLDERS:
        ranges = _hidden_in_holder(raw, body, end, kind)
    else:
        ranges = _hidden_in_other(raw, body, end, version)
    start = body + 8 if kind == PacketType.CONNECT else 0
    return joined([*ranges, *_tail(end, len(raw)), *_hidden_in_embedded(raw, start)])


def hidden_in_unparsed(unparsed: Unparsed, version: ProtocolVersion, doubt: int = CLEAR) -> Ranges:
    """Hidden ranges of bytes that are not a packet: all bytes, unless they belong to a packet without secrets."""
    hidden = doubted_in_unparsed(unparsed, version, doubt)
    whole = unparsed.reason == "proxy_header" or _covers_body(unparsed.raw, hidden)
    return hidden if whole else joined([*hidden, *credentials_in_damaged(unparsed.raw, version)])


def doubted_in_unparsed(unparsed: Unparsed, version: ProtocolVersion, doubt: int = CLEAR) -> Ranges:
    """Hidden ranges of bytes that are not a packet, without credentials by name and form."""
    raw, kind = unparsed.raw, unparsed.packet_type
    if unparsed.reason == "proxy_header":
        # It may contain texts, and with a wrong length also a CONNECT.
        return joined([*token_ranges(raw), *_hidden_in_embedded(raw, 0)])
    if doubt or kind is None or kind == RESERVED or kind in _WITH_SECRETS:
        return _tail(0, len(raw))
    return doubted_in_damaged(raw, version, doubt)


def ends_framing(item: ControlPacket | Malformed | Unparsed) -> bool:
    """Whether bytes have no valid packet type, so that the packets around them are in doubt as well."""
    return not isinstance(item, ControlPacket) and item.packet_type in (None, RESERVED)


def hidden_ranges(raw: bytes, version: ProtocolVersion, doubt: int = CLEAR) -> Ranges:
    """Hidden ranges of bytes that may be a well-formed or a malformed packet."""
    if not raw:
        return []
    packet = decode(raw, version)
    if isinstance(packet, Malformed):
        return hidden_in_damaged(raw, version, doubt)
    return hidden_in_packet(packet, version, doubt)


def holds_secrets(raw: bytes) -> bool:
    """Whether the first byte is the type of a packet that may contain a secret."""
    return bool(raw) and raw[0] >> 4 in _WITH_SECRETS


def holds_connect(raw: bytes) -> bool:
    """Whether bytes contain the protocol name of a CONNECT."""
    return _CONNECT.search(raw) is not None


def covered(raw: bytes, hidden: Iterable[tuple[int, int]]) -> bytes:
    """The bytes with a ``*`` for each hidden byte."""
    shown = bytearray(raw)
    for start, end in hidden:
        end = min(end, len(raw))
        shown[start:end] = b"*" * (end - start)
    return bytes(shown)


def redacted(raw: bytes, version: ProtocolVersion, doubt: int = CLEAR) -> bytes:
    """The bytes of a packet with a ``*`` for each byte that may be part of a secret."""
    hidden = hidden_ranges(raw, version, doubt)
    return covered(raw, hidden) if hidden else raw


def visible_fields(names: Iterable[str], raw: bytes, version: ProtocolVersion, hidden: Ranges) -> tuple[str, ...]:
    """The names of fields without hidden bytes; Authentication Data and the password flag always count as visible."""
    if not hidden:
        return tuple(names)
    lost = {
        re.split(r"[.\[]", span.field, maxsplit=1)[0]
        for span in trace(raw, version)
        if not span.field.endswith("properties.authentication_data") and _overlaps(span.start, span.end, hidden)
    }
    # The password flag is in a byte that wrong lengths do not move.
    return tuple(name for name in names if name == "password" or name not in lost)


def is_identified(raw: bytes) -> bool:
    """Whether the Client Identifier of a damaged CONNECT is trusted."""
    body, end = packet_end(raw, 0, len(raw))
    return body > 0 and _read_connect(raw, body, end).identified


def _overlaps(start: int, end: int, hidden: Ranges) -> bool:
    return any(first < end and start < behind for first, behind in hidden)


def _tail(start: int, end: int) -> Ranges:
    return [(start, end)] if 0 <= start < end else []


def _by_fields(raw: bytes, version: ProtocolVersion) -> Ranges:
    ranges = []
    spans = trace(raw, version)
    # Flags that announce a password without a User Name may be wrong: then the Will Payload may be the password.
    announced = {"password", "user_name"} & {span.field for span in spans}
    doubtful = version < ProtocolVersion.V5 and announced == {"password"}
    for span in spans:
        if span.field == "password":
            ranges.append((span.start + 2, span.end))
        elif span.field.endswith("properties.authentication_data"):
            ranges.append((span.start + 3, span.end))
        elif span.field == "will.will_payload" and doubtful:
            ranges.append((span.start + 2, span.end))
        elif span.field == "will.will_payload":
            ranges += [
                (span.start + 2 + start, span.start + 2 + end)
                for start, end in token_ranges(raw[span.start + 2 : span.end])
            ]
    return joined(ranges)


def _hidden_in_embedded(raw: bytes, start: int) -> Iterator[tuple[int, int]]:
    """Secrets of a CONNECT without its beginning, or of an HTTP request, from ``start`` on."""
    connect = _CONNECT.search(raw, start)
    if connect is not None:
        yield from _read_connect(raw, connect.start(), len(raw) + 1).hidden
    http = _HTTP.search(raw, start)
    if http is not None:
        yield http.end(), len(raw)


def _hidden_in_holder(raw: bytes, body: int, end: int, kind: int) -> Ranges:
    """Hidden ranges of CONNACK, DISCONNECT and AUTH, which are always read in the layout of 5.0."""
    at = body + (2 if kind == PacketType.CONNACK else 1)
    if raw[0] & 15 or (kind == PacketType.CONNACK and raw[body : body + 1] > b"\x01"):
        return _tail(body, len(raw))  # even the first bytes do not fit the packet type
    block = PropertyBlock(raw, at, min(end, len(raw)), kind)
    return block.hidden if block.trusted is None else [*block.hidden, *_tail(block.trusted, len(raw))]


def _hidden_in_other(raw: bytes, body: int, end: int, version: ProtocolVersion) -> Ranges:
    """Hidden ranges of a packet type without secrets: the type may be wrong, so bytes are hidden after a fault."""
    kind, length = raw[0] >> 4, len(raw)
    explained = _find_whole_packets(raw, version)
    if explained is not None:
        at, inside = explained
        return [*(_tail(body, at) if at > MAX_LEFT else []), *inside]
    limits = FIXED_LENGTHS.get((kind, version))
    if limits is not None and not limits[0] <= end - body <= limits[1]:
        return _tail(body + min(limits[0], 2), length)
    packet = decode(raw, version)
    if not isinstance(packet, Malformed):
        return []
    start = length
    spans = trace(raw, version)
    unknown = [(span.start + 1, span.end) for span in spans if ".unknown_" in span.field]
    faults = packet.faults
    if len(faults) > 1:
        # Besides an unknown property there is another fault: the bytes after it belong to another packet.
        start = min([start, *(first for first, _ in unknown)])
    for span in spans:
        # Topics contain no zero byte, but lengths do: this topic has swallowed other fields.
        zero = raw.find(b"\0", span.start + 2, span.end) if span.field == "topic_name" else -1
        if 0 <= zero < span.end - MAX_LEFT:
            start = zero
    if not packet.complete or len(faults) > MAX_FAULTS or any(fault.reason not in _OF_VALUES for fault in faults):
        for fault in packet.faults:
            if fault.offset < length:
                prefix = 2 * (fault.reason is MalformedReason.FIELD_OVERRUN)
                start = min(start, max(body, fault.offset + prefix))
        at = max((span.end for span in spans if span.field != "unparsed"), default=body)
        if at + 2 <= length and at + 2 + int.from_bytes(raw[at : at + 2], "big") > end:
            start = min(start, at + 2)
    data = raw.find(AUTHENTICATION_DATA, body)
    while data >= 0:
        # The identifier is followed by a plausible length: this looks like Authentication Data.
        size = int.from_bytes(raw[data + 1 : data + 3], "big")
        if size < 256 and data + 3 <= length and data + 3 + size <= length:
            start = min(start, data)
            break
        data = raw.find(AUTHENTICATION_DATA, data + 1)
    return [*unknown, *_tail(start, length)]


def _find_whole_packets(raw: bytes, version: ProtocolVersion) -> tuple[int, Ranges] | None:
    """Offset of whole packets that fill the rest of the bytes, and their hidden ranges.

    If the announced length of a packet is too short, its last bytes are read as the beginning of another packet, which
    then includes the packets after it.
    """
    length = len(raw)
    if length > MAX_EXPLAINED:
        return None
    for start in range(1, min(MAX_SHIFT, length - MIN_EXPLAINED) + 1):
        at, hidden = start, list[tuple[int, int]]()
        while at < length:
            body, end = packet_end(raw, at, length)
            if body <= 0 or end > length or not 0 < raw[at] >> 4 <= PacketType.AUTH:
                break
            packet = decode(raw[at:end], version)
            if isinstance(packet, Malformed) or packet.packet_type == PacketType.CONNECT:
                break
            hidden += [(at + first, at + behind) for first, behind in hidden_in_packet(packet, version)]
            at = end
        if at == length:
            return start, hidden
    return None


@dataclass(slots=True)
class _ConnectLayout:
    """Hidden ranges of a CONNECT, and whether its client is known."""

    hidden: Ranges = field(default_factory=list)
    identified: bool = False
    """Whether the Client Identifier is clean text and the next field fits."""


def _read_connect(raw: bytes, body: int, end: int) -> _ConnectLayout:
    """Read a CONNECT with its variable header at ``body``; ``end`` is its end by the Remaining Length."""
    connect, length = _ConnectLayout(), len(raw)
    name_end = body + 2 + int.from_bytes(raw[body : body + 2], "big")
    name = raw[body + 2 : name_end]
    at = name_end + 4  # level, flags and Keep Alive
    if at > length:
        whole = any(len(usual) == len(name) and _distance(usual, name) <= 1 for usual in _NAMES)
        cut = any(usual.startswith(raw[body + 2 :].upper()) for usual in (b"MQTT", b"MQISDP"))
        connect.hidden = [] if whole or cut else _tail(body, length)
        return connect
    level, flags = raw[name_end], raw[name_end + 1]
    known = any(len(known_name) == len(name) and _distance(known_name, name) <= 1 for known_name in _NAMES)
    if level == ProtocolVersion.V5:
        block = PropertyBlock(raw, at, min(end, length), PacketType.CONNECT)
        connect.hidden += block.hidden
        if block.trusted is not None:
            connect.hidden += _tail(block.trusted if known else body, length)
            return connect
        at = block.end
    fields, at, fits = _payload_fields(raw, at, end, flags, level == ProtocolVersion.V5, connect.hidden)
    exact = fits and at == end and end <= length
    odd = (not known) + (
        level not in _LEVELS or (level & 0x7F == ProtocolVersion.V3_1) != (len(name) == len(_NAMES[1]))
    )
    named = known or (len(name) <= MAX_NAME and is_clean(name))
    if exact and odd <= 1 and named and are_flags(flags, level):
        # All fields are where they should be: the fault is in a value.
        start = next((field_.start + 2 for field_ in fields if not field_.clean), length)
        if not flags & PASSWORD_FLAG and len(fields) > 1:
            # The password flag may be damaged: then the flags do not describe the fields after the first.
            start = min(start, fields[1].start + 2)
        if odd:
            start = min([start, *(field_.start + 2 for field_ in fields if field_.name.startswith("will_"))])
        connect.identified = bool(fields) and fields[0].clean
        connect.hidden += [(field_.start + 2, field_.end) for field_ in fields if field_.name == "password"]
        connect.hidden += _tail(start, length)
        return connect
    if not known:
        connect.hidden += _tail(body, length)
        return connect
    if connect.hidden:
        # After Authentication Data the layout is wrong: the following bytes may belong to the data.
        connect.hidden += _tail(min(start for start, _ in connect.hidden), length)
        return connect
    trusted = True
    for field_, behind in zip(fields, [*fields[1:], None], strict=True):
        follows = behind.fits if behind is not None else not field_.announces_more
        trusted = trusted and field_.clean and field_.fits and follows and level in _LEVELS
        # If the fields do not fit, any text after the first field may be a password.
        trusted = trusted and field_.name == "client_identifier"
        if not trusted or field_.name == "password":
            connect.hidden += _tail(field_.start + 2 if level in _LEVELS else field_.start, length)
            break
        connect.identified = True
        at = field_.end
    else:
        connect.hidden += _tail(at, length)
    return connect


def _distance(name: bytes, other: bytes) -> int:
    return sum(mine != theirs for mine, theirs in zip(name.lower(), other.lower(), strict=True))


def are_flags(flags: int, level: int) -> bool:
    """Whether connect flags are valid for the protocol level."""
    if flags & 1 and level != ProtocolVersion.V3_1:
        return False
    if not flags & 4 and flags & 0x38:
        return False
    return flags & 0x18 != 0x18 and (level == ProtocolVersion.V5 or not (flags & 0x40 and not flags & 0x80))


@dataclass(slots=True)
class _ConnectField:
    name: str
    start: int
    end: int
    fits: bool
    """Whether the field is inside the packet."""
    clean: bool
    """Whether the field is clean text, if it should be text."""
    announces_more: bool
    """Whether the flags announce another field after this one."""


_Payload = tuple[list[_ConnectField], int, bool]


def _payload_fields(raw: bytes, at: int, end: int, flags: int, five: bool, hidden: Ranges) -> _Payload:
    """The fields of the payload that fit, their end, and whether all fields fit."""
    names = ["client_identifier"]
    names += ["will_topic", "will_payload"] if flags & 4 else []
    names += ["user_name"] if flags & 0x80 else []
    names += ["password"] if flags & PASSWORD_FLAG else []
    fields: list[_ConnectField] = []
    for number, name in enumerate(names):
        if name == "will_topic" and five:
            block = PropertyBlock(raw, at, min(end, len(raw)), WILL)
            hidden += block.hidden
            if block.trusted is not None:
                hidden += _tail(block.trusted, len(raw))
                return fields, at, False
            at = block.end
        after = at + 2 + int.from_bytes(raw[at : at + 2], "big")
        fits = at + 2 <= min(end, len(raw)) and after <= min(end, len(raw) + MAX_CUT)
        value = raw[at + 2 : after]
        clean = name in ("will_payload", "password") or is_clean(value)
        fields.append(_ConnectField(name, at, min(after, len(raw)), fits, clean, number + 1 < len(names)))
        if not fits or after > len(raw):
            return fields, min(after, len(raw)), False
        at = after
    return fields, at, True


def is_clean(value: bytes) -> bool:
    """Whether bytes are UTF-8 text without control characters."""
    if UNCLEAN.search(value):
        return False
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


class PropertyBlock:
    """The properties of a packet: ranges of Authentication Data, and the end of the trusted bytes."""

    def __init__(self, raw: bytes, at: int, end: int, owner: int) -> None:
        self.hidden: Ranges = []
        self.end = at
        """End of the properties if they are trusted."""
        self.trusted = self._walk(raw, at, end, owner)
        """Offset of the first untrusted byte; ``None`` if all are trusted."""

    def _walk(self, raw: bytes, at: int, end: int, owner: int) -> int | None:
        if at >= end:
            return None if owner in _HOLDERS else at
        length = self._number(raw, at, end)
        if length is None:
            return at
        size, at = length
        stop = at + size
        if stop > end or (owner in _HOLDERS and stop != end):
            return self._properties(raw, at, end, owner) or at
        fault = self._properties(raw, at, stop, owner)
        self.end = stop
        return fault

    def _properties(self, raw: bytes, at: int, stop: int, owner: int) -> int | None:
        """Walk the properties; returns the offset of the first faulty one.

        A string directly before it may have a wrong length, and is not trusted either.
        """
        texts: list[int] = []
        fault = self._fault(raw, at, stop, owner, texts)
        return fault if fault is None or not texts else min(fault, texts[-1])

    def _fault(self, raw: bytes, at: int, stop: int, owner: int, texts: list[int]) -> int | None:
        seen = set()
        while at < stop:
            start = at
            number = self._number(raw, at, stop)
            if number is None:
                return start
            identifier, at = number
            row = BY_IDENTIFIER.get(identifier)
            if row is None:
                return at
            if identifier == AUTHENTICATION_DATA:
                self.hidden.append((min(at + 2, len(raw)), len(raw)))
            after = self._value_end(raw, at, stop, row.wire.name)
            if after is None:
                return min(at + 2, len(raw))
            if identifier == AUTHENTICATION_DATA:
                self.hidden[-1] = (at + 2, after)
            strange = owner not in row.packets or (identifier in seen and row.name not in LISTS)
            if strange and row.wire.name not in _SIZES:
                return at + 2
            if row.wire.name.startswith("UTF-8") and not _are_texts(raw[at:after], row.wire.name):
                return min(at + 2, len(raw))
            seen.add(identifier)
            texts[:] = [] if row.wire.name in _SIZES or identifier == AUTHENTICATION_DATA else [at + 2]
            at = after
        return None

    @staticmethod
    def _number(raw: bytes, at: int, end: int) -> tuple[int, int] | None:
        try:
            return read_variable_byte_integer(raw, at, end)
        except LayoutFault as fault:
            return None if fault.resume is None else (fault.value, fault.resume)

    def _value_end(self, raw: bytes, at: int, stop: int, wire: str) -> int | None:
        """End of the value of a property; ``None`` if it is outside the block."""
        if wire in _SIZES:
            after = at + _SIZES[wire]
        elif wire == "Variable Byte Integer":
            number = self._number(raw, at, stop)
            if number is None:
                return None
            after = number[1]
        else:
            after = at
            for _ in range(2 if wire == "UTF-8 String Pair" else 1):
                if after + 2 > stop:
                    return None
                after += 2 + int.from_bytes(raw[after : after + 2], "big")
        return after if after <= stop else None


def _are_texts(value: bytes, wire: str) -> bool:
    first = 2 + int.from_bytes(value[:2], "big")
    if wire == "UTF-8 String Pair":
        return is_clean(value[2:first]) and is_clean(value[first + 2 :])
    return is_clean(value[2:])


def hidden_in_beginning(raw: bytes, doubt: int = CLEAR) -> Ranges:
    """Hidden ranges of the beginning of an incomplete packet; the shown bytes decide how the rest is read.

    Only secrets are hidden, so that the complete packet keeps its layout.  If the layout is already broken, everything
    from the fault on is hidden.
    """
    body, end = packet_end(raw, 0, len(raw))
    if body <= 0:
        return []
    raw = raw[:end]
    kind, length = raw[0] >> 4, len(raw)
    if kind == PacketType.CONNECT:
        return _beginning_of_connect(raw, body, end)
    if kind in _HOLDERS:
        hidden, _ = _beginning_of_properties(raw, body + (2 if kind == PacketType.CONNACK else 1), end)
        return joined(hidden)
    return _tail(body, length) if doubt >= BROKEN or kind == RESERVED else []


def _beginning_of_connect(raw: bytes, body: int, end: int) -> Ranges:
    name_end, length = body + 2 + int.from_bytes(raw[body : body + 2], "big"), len(raw)
    name = raw[body + 2 : name_end].upper()
    is_begun = any(usual.upper().startswith(name) for usual in _NAMES)
    if not is_begun and not (len(name) == 4 and name_end < length):
        return _tail(body + 2, length)
    at = name_end + 4
    if at >= length:
        return []
    flags, five, hidden = raw[name_end + 1], raw[name_end] == 5, list[tuple[int, int]]()
    after: int | None = at
    if five:
        ranges, after = _beginning_of_properties(raw, at, end)
        hidden += ranges
    names = ["client_identifier"]
    names += ["will_topic", "will_payload"] if flags & 4 else []
    names += ["user_name"] if flags & 0x80 else []
    names += ["password"] if flags & PASSWORD_FLAG else []
    for field_name in names:
        if after is not None and field_name == "will_topic" and five:
            ranges, after = _beginning_of_properties(raw, after, end)
            hidden += ranges
        if after is None or after + 2 > length:
            return joined(hidden)
        start, after = after + 2, after + 2 + int.from_bytes(raw[after : after + 2], "big")
        if after > end:
            return joined([*hidden, *_tail(start, length)])
        if field_name == "password":
            hidden.append((start, min(after, length)))
        if after > length:
            return joined(hidden)
    return joined([*hidden, *(_tail(after, length) if after is not None else [])])


def _beginning_of_properties(raw: bytes, at: int, end: int) -> tuple[Ranges, int | None]:
    """Ranges of Authentication Data in a possibly truncated property block, and the end of a complete block."""
    hidden: Ranges = []
    if at >= end:
        return hidden, at
    number = PropertyBlock._number(raw, at, len(raw))
    if number is None:
        return hidden, None
    at, stop, length = number[1], number[1] + number[0], len(raw)
    if stop > end:
        return _tail(at, length), None
    while at < stop and at < length:
        row = BY_IDENTIFIER.get(raw[at])
        if row is None:
            return [*hidden, *_tail(at + 1, length)], None
        start = at + 1
        after = start + _SIZES.get(row.wire.name, 0)
        if row.wire.name == "Variable Byte Integer":
            variable = PropertyBlock._number(raw, start, length)
            if variable is None:
                return hidden, None
            after = variable[1]
        elif row.wire.name not in _SIZES:
            for _ in range(2 if row.wire.name == "UTF-8 String Pair" else 1):
                if after + 2 > length:
                    return hidden, None
                after += 2 + int.from_bytes(raw[after : after + 2], "big")
        if after > stop:
            return [*hidden, *_tail(start, length)], None
        if row.identifier == AUTHENTICATION_DATA:
            hidden.append((start + 2, min(after, length)))
        at = after
    return hidden, stop if stop <= length else None
