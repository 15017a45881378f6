"""Where secrets stand in the bytes of a packet, also when its layout is broken; when in doubt they do.

A packet that keeps its layout has secrets in the values of the fields ``password`` and ``authentication_data``.  Of a
CONNECT that does not, what comes before the first field that cannot be trusted is shown: a field can be trusted when it
is a clean text and the next field that the flags announce lies inside the packet.  Lengths, flags and everything else
that says what is wrong stands before that.  In other packets the first property that is not as it should be ends what
is shown.  Bytes that look like the beginning of a CONNECT or of an HTTP request are taken for one, whatever packet they
seem to be in.
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
from mqttscope.mqtt.wire import Fault, read_variable_byte_integer
from mqttscope.secrets.credentials import TEXT_NAMES, credential_bytes, without_told
from mqttscope.secrets.forms import joined, token_places, token_ranges
from mqttscope.secrets.names import MAX_NAME as MAX_PROPERTY_NAME
from mqttscope.secrets.names import is_secret_name, is_secret_value

CLEAR, SUSPECT, BROKEN, LOST = range(4)
"""How little bytes of one direction are trusted: a packet without a fault came last that holds no secret; nothing came
yet, or a packet that may hold one; bytes are no packet; a packet with a secret is damaged.  A packet without a fault
makes it one less, since a secret may have such a packet in it, but hardly two."""

AUTHENTICATION_DATA = BY_NAME["authentication_data"].identifier
_HOLDERS = (PacketType.CONNACK, PacketType.DISCONNECT, PacketType.AUTH)
"""Packets beside CONNECT that carry Authentication Data, DISCONNECT where somebody errs."""
_SECRETIVE = (PacketType.CONNECT, *_HOLDERS)
_LEVELS = (*ProtocolVersion, *BRIDGE_LEVELS)
_NAMES = (b"MQTT", b"MQIsdp")
DISGUISED: Final = frozenset(("MQTT", "MQIsdp"))
"""Topics that a CONNECT has when its first byte says PUBLISH."""
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
"""Faults that leave every field where it is."""
MAX_CUT = 1_024
"""Bytes of a field that may be missing at the end of what came; more are taken for a length that lies."""
MAX_NAME = 8
"""Characters of a protocol name that is not known and may be shown: a longer one may be any other field."""
PASSWORD_FLAG = 0x40
"""The connect flag that announces a password."""
MAX_FAULTS = 2
"""Faults of a packet that may be in its values alone; with more of them its type is not believed."""
MAX_LEFT = 4
"""Bytes of the packet before that may stand in front of whole packets and are shown; more may be of a secret."""
MAX_SHIFT = 64
"""Bytes of a damaged packet before the whole packets that are looked for in it."""
MAX_EXPLAINED = 4_096
"""Bytes of the longest damaged packet in which whole packets are looked for."""
MIN_EXPLAINED = 4
"""Bytes of the whole packets in a damaged one, at least."""
_SIZES = {"Byte": 1, "Two Byte Integer": 2, "Four Byte Integer": 4}

Ranges = list[tuple[int, int]]


def hidden_in_packet(
    packet: ControlPacket, version: ProtocolVersion, doubt: int = CLEAR, shown: int | None = None
) -> Ranges:
    """Ranges of a well-formed packet that hold a secret, or may do so.

    ``shown``: bytes of a payload that anybody is shown, where these are not all.
    """
    kind = packet.packet_type
    if kind == PacketType.PUBLISH:
        if doubt < BROKEN and packet.topic_name not in DISGUISED:  # type: ignore[attr-defined]
            return _with_told(token_places(packet, shown), packet)
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
            return _with_told(_by_fields(packet.raw, version), packet)
        # Nothing follows a password, and nearly all packets that hide something hide that alone.
        return _with_told(_tail(len(packet.raw) - len(password), len(packet.raw)) if password else [], packet)
    block: Properties | None = getattr(packet, "properties", None)
    if not block:
        return []
    # Properties are of 5.0, whatever the connection is taken for.
    found = _by_fields(packet.raw, ProtocolVersion.V5) if kind in _HOLDERS and _has_data(block) else []
    return _with_told(found, packet)


def _with_told(found: Ranges, packet: ControlPacket) -> Ranges:
    """Some ranges, and those of credentials in the properties of a packet and of its will."""
    will = packet.will if isinstance(packet, Connect) else None
    blocks: list[Properties] = [packet.properties] if packet.properties else []  # type: ignore[attr-defined]
    if will is not None and will.properties:
        blocks.append(will.properties)
    if all(without_told(block) is block for block in blocks):
        return found
    return joined([*found, *_told(packet.raw)])


def _told(raw: bytes) -> Iterator[tuple[int, int]]:
    """Credentials in the properties of a packet that are texts."""
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
    """Whether the payload of a PUBLISH may be the rest of a CONNECT, in whole or in part."""
    return bool(packet.payload) and (doubt >= BROKEN or packet.topic_name in DISGUISED)


def hidden_in_damaged(raw: bytes, version: ProtocolVersion, doubt: int = CLEAR) -> Ranges:
    """Ranges of a packet with a broken layout that may hold a secret: by its layout, and credentials in the rest."""
    hidden = doubted_in_damaged(raw, version, doubt)
    return hidden if _covers_body(raw, hidden) else joined([*hidden, *credentials_in_damaged(raw, version)])


def _covers_body(raw: bytes, hidden: Ranges) -> bool:
    body = packet_end(raw, 0, len(raw))[0] if raw else 0
    return body <= 0 or (len(hidden) == 1 and hidden[0][0] <= body and hidden[0][1] == len(raw))


def credentials_in_damaged(raw: bytes, version: ProtocolVersion) -> Ranges:
    """Credentials by name and form in a packet with a broken layout: in its fields, and wherever its bytes have any.

    Fields may be those of 5.0 in a connection of another version, and a field that is wrong may have taken in others.
    """
    body = max(0, packet_end(raw, 0, len(raw))[0])
    found = [*_told(raw), *secret_pairs(raw, body)]
    if raw[:1] and raw[0] >> 4 != PacketType.CONNECT:  # whose name would hide all that follows it
        found += token_ranges(raw, body)
    for span in trace(raw, version):
        name = span.field.rpartition(".")[2]
        if name in ("payload", "will_payload"):
            found += token_ranges(raw[: span.end], span.start + 2 * (name == "will_payload"))
        elif name in ("unparsed", "trailing_bytes"):
            found += _credentials_at(raw, span.start, span.end)
    return joined([*found, *names_hidden(raw, version)])


def credentials_in_beginning(raw: bytes) -> Ranges:
    """Those of a packet that may be cut, but for its names: what is shown is what its rest is read with."""
    body, end = packet_end(raw, 0, len(raw))
    if body <= 0:
        return []
    raw = raw[:end]
    found = [*_told(raw), *secret_pairs(raw, body)]
    if raw[0] >> 4 == PacketType.PUBLISH:
        found += token_ranges(raw, body + 2 + int.from_bytes(raw[body : body + 2], "big"))
    return joined(found)


def secret_pairs(raw: bytes, at: int) -> Iterator[tuple[int, int]]:
    """Values of what looks like User Properties whose names are those of secrets."""
    while (at := raw.find(b"&", at) + 1) > 0:
        middle = at + 2 + int.from_bytes(raw[at : at + 2], "big")
        if middle <= at + 2 + MAX_PROPERTY_NAME and is_secret_name(raw[at + 2 : middle].decode("utf-8", "replace")):
            yield middle + 2, min(len(raw), middle + 2 + int.from_bytes(raw[middle : middle + 2], "big"))


def names_hidden(raw: bytes, version: ProtocolVersion) -> Ranges:
    """Where credentials stand in the Client Identifier, the User Name and the topics of a packet."""
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
    """Ranges of a packet with a broken layout of which nobody knows whether they are of a secret."""
    if not raw:
        return []
    kind = raw[0] >> 4
    body, end = packet_end(raw, 0, len(raw))
    if body <= 0:
        return _tail(min(2, len(raw)), len(raw))
    if kind == PacketType.CONNECT:
        found = _connect(raw, body, end).hidden
    elif doubt >= SUSPECT or kind == RESERVED:
        found = _tail(body, len(raw))
    elif kind in _HOLDERS:
        found = _holder(raw, body, end, kind)
    else:
        found = _other(raw, body, end, version)
    return joined([*found, *_tail(end, len(raw)), *_embedded(raw, body + 8 if kind == PacketType.CONNECT else 0)])


def hidden_in_unparsed(found: Unparsed, version: ProtocolVersion, doubt: int = CLEAR) -> Ranges:
    """Ranges of bytes that are no packet: all of them, unless they are known to be of one that holds no secret."""
    hidden = doubted_in_unparsed(found, version, doubt)
    whole = found.reason == "proxy_header" or _covers_body(found.raw, hidden)
    return hidden if whole else joined([*hidden, *credentials_in_damaged(found.raw, version)])


def doubted_in_unparsed(found: Unparsed, version: ProtocolVersion, doubt: int = CLEAR) -> Ranges:
    """The same but for credentials by name and form."""
    raw, kind = found.raw, found.packet_type
    if found.reason == "proxy_header":
        # It may hold texts, and a wrong length of it may have taken in a CONNECT.
        return joined([*token_ranges(raw), *_embedded(raw, 0)])
    if doubt or kind is None or kind == RESERVED or kind in _SECRETIVE:
        return _tail(0, len(raw))
    return doubted_in_damaged(raw, version, doubt)


def ends_framing(found: ControlPacket | Malformed | Unparsed) -> bool:
    """Whether bytes are of no type that there is, so that those around them may be no packets either."""
    return not isinstance(found, ControlPacket) and found.packet_type in (None, RESERVED)


def hidden_ranges(raw: bytes, version: ProtocolVersion, doubt: int = CLEAR) -> Ranges:
    """The same for bytes of which it is not known whether they are a packet without faults."""
    if not raw:
        return []
    found = decode(raw, version)
    if isinstance(found, Malformed):
        return hidden_in_damaged(raw, version, doubt)
    return hidden_in_packet(found, version, doubt)


def holds_secrets(raw: bytes) -> bool:
    """Whether the first byte is that of a packet which may hold a secret."""
    return bool(raw) and raw[0] >> 4 in _SECRETIVE


def holds_connect(raw: bytes) -> bool:
    """Whether bytes have the name of the protocol in them, as a CONNECT has."""
    return _CONNECT.search(raw) is not None


def covered(raw: bytes, hidden: Iterable[tuple[int, int]]) -> bytes:
    """The bytes with a ``*`` for each that is hidden."""
    shown = bytearray(raw)
    for start, end in hidden:
        end = min(end, len(raw))
        shown[start:end] = b"*" * (end - start)
    return bytes(shown)


def redacted(raw: bytes, version: ProtocolVersion, doubt: int = CLEAR) -> bytes:
    """The bytes of a packet with a ``*`` for each that may be of a secret."""
    hidden = hidden_ranges(raw, version, doubt)
    return covered(raw, hidden) if hidden else raw


def visible_fields(names: Iterable[str], raw: bytes, version: ProtocolVersion, hidden: Ranges) -> tuple[str, ...]:
    """Those of some fields of a packet of which nothing is hidden but what has its own way to be."""
    if not hidden:
        return tuple(names)
    lost = {
        re.split(r"[.\[]", span.field, maxsplit=1)[0]
        for span in trace(raw, version)
        if not span.field.endswith("properties.authentication_data") and _overlaps(span.start, span.end, hidden)
    }
    # A flag lies in a byte that the lengths of a packet do not move.
    return tuple(name for name in names if name == "password" or name not in lost)


def is_identified(raw: bytes) -> bool:
    """Whether the Client Identifier of a damaged CONNECT can be taken for one."""
    body, end = packet_end(raw, 0, len(raw))
    return body > 0 and _connect(raw, body, end).identified


def _overlaps(start: int, end: int, hidden: Ranges) -> bool:
    return any(first < end and start < behind for first, behind in hidden)


def _tail(start: int, end: int) -> Ranges:
    return [(start, end)] if 0 <= start < end else []


def _by_fields(raw: bytes, version: ProtocolVersion) -> Ranges:
    """Secrets of a packet that keeps its layout."""
    found = []
    spans = trace(raw, version)
    # Flags that announce a password and no User Name may be wrong, and the password be taken for the will.
    doubtful = version < ProtocolVersion.V5 and {"password", "user_name"} & {one.field for one in spans} == {"password"}
    for span in spans:
        if span.field == "password":
            found.append((span.start + 2, span.end))
        elif span.field.endswith("properties.authentication_data"):
            found.append((span.start + 3, span.end))
        elif span.field == "will.will_payload" and doubtful:
            found.append((span.start + 2, span.end))
        elif span.field == "will.will_payload":
            found += [
                (span.start + 2 + start, span.start + 2 + end)
                for start, end in token_ranges(raw[span.start + 2 : span.end])
            ]
    return joined(found)


def _embedded(raw: bytes, start: int) -> Iterator[tuple[int, int]]:
    """What else the bytes may be, from some place on: a CONNECT without its beginning, or an HTTP request."""
    connect = _CONNECT.search(raw, start)
    if connect is not None:
        yield from _connect(raw, connect.start(), len(raw) + 1).hidden
    http = _HTTP.search(raw, start)
    if http is not None:
        yield http.end(), len(raw)


def _holder(raw: bytes, body: int, end: int, kind: int) -> Ranges:
    """CONNACK, DISCONNECT and AUTH, in the layout of 5.0 whatever version is spoken."""
    at = body + (2 if kind == PacketType.CONNACK else 1)
    if raw[0] & 15 or (kind == PacketType.CONNACK and raw[body : body + 1] > b"\x01"):
        return _tail(body, len(raw))  # not even its first bytes are those of this type
    block = PropertyBlock(raw, at, min(end, len(raw)), kind)
    return block.hidden if block.trusted is None else [*block.hidden, *_tail(block.trusted, len(raw))]


def _other(raw: bytes, body: int, end: int, version: ProtocolVersion) -> Ranges:
    """A packet that holds no secret, as its type says: from its first fault on it may be another."""
    kind, length = raw[0] >> 4, len(raw)
    explained = _explained(raw, version)
    if explained is not None:
        at, inside = explained
        return [*(_tail(body, at) if at > MAX_LEFT else []), *inside]
    limits = FIXED_LENGTHS.get((kind, version))
    if limits is not None and not limits[0] <= end - body <= limits[1]:
        return _tail(body + min(limits[0], 2), length)
    found = decode(raw, version)
    if not isinstance(found, Malformed):
        return []
    start = length
    spans = trace(raw, version)
    unknown = [(one.start + 1, one.end) for one in spans if ".unknown_" in one.field]
    faults = found.faults
    if len(faults) > 1:
        # One more fault beside an unknown property: what follows it is of another packet.
        start = min([start, *(first for first, _ in unknown)])
    for span in spans:
        # A topic has no zero byte; a length has, and with it a topic that has swallowed other fields.
        zero = raw.find(b"\0", span.start + 2, span.end) if span.field == "topic_name" else -1
        if 0 <= zero < span.end - MAX_LEFT:
            start = zero
    if not found.complete or len(faults) > MAX_FAULTS or any(one.reason not in _OF_VALUES for one in faults):
        for fault in found.faults:
            if fault.offset < length:
                prefix = 2 * (fault.reason is MalformedReason.FIELD_OVERRUN)
                start = min(start, max(body, fault.offset + prefix))
        at = max((one.end for one in spans if one.field != "unparsed"), default=body)
        if at + 2 <= length and at + 2 + int.from_bytes(raw[at : at + 2], "big") > end:
            start = min(start, at + 2)
    data = raw.find(AUTHENTICATION_DATA, body)
    while data >= 0:
        # After the identifier there is a length that fits: that is what it looks like.
        size = int.from_bytes(raw[data + 1 : data + 3], "big")
        if size < 256 and data + 3 <= length and data + 3 + size <= length:
            start = min(start, data)
            break
        data = raw.find(AUTHENTICATION_DATA, data + 1)
    return [*unknown, *_tail(start, length)]


def _explained(raw: bytes, version: ProtocolVersion) -> tuple[int, Ranges] | None:
    """Where whole packets begin that fill these bytes to their end, and what is hidden in them.

    A packet that is shorter than its announced length says leaves its last bytes, and they are read as the beginning
    of another one, which takes those after it in.
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
            found = decode(raw[at:end], version)
            if isinstance(found, Malformed) or found.packet_type == PacketType.CONNECT:
                break
            hidden += [(at + first, at + behind) for first, behind in hidden_in_packet(found, version)]
            at = end
        if at == length:
            return start, hidden
    return None


