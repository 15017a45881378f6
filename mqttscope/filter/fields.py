"""The fields of filter expressions: names, kinds, and how to get their values from an event.

Names are the keys of the JSON form.  Fields of packets come from the catalogue `mqtt.fields`.  Each has its qualified
name (``publish.properties.topic_alias``) and every shorter one (``properties.topic_alias``, ``topic_alias``,
``publish.topic_alias``), which stands for the value in any packet that has it.  The other fields belong to the event,
its connection or its capture.  `lookup` also derives ``X.length`` and ``X.count`` from field ``X``.

A getter takes the event and its packet (``None`` without one) and returns the value or ``None``; for a field that can
have several values, a sequence of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache
from operator import attrgetter
from typing import Any

from mqttscope.dissect.acknowledgments import tcp_acknowledged
from mqttscope.events import (
    ClockStep,
    ConnectionClosed,
    ConnectionEnding,
    ConnectionOpened,
    DiscardedEvent,
    GapEvent,
    LossEvent,
    MalformedEvent,
    PacketEvent,
    UnparsedEvent,
)
from mqttscope.mqtt.codec import packet_end
from mqttscope.mqtt.constants import Direction, MalformedReason, PacketType, reason_name, type_name
from mqttscope.mqtt.declare import PACKETS, ControlPacket
from mqttscope.mqtt.fields import PacketField, fields_of
from mqttscope.mqtt.packets import Publish
from mqttscope.mqtt.properties import Properties
from mqttscope.mqtt.topics import utf8_length
from mqttscope.net.frame import CaptureDrops, CaptureError, CaptureSecrets
from mqttscope.payloads.decoders import Decoders
from mqttscope.payloads.values import pick
from mqttscope.session.capture_time import captured

Get = Callable[[Any, Any], Any]


class FieldKind(StrEnum):
    """Type of a field's values; decides the operators and values that it can be compared with."""

    FLAG = "a flag"
    NUMBER = "a number"
    TEXT = "text"
    BYTES = "binary"
    WORD = "a word"
    VERSION = "an MQTT version"
    TIME = "a time"
    ENDPOINT = "an endpoint"
    ADDRESS = "an address"
    PRESENCE = "something that is there or not"
    PAIRS = "a list of names and values"
    SECRET = "a secret"
    DECODED = "a value of a payload"


@dataclass(slots=True)
class FilterField:
    """One field."""

    name: str
    kind: FieldKind
    get: Get
    many: bool = False
    """Whether ``get`` returns a sequence: a comparison is true if it is true for any value."""
    unit: str = ""
    """``bytes`` or ``seconds``: values may be written as sizes or durations."""
    words: Mapping[str, Any] = field(default_factory=dict)
    """For `FieldKind.WORD`: the words, and the values that they stand for."""
    open: bool = False
    """For `FieldKind.WORD`: whether quoted text may be another word."""
    topic: bool = False
    """Whether the text is a Topic Name or Topic Filter, so that ``matches`` applies."""

    @property
    def holds_filters(self) -> bool:
        """Whether the values are Topic Filters, which may begin with ``$share/…/``."""
        return self.topic and self.name.rpartition(".")[2].startswith("topic_filter")


def unit_of(name: str) -> str:
    """Unit of a number, by the last word of its name."""
    last = name.rpartition(".")[2]
    if last.endswith(("_interval", "keep_alive")):
        return "seconds"
    if last in ("length", "remaining_length", "maximum_packet_size", "missing", "gap_bytes", "discarded_bytes"):
        return "bytes"
    return ""


EVENTS: dict[type, str] = {
    PacketEvent: "packet",
    MalformedEvent: "malformed",
    GapEvent: "gap",
    UnparsedEvent: "unparsed",
    ConnectionOpened: "connection_opened",
    ConnectionEnding: "connection_ending",
    ConnectionClosed: "connection_closed",
    DiscardedEvent: "discarded",
    CaptureError: "capture_error",
    CaptureDrops: "capture_drops",
    CaptureSecrets: "capture_secrets",
    ClockStep: "clock_step",
}
TYPES = {type_name(number): number for number in range(16)}
DIRECTIONS = {
    "client_to_server": Direction.CLIENT_TO_SERVER,
    "server_to_client": Direction.SERVER_TO_CLIENT,
    "client": Direction.CLIENT_TO_SERVER,
    "server": Direction.SERVER_TO_CLIENT,
}
SIDES = ("client", "server")
TRANSPORTS = ("tcp", "websocket", "tls")
CLOSINGS = ("fin", "reset", "port_reused", "idle", "evicted", "capture_end")
UNPARSED_REASONS = ("resynchronised", "gap", "too_large", "no_room", "not_mqtt", *CLOSINGS[1:])