@dataclass(slots=True)
class _Layout:
    """What is known of a CONNECT."""

    hidden: Ranges = field(default_factory=list)
    identified: bool = False
    """The Client Identifier is clean, and what follows it fits."""


def _connect(raw: bytes, body: int, end: int) -> _Layout:
    """A CONNECT whose variable header begins at ``body``; ``end`` is what its Remaining Length announces."""
    made, length = _Layout(), len(raw)
    name_end = body + 2 + int.from_bytes(raw[body : body + 2], "big")
    name = raw[body + 2 : name_end]
    at = name_end + 4  # level, flags and Keep Alive
    if at > length:
        whole = len(name) in (4, 6) and any(_distance(one, name) <= 1 for one in _NAMES if len(one) == len(name))
        cut = any(one.startswith(raw[body + 2 :].upper()) for one in (b"MQTT", b"MQISDP"))
        made.hidden = [] if whole or cut else _tail(body, length)
        return made
    level, flags = raw[name_end], raw[name_end + 1]
    known = any(len(one) == len(name) and _distance(one, name) <= 1 for one in _NAMES)
    if level == ProtocolVersion.V5:
        block = PropertyBlock(raw, at, min(end, length), PacketType.CONNECT)
        made.hidden += block.hidden
        if block.trusted is not None:
            made.hidden += _tail(block.trusted if known else body, length)
            return made
        at = block.end
    fields, at, fits = _payload(raw, at, end, flags, level == ProtocolVersion.V5, made.hidden)
    exact = fits and at == end and end <= length
    odd = (not known) + (
        level not in _LEVELS or (level & 0x7F == ProtocolVersion.V3_1) != (len(name) == len(_NAMES[1]))
    )
    named = known or (len(name) <= MAX_NAME and is_clean(name))
    if exact and odd <= 1 and named and are_flags(flags, level):
        # All is where it is announced: the fault is in a value.
        start = next((one.start + 2 for one in fields if not one.clean), length)
        if not flags & PASSWORD_FLAG and len(fields) > 1:
            # The password flag itself may be damaged: then the fields after the first are not what the flags say.
            start = min(start, fields[1].start + 2)
        if odd:
            start = min([start, *(one.start + 2 for one in fields if one.name.startswith("will_"))])
        made.identified = bool(fields) and fields[0].clean
        made.hidden += [(one.start + 2, one.end) for one in fields if one.name == "password"] + _tail(start, length)
        return made
    if not known:
        made.hidden += _tail(body, length)
        return made
    if made.hidden:
        # Authentication Data in properties after which nothing adds up: what follows it may be a part of it.
        made.hidden += _tail(min(start for start, _ in made.hidden), length)
        return made
    trusted = True
    for one, behind in zip(fields, [*fields[1:], None], strict=True):
        follows = behind.fits if behind is not None else not one.announces_more
        trusted = trusted and one.clean and one.fits and follows and level in _LEVELS
        # Where the fields do not add up, any text after the first one may be a password.
        trusted = trusted and one.name == "client_identifier"
        if not trusted or one.name == "password":
            made.hidden += _tail(one.start + 2 if level in _LEVELS else one.start, length)
            break
        made.identified = True
        at = one.end
    else:
        made.hidden += _tail(at, length)
    return made


def _distance(one: bytes, other: bytes) -> int:
    return sum(mine != theirs for mine, theirs in zip(one.lower(), other.lower(), strict=True))


def are_flags(flags: int, level: int) -> bool:
    """Whether connect flags say what they may say."""
    if flags & 1 and level != ProtocolVersion.V3_1:
        return False
    if not flags & 4 and flags & 0x38:
        return False
    return flags & 0x18 != 0x18 and (level == ProtocolVersion.V5 or not (flags & 0x40 and not flags & 0x80))


@dataclass(slots=True)
class _Field:
    name: str
    start: int
    end: int
    fits: bool
    """It lies inside the packet."""
    clean: bool
    """It is what a text should be."""
    announces_more: bool
    """The flags announce another field after it."""


def _payload(raw: bytes, at: int, end: int, flags: int, five: bool, hidden: Ranges) -> tuple[list[_Field], int, bool]:
    """The fields of the payload as far as they fit, where they end, and whether they all do."""
    names = ["client_identifier"]
    names += ["will_topic", "will_payload"] if flags & 4 else []
    names += ["user_name"] if flags & 0x80 else []
    names += ["password"] if flags & PASSWORD_FLAG else []
    fields: list[_Field] = []
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
        fields.append(_Field(name, at, min(after, len(raw)), fits, clean, number + 1 < len(names)))
        if not fits or after > len(raw):
            return fields, min(after, len(raw)), False
        at = after
    return fields, at, True