def _words(values: tuple[str, ...]) -> dict[str, str]:
    return {word: word for word in values}


def attribute(name: str) -> Get:
    """An attribute of the event itself, whatever its class."""

    def get(event: Any, packet: Any) -> Any:
        return getattr(event, name, None)

    return get


def _time(event: Any, packet: Any) -> int | None:
    """The time of an event in the capture."""
    return captured(getattr(event, "timestamp_ns", None))


def of_connection(name: str) -> Get:
    """An attribute of the event's connection."""

    def get(event: Any, packet: Any) -> Any:
        return getattr(getattr(event, "connection", None), name, None)

    return get


def _user_name(event: Any, packet: Any) -> Any:
    """The User Name of the connection, or of the CONNECT if only packets are known, as in a lake."""
    name = getattr(getattr(event, "connection", None), "user_name", None)
    return getattr(packet, "user_name", None) if name is None else name


def of_class(classes: type | tuple[type, ...], path: str) -> Get:
    """An attribute of events of one or several classes."""
    read: Callable[[Any], Any] = attrgetter(path)

    def get(event: Any, packet: Any) -> Any:
        return read(event) if isinstance(event, classes) else None

    return get


def packet_type(event: Any, packet: Any) -> int | None:
    """Packet type of a packet, or of a malformed one if it is known."""
    if packet is not None:
        kind: int = packet.packet_type
        return kind
    return event.malformed.packet_type if type(event) is MalformedEvent else None


def _is_type(number: int) -> Get:
    return lambda event, packet: packet_type(event, packet) == number


def _is_event(cls: type) -> Get:
    return lambda event, packet: type(event) is cls


def _event(event: Any, packet: Any) -> str | None:
    return EVENTS.get(type(event))


def _acknowledged(event: Any, packet: Any) -> bool | None:
    return tcp_acknowledged(event)


def _length(event: Any, packet: Any) -> int | None:
    kind = type(event)
    if kind is PacketEvent:
        return len(packet.raw) + int(packet.missing)
    if kind is MalformedEvent:
        return len(event.malformed.raw) + int(event.malformed.missing)
    if isinstance(event, LossEvent):
        return event.length
    return int(event.unparsed.length) if kind is UnparsedEvent else None


def _remaining_length(event: Any, packet: Any) -> int | None:
    kind = type(event)
    if kind is not PacketEvent and kind is not MalformedEvent:
        return None
    raw = packet.raw if kind is PacketEvent else event.malformed.raw
    body, end = packet_end(raw, 0, len(raw))
    if body <= 0:
        return None
    return end - body


def split_endpoint(endpoint: str) -> tuple[str, str]:
    """Address without brackets, and port, of an endpoint's text; the port may be empty."""
    address, colon, port = endpoint.rpartition(":")
    if not colon or not port.isdecimal() or (":" in address and not address.endswith("]")):
        return endpoint.strip("[]"), ""
    return address.strip("[]"), port


def _address(side: str) -> Get:
    whole = of_connection(side)

    def get(event: Any, packet: Any) -> str | None:
        endpoint = whole(event, packet)
        return None if endpoint is None else split_endpoint(endpoint)[0]

    return get


def _port(side: str) -> Get:
    whole = of_connection(side)

    def get(event: Any, packet: Any) -> int | None:
        endpoint = whole(event, packet)
        port = "" if endpoint is None else split_endpoint(endpoint)[1]
        return int(port) if port else None

    return get


def _faults(name: str) -> Get:
    read = attrgetter(name)

    def get(event: Any, packet: Any) -> list[Any]:
        return [read(fault) for fault in event.malformed.faults] if type(event) is MalformedEvent else []

    return get


def common_fields() -> Iterator[FilterField]:
    """Fields of events, connections, captures, malformed packets, gaps and unparsed bytes."""
    yield FilterField("event", FieldKind.WORD, _event, words=_words(tuple(EVENTS.values())))
    yield FilterField("type", FieldKind.WORD, packet_type, words=TYPES)
    for number in PacketType:
        yield FilterField(type_name(number), FieldKind.PRESENCE, _is_type(number))
    for name in ("time", "timestamp"):
        yield FilterField(name, FieldKind.TIME, _time)
    yield FilterField("timestamp_ns", FieldKind.NUMBER, _time)
    yield FilterField("frame", FieldKind.NUMBER, attribute("frame"))
    yield FilterField("packet", FieldKind.NUMBER, attribute("number"))
    yield FilterField("length", FieldKind.NUMBER, _length, unit="bytes")
    yield FilterField("remaining_length", FieldKind.NUMBER, _remaining_length, unit="bytes")
    yield FilterField("capture", FieldKind.TEXT, attribute("capture"))
    yield FilterField("message", FieldKind.TEXT, of_class(CaptureError, "message"))
    yield FilterField("topic", FieldKind.TEXT, attribute("topic"), topic=True)
    yield FilterField("direction", FieldKind.WORD, attribute("direction"), words=DIRECTIONS)
    yield FilterField("tcp_acknowledged", FieldKind.FLAG, _acknowledged)
    yield from _connection_fields()
    yield from _broken_fields()


def _connection_fields() -> Iterator[FilterField]:
    yield FilterField("connection", FieldKind.NUMBER, of_connection("number"))
    yield FilterField("client_identifier", FieldKind.TEXT, of_connection("client_identifier"))
    yield FilterField("server_name", FieldKind.TEXT, of_connection("server_name"))
    yield FilterField("user_name", FieldKind.TEXT, _user_name)
    yield FilterField("version", FieldKind.VERSION, of_connection("version"))
    yield FilterField("transport", FieldKind.WORD, of_connection("transport"), words=_words(TRANSPORTS), open=True)
    for name in ("version_known", "roles_known", "handshake_seen"):
        yield FilterField(name, FieldKind.FLAG, of_connection(name))
    for side in SIDES:
        yield FilterField(side, FieldKind.ENDPOINT, of_connection(side))
        yield FilterField(f"{side}.address", FieldKind.ADDRESS, _address(side))
        yield FilterField(f"{side}.port", FieldKind.NUMBER, _port(side))
    # Fields of ending and closed connections only; before that the values are not final.
    ends = ConnectionEnding, ConnectionClosed
    yield FilterField("how", FieldKind.WORD, of_class(ends, "connection.closed_how"), words=_words(CLOSINGS))
    for name, path in (("by", "closed_by"), ("disconnect_by", "disconnect_by")):
        yield FilterField(name, FieldKind.WORD, of_class(ends, f"connection.{path}"), words=_words(SIDES))
    yield FilterField("disconnect_reason", FieldKind.NUMBER, of_class(ends, "connection.disconnect_reason"))
    get = of_class(ConnectionClosed, "connection.one_sided")
    yield FilterField(
        "one_sided", FieldKind.WORD, get, words={str(direction): str(direction) for direction in Direction}
    )
    for name in ("gaps", "gap_bytes", "discarded_segments", "discarded_bytes", "copied_segments"):
        yield FilterField(name, FieldKind.NUMBER, of_class(ConnectionClosed, f"connection.{name}"), unit=unit_of(name))