def is_clean(value: bytes) -> bool:
    """Whether bytes are a text without control characters."""
    if UNCLEAN.search(value):
        return False
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


class PropertyBlock:
    """The properties of a packet: where Authentication Data stands in them, and up to where they can be trusted."""

    def __init__(self, raw: bytes, at: int, end: int, owner: int) -> None:
        self.hidden: Ranges = []
        self.end = at
        """Where the properties end, when they can be trusted."""
        self.trusted = self._walk(raw, at, end, owner)
        """Where bytes begin that cannot; ``None`` when all can."""

    def _walk(self, raw: bytes, at: int, end: int, owner: int) -> int | None:
        if at >= end:
            return None if owner in _HOLDERS else at
        length = self._number(raw, at, end)
        if length is None:
            return at
        said, at = length
        stop = at + said
        if stop > end or (owner in _HOLDERS and stop != end):
            return self._properties(raw, at, end, owner) or at
        fault = self._properties(raw, at, stop, owner)
        self.end = stop
        return fault

    def _properties(self, raw: bytes, at: int, stop: int, owner: int) -> int | None:
        """Walk the properties; returns where the first begins that is not as it should be.

        A text right before it may have the wrong length, and is not trusted either.
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
            after = self._behind(raw, at, stop, row.wire.name)
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
        except Fault as fault:
            return None if fault.resume is None else (fault.value, fault.resume)

    def _behind(self, raw: bytes, at: int, stop: int, wire: str) -> int | None:
        """Where the value of a property ends; ``None`` when that is not in the block."""
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
    """Ranges of the beginning of a packet that is still coming; what is shown decides how its rest is read.

    Only secrets themselves are hidden, so that the whole packet has the layout it had, unless the layout is broken
    already: then everything from there on is.
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
    if not any(one.upper().startswith(name) for one in _NAMES) and not (len(name) == 4 and name_end < length):
        return _tail(body + 2, length)
    at = name_end + 4
    if at >= length:
        return []
    flags, five, hidden = raw[name_end + 1], raw[name_end] == 5, list[tuple[int, int]]()
    after: int | None = at
    if five:
        found, after = _beginning_of_properties(raw, at, end)
        hidden += found
    names = ["client_identifier"]
    names += ["will_topic", "will_payload"] if flags & 4 else []
    names += ["user_name"] if flags & 0x80 else []
    names += ["password"] if flags & PASSWORD_FLAG else []
    for one in names:
        if after is not None and one == "will_topic" and five:
            found, after = _beginning_of_properties(raw, after, end)
            hidden += found
        if after is None or after + 2 > length:
            return joined(hidden)
        start, after = after + 2, after + 2 + int.from_bytes(raw[after : after + 2], "big")
        if after > end:
            return joined([*hidden, *_tail(start, length)])
        if one == "password":
            hidden.append((start, min(after, length)))
        if after > length:
            return joined(hidden)
    return joined([*hidden, *(_tail(after, length) if after is not None else [])])


def _beginning_of_properties(raw: bytes, at: int, end: int) -> tuple[Ranges, int | None]:
    """Authentication Data in a property block that may be cut, and where the block ends if all of it is there."""
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
            found = PropertyBlock._number(raw, start, length)
            if found is None:
                return hidden, None
            after = found[1]
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