def _broken_fields() -> Iterator[FilterField]:
    for cls in (MalformedEvent, GapEvent, UnparsedEvent, DiscardedEvent):
        yield FilterField(EVENTS[cls], FieldKind.PRESENCE, _is_event(cls))
    reasons = _words(tuple(str(reason) for reason in MalformedReason))
    yield FilterField("malformed.reason", FieldKind.WORD, of_class(MalformedEvent, "malformed.reason"), words=reasons)
    yield FilterField("malformed.faults.reason", FieldKind.WORD, _faults("reason"), many=True, words=reasons)
    yield FilterField("malformed.faults.field", FieldKind.TEXT, _faults("field"), many=True)
    for name in ("field", "detail"):
        yield FilterField(f"malformed.{name}", FieldKind.TEXT, of_class(MalformedEvent, f"malformed.{name}"))
    for name in ("offset", "missing", "reason_code"):
        get = of_class(MalformedEvent, f"malformed.{name}")
        yield FilterField(f"malformed.{name}", FieldKind.NUMBER, get, unit=unit_of(name))
    for lost in (GapEvent, DiscardedEvent):
        yield FilterField(f"{lost.kind}.length", FieldKind.NUMBER, of_class(lost, "length"), unit="bytes")
        get, words = of_class(lost, "reason"), _words(tuple(lost.reasons))
        yield FilterField(f"{lost.kind}.reason", FieldKind.WORD, get, words=words, open=True)
    for name in ("length", "missing"):
        yield FilterField(
            f"unparsed.{name}", FieldKind.NUMBER, of_class(UnparsedEvent, f"unparsed.{name}"), unit="bytes"
        )
    get = of_class(UnparsedEvent, "unparsed.reason")
    yield FilterField("unparsed.reason", FieldKind.WORD, get, words=_words(UNPARSED_REASONS), open=True)
    get = of_class(UnparsedEvent, "unparsed.packet_type")
    yield FilterField("unparsed.packet_type", FieldKind.WORD, get, words=TYPES)


_KINDS: dict[type, FieldKind] = {
    bool: FieldKind.FLAG,
    int: FieldKind.NUMBER,
    str: FieldKind.TEXT,
    bytes: FieldKind.BYTES,
    tuple: FieldKind.PAIRS,
}
"""Kinds by the class of the values; anything with fields of its own is a presence."""
_SINGULAR = {"topic_filters": "topic_filter", "reason_codes": "reason_code", "reasons": "reason"}
"""Lists that can also be tested under the singular name of other packets."""


@dataclass(slots=True)
class FieldSource:
    """How to get a value from packets of one class; ``get`` is only called with packets of that class."""

    cls: type[ControlPacket]
    path: tuple[str, ...]
    kind: FieldKind
    get: Get
    many: bool = False
    plain: bool = False
    """Whether the value is simply the attribute with the only name in ``path``."""


def packet_fields() -> Iterator[FilterField]:
    """Fields of all packets, under all their names."""
    named: dict[str, list[FieldSource]] = {}
    for cls in PACKETS.values():
        for place in _field_sources(cls):
            for name in _names(type_name(cls.packet_type), place.path):
                named.setdefault(name, []).append(place)
    for name, places in named.items():
        yield _join(name, places)


def _names(packet: str, path: tuple[str, ...]) -> list[str]:
    paths = [path]
    if path[-1] in _SINGULAR:
        paths.append((*path[:-1], _SINGULAR[path[-1]]))
    names: dict[str, None] = {}
    for words in paths:
        for start in range(len(words)):
            names[".".join(words[start:])] = None
        names[".".join((packet, *words))] = None
        names[f"{packet}.{words[-1]}"] = None
        if len(words) > 1 and words[-2] == "user_property":
            names[f"{packet}.user_property.{words[-1]}"] = None
    # ``name`` and ``value`` alone would be ambiguous.
    return [name for name in names if path[-2:-1] != ("user_property",) or "user_property" in name]


def _field_sources(cls: type[ControlPacket]) -> Iterator[FieldSource]:
    for name in ("header_flags", "missing"):
        yield FieldSource(cls, (name,), FieldKind.NUMBER, _reader(name), plain=True)
    for field_ in fields_of(cls.packet_type):
        if field_.is_reason_code:
            yield from _reason_places(field_)
        elif field_.row is not None:
            yield from _property_places(field_, field_.row.identifier)
        else:
            yield _place(field_)


def _place(field: PacketField) -> FieldSource:
    """The source of a field that is neither a Reason Code nor a property."""
    words, (first, *inner) = field.words, field.words
    kind = FieldKind.SECRET if field.secret else _KINDS.get(field.value_type, FieldKind.PRESENCE)
    if "[]" in field.path:
        rows = _list(first)
        get = _option(rows, field) if inner else rows
        return FieldSource(field.packet, words, kind, get, many=True)
    read = _reader(*words)
    if field.value_type is Properties:
        return FieldSource(field.packet, words, kind, lambda event, packet: read(event, packet) or None)
    return FieldSource(field.packet, words, kind, read, plain=not inner)


def _reader(first: str, *inner: str) -> Get:
    """An attribute of packets, or of an optional part such as ``will``."""
    read = attrgetter(first)
    if not inner:
        return lambda event, packet: read(packet)
    part = attrgetter(*inner)

    def get(event: Any, packet: Any) -> Any:
        holder = read(packet)
        return None if holder is None else part(holder)

    return get


def _list(name: str) -> Get:
    read = attrgetter(name)
    return lambda event, packet: read(packet) or ()


def _option(rows: Get, field: PacketField) -> Get:
    """One attribute of all subscriptions; empty for versions that do not have it."""
    read, since = attrgetter(field.name), field.versions[0]

    def get(event: Any, packet: Any) -> list[Any]:
        if event.connection.version < since:
            return []
        return [read(row) for row in rows(event, packet)]

    return get


def _property_places(field: PacketField, identifier: int) -> Iterator[FieldSource]:
    """The values of a property; any property may occur twice by mistake, so all are lists."""
    *path, _ = field.words
    block = _reader(*path)

    def get(event: Any, packet: Any) -> list[Any]:
        properties = block(event, packet)
        return [value for number, value in properties.items if number == identifier] if properties is not None else []

    kind = _KINDS[field.value_type]
    yield FieldSource(field.packet, field.words, kind, get, many=True)
    if kind is FieldKind.PAIRS:
        yield FieldSource(field.packet, (*field.words, "name"), FieldKind.TEXT, _part(get, 0), many=True)
        yield FieldSource(field.packet, (*field.words, "value"), FieldKind.TEXT, _part(get, 1), many=True)


def _part(pairs: Get, index: int) -> Get:
    return lambda event, packet: [pair[index] for pair in pairs(event, packet)]


def _reason_places(field: PacketField) -> Iterator[FieldSource]:
    """The Reason Codes of a packet, and their names."""
    cls, name = field.packet, field.name
    if field.path.endswith("[]"):
        yield FieldSource(cls, (name,), FieldKind.NUMBER, _list(name), many=True)
        yield FieldSource(cls, ("reasons",), FieldKind.TEXT, _reasons(cls, name), many=True)
    else:
        get = _reason_code(field)
        yield FieldSource(cls, (name,), FieldKind.NUMBER, get)
        yield FieldSource(cls, ("reason",), FieldKind.TEXT, _reason(cls, get))


def _reason_code(field: PacketField) -> Get:
    """A Reason Code; an omitted one means 0x00, as in the JSON form."""
    tail, since = field.tail, field.versions[0]

    def get(event: Any, packet: Any) -> int | None:
        code: int | None = packet.reason_code
        if code is None and since <= event.connection.version <= tail:
            left_out = type(event) is not MalformedEvent or "reason_code" in event.malformed.fields_read
            return 0 if left_out else None
        return code

    return get


def _reason(cls: type[ControlPacket], get_code: Get) -> Get:
    kind = cls.packet_type

    def get(event: Any, packet: Any) -> str | None:
        code = get_code(event, packet)
        return None if code is None else reason_name(kind, code, event.connection.version)

    return get


def _reasons(cls: type[ControlPacket], name: str) -> Get:
    kind = cls.packet_type
    read = attrgetter(name)

    def get(event: Any, packet: Any) -> list[str]:
        version = event.connection.version
        return [reason_name(kind, code, version) for code in read(packet) or ()]

    return get


def _join(name: str, places: list[FieldSource]) -> FilterField:
    """One field for all sources of a name."""
    first = places[0]
    kind = first.kind
    assert all(place.kind is kind for place in places), name
    last = name.rpartition(".")[2]
    topic = kind is FieldKind.TEXT and "topic" in last
    joined = FilterField(name, kind, first.get, unit=unit_of(name) if kind is FieldKind.NUMBER else "", topic=topic)
    if name == last and all(place.plain for place in places):
        joined.get = _anywhere(name)
    elif len(places) > 1 or first.many:
        joined.many, joined.get = True, _many(places)
    else:
        joined.get = _only(first)
    return joined


def _anywhere(name: str) -> Get:
    return lambda event, packet: getattr(packet, name, None)


def _only(place: FieldSource) -> Get:
    cls, read = place.cls, place.get
    return lambda event, packet: read(event, packet) if type(packet) is cls else None


def _listed(place: FieldSource) -> Get:
    if place.many:
        return place.get
    read = place.get

    def get(event: Any, packet: Any) -> tuple[Any, ...]:
        value = read(event, packet)
        return () if value is None else (value,)

    return get


def _many(places: list[FieldSource]) -> Get:
    getters: dict[type, list[Get]] = {}
    for place in places:
        getters.setdefault(place.cls, []).append(_listed(place))

    def get(event: Any, packet: Any) -> Any:
        parts = getters.get(type(packet))
        if parts is None:
            return ()
        if len(parts) == 1:
            return parts[0](event, packet)
        return [value for part in parts for value in part(event, packet)]

    return get


DECODED = ("payload", "publish.payload")
"""Prefixes of names of decoded payload fields."""


@dataclass(slots=True)
class PayloadSource:
    """Source of the decoded payloads; by default without ``[[payload]]`` tables."""

    decoders: Decoders = field(default_factory=lambda: Decoders(()))


def decoded_path(name: str) -> list[str | int] | None:
    """The keys after the prefix of a payload field; ``None`` for the name of another field."""
    for prefix in DECODED:
        if name == prefix or name.startswith(f"{prefix}."):
            return [part for part in name[len(prefix) :].split(".") if part]
    return None


def decoded_field(name: str, path: Sequence[str | int], source: PayloadSource) -> FilterField:
    """The field for a path inside decoded payloads."""

    def get(event: Any, packet: Any) -> Sequence[Any]:
        if type(packet) is not Publish or isinstance(event, MalformedEvent):
            return ()
        decoded = source.decoders.value(event)
        return () if decoded is None or decoded.problem else pick(decoded.value, path)

    return FilterField(name, FieldKind.DECODED, get, many=True)


@cache
def registry() -> dict[str, FilterField]:
    """All fields by name, without ``.length``, ``.count`` and bracketed names."""
    by_name = {row.name: row for row in packet_fields()}
    by_name.update((row.name, row) for row in common_fields())
    return by_name


def lookup(name: str) -> FilterField | None:
    """The field with this name; ``X.length`` and ``X.count`` are derived from field ``X``."""
    known = registry().get(name)
    if known is not None:
        return known
    base_name, _, last = name.rpartition(".")
    base = registry().get(base_name)
    if base is None:
        return None
    if last == "length" and base.kind in (FieldKind.TEXT, FieldKind.BYTES):
        return _length_of(base, name)
    if last == "count" and base.many and (base.kind is not FieldKind.PRESENCE or base_name.endswith("subscriptions")):
        get = base.get
        return FilterField(name, FieldKind.NUMBER, lambda event, packet: len(get(event, packet)) or None)
    return None


def _length_of(base: FilterField, name: str) -> FilterField:
    get = base.get
    if base.many:
        measure: Callable[[Any], int] = utf8_length if base.kind is FieldKind.TEXT else len

        def lengths(event: Any, packet: Any) -> list[int]:
            return [measure(value) for value in get(event, packet)]

        return FilterField(name, FieldKind.NUMBER, lengths, many=True, unit="bytes")
    if base.kind is FieldKind.TEXT:

        def text_length(event: Any, packet: Any) -> int | None:
            value = get(event, packet)
            return None if value is None else utf8_length(value)

        return FilterField(name, FieldKind.NUMBER, text_length, unit="bytes")
    # Bytes that the capture lost can only belong to the payload, the last field of a packet.
    lost = base.name.rpartition(".")[2] == "payload"

    def length(event: Any, packet: Any) -> int | None:
        value = get(event, packet)
        return None if value is None else len(value) + (packet.missing if lost else 0)

    return FilterField(name, FieldKind.NUMBER, length, unit="bytes")


def keyed(base: FilterField, key: str) -> FilterField:
    """The values of a list of pairs with one name."""
    get = base.get

    def values(event: Any, packet: Any) -> Sequence[str]:
        return [value for name, value in get(event, packet) if name == key]

    return FilterField(f"{base.name}[…]", FieldKind.TEXT, values, many=True)


def names() -> list[str]:
    return sorted(registry())
