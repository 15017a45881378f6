"""The fields a filter can ask for: names, kinds, and how an event gives their values.

Names are the keys of the JSON form.  Fields of packets come from the catalogue `mqtt.fields`: each has its qualified
name (``publish.properties.topic_alias``) and every shorter one (``properties.topic_alias``, ``topic_alias``,
``publish.topic_alias``), which means the value wherever a packet has it.  The others belong to the event, its
connection or its capture.  `lookup` also makes ``X.length`` and ``X.count`` from field ``X``.

A getter takes the event and its packet (``None`` when it has none) and returns the value or ``None``; for a field that
can have several values, a sequence of them.
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
    MalformedEvent,
    PacketEvent,
    UnparsedEvent,
)
from mqttscope.mqtt.codec import packet_end
from mqttscope.mqtt.constants import Direction, MalformedReason, PacketType, reason_name, type_name
from mqttscope.mqtt.declare import PACKETS, ControlPacket
from mqttscope.mqtt.fields import Field as PacketField
from mqttscope.mqtt.fields import fields_of
from mqttscope.mqtt.packets import Publish
from mqttscope.mqtt.properties import Properties
from mqttscope.mqtt.topics import utf8_length
from mqttscope.net.frame import CaptureDrops, CaptureError, CaptureSecrets
from mqttscope.payloads.decoders import Decoders
from mqttscope.payloads.values import pick
from mqttscope.session.capture_time import captured

Get = Callable[[Any, Any], Any]


class FieldKind(StrEnum):
    """What values a field has; decides which operators and which values it is compared with."""

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
class Field:
    """One field."""

    name: str
    kind: FieldKind
    get: Get
    many: bool = False
    """Whether ``get`` gives a sequence: a comparison is true when it is for any value in it."""
    unit: str = ""
    """``bytes`` or ``seconds``: values may be written as sizes or durations."""
    words: Mapping[str, Any] = field(default_factory=dict)
    """Of a `Kind.WORD`: the words and the values they stand for."""
    open: bool = False
    """Of a `Kind.WORD`: whether text in quotes may be another word."""
    topic: bool = False
    """Text that holds a Topic Name or Topic Filter, so that ``matches`` applies."""

    @property
    def holds_filters(self) -> bool:
        """Whether the values are Topic Filters, which may begin with ``$share/…/``."""
        return self.topic and self.name.rpartition(".")[2].startswith("topic_filter")


def unit_of(name: str) -> str:
    """Unit of a number by the last word of its name."""
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
GAP_REASONS = ("not_captured", "cut", "unproven")
DISCARD_REASONS = (
    "after_fin", "after_close", "after_reset", "late_copy", "late", "before_start", "out_of_window", "in_reset",
    "damaged",
)  # fmt: skip
CLOSINGS = ("fin", "reset", "port_reused", "idle", "evicted", "capture_end")
UNPARSED_REASONS = ("resynchronised", "gap", "too_large", "no_room", "not_mqtt", *CLOSINGS[1:])


def _words(values: tuple[str, ...]) -> dict[str, str]:
    return {one: one for one in values}


def attribute(name: str) -> Get:
    """An attribute of the event itself, of whatever class it is."""

    def get(event: Any, packet: Any) -> Any:
        return getattr(event, name, None)

    return get


def _time(event: Any, packet: Any) -> int | None:
    """The time that the capture has for an event."""
    return captured(getattr(event, "timestamp_ns", None))


def of_connection(name: str) -> Get:
    """An attribute of the event's connection."""

    def get(event: Any, packet: Any) -> Any:
        return getattr(getattr(event, "connection", None), name, None)

    return get


def _user_name(event: Any, packet: Any) -> Any:
    """The User Name of the connection; where only its packets are known, as in a lake, that of a CONNECT."""
    name = getattr(getattr(event, "connection", None), "user_name", None)
    return getattr(packet, "user_name", None) if name is None else name


def of_class(classes: type | tuple[type, ...], path: str) -> Get:
    """An attribute of events of one class, or of several."""
    read: Callable[[Any], Any] = attrgetter(path)

    def get(event: Any, packet: Any) -> Any:
        return read(event) if isinstance(event, classes) else None

    return get


def packet_type(event: Any, packet: Any) -> int | None:
    """Packet type of a packet, or of a malformed one as far as it is known."""
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
    if kind is GapEvent or kind is DiscardedEvent:
        return int(event.length)
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
    """Address without brackets, and port, of an endpoint's text; the port is empty when there is none."""
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
        return [read(one) for one in event.malformed.faults] if type(event) is MalformedEvent else []

    return get


def common_fields() -> Iterator[Field]:
    """Fields of events, connections, captures, and of what malformed packets, gaps and unparsed bytes have."""
    yield Field("event", FieldKind.WORD, _event, words=_words(tuple(EVENTS.values())))
    yield Field("type", FieldKind.WORD, packet_type, words=TYPES)
    for number in PacketType:
        yield Field(type_name(number), FieldKind.PRESENCE, _is_type(number))
    for name in ("time", "timestamp"):
        yield Field(name, FieldKind.TIME, _time)
    yield Field("timestamp_ns", FieldKind.NUMBER, _time)
    yield Field("frame", FieldKind.NUMBER, attribute("frame"))
    yield Field("packet", FieldKind.NUMBER, attribute("number"))
    yield Field("length", FieldKind.NUMBER, _length, unit="bytes")
    yield Field("remaining_length", FieldKind.NUMBER, _remaining_length, unit="bytes")
    yield Field("capture", FieldKind.TEXT, attribute("capture"))
    yield Field("message", FieldKind.TEXT, of_class(CaptureError, "message"))
    yield Field("topic", FieldKind.TEXT, attribute("topic"), topic=True)
    yield Field("direction", FieldKind.WORD, attribute("direction"), words=DIRECTIONS)
    yield Field("tcp_acknowledged", FieldKind.FLAG, _acknowledged)
    yield from _connection_fields()
    yield from _broken_fields()


def _connection_fields() -> Iterator[Field]:
    yield Field("connection", FieldKind.NUMBER, of_connection("number"))
    yield Field("client_identifier", FieldKind.TEXT, of_connection("client_identifier"))
    yield Field("server_name", FieldKind.TEXT, of_connection("server_name"))
    yield Field("user_name", FieldKind.TEXT, _user_name)
    yield Field("version", FieldKind.VERSION, of_connection("version"))
    yield Field("transport", FieldKind.WORD, of_connection("transport"), words=_words(TRANSPORTS), open=True)
    for name in ("version_known", "roles_known", "handshake_seen"):
        yield Field(name, FieldKind.FLAG, of_connection(name))
    for side in SIDES:
        yield Field(side, FieldKind.ENDPOINT, of_connection(side))
        yield Field(f"{side}.address", FieldKind.ADDRESS, _address(side))
        yield Field(f"{side}.port", FieldKind.NUMBER, _port(side))
    # What only the lines of a connection that ends or is closed have; before that the values are not final.
    ends = ConnectionEnding, ConnectionClosed
    yield Field("how", FieldKind.WORD, of_class(ends, "connection.closed_how"), words=_words(CLOSINGS))
    for name, path in (("by", "closed_by"), ("disconnect_by", "disconnect_by")):
        yield Field(name, FieldKind.WORD, of_class(ends, f"connection.{path}"), words=_words(SIDES))
    yield Field("disconnect_reason", FieldKind.NUMBER, of_class(ends, "connection.disconnect_reason"))
    get = of_class(ConnectionClosed, "connection.one_sided")
    yield Field("one_sided", FieldKind.WORD, get, words={str(one): str(one) for one in Direction})
    for name in ("gaps", "gap_bytes", "discarded_segments", "discarded_bytes", "copied_segments"):
        yield Field(name, FieldKind.NUMBER, of_class(ConnectionClosed, f"connection.{name}"), unit=unit_of(name))


def _broken_fields() -> Iterator[Field]:
    for cls in (MalformedEvent, GapEvent, UnparsedEvent, DiscardedEvent):
        yield Field(EVENTS[cls], FieldKind.PRESENCE, _is_event(cls))
    reasons = _words(tuple(str(one) for one in MalformedReason))
    yield Field("malformed.reason", FieldKind.WORD, of_class(MalformedEvent, "malformed.reason"), words=reasons)
    yield Field("malformed.faults.reason", FieldKind.WORD, _faults("reason"), many=True, words=reasons)
    yield Field("malformed.faults.field", FieldKind.TEXT, _faults("field"), many=True)
    for name in ("field", "detail"):
        yield Field(f"malformed.{name}", FieldKind.TEXT, of_class(MalformedEvent, f"malformed.{name}"))
    for name in ("offset", "missing", "reason_code"):
        get = of_class(MalformedEvent, f"malformed.{name}")
        yield Field(f"malformed.{name}", FieldKind.NUMBER, get, unit=unit_of(name))
    yield Field("gap.length", FieldKind.NUMBER, of_class(GapEvent, "length"), unit="bytes")
    yield Field("gap.reason", FieldKind.WORD, of_class(GapEvent, "reason"), words=_words(GAP_REASONS), open=True)
    yield Field("discarded.length", FieldKind.NUMBER, of_class(DiscardedEvent, "length"), unit="bytes")
    get = of_class(DiscardedEvent, "reason")
    yield Field("discarded.reason", FieldKind.WORD, get, words=_words(DISCARD_REASONS), open=True)
    for name in ("length", "missing"):
        yield Field(f"unparsed.{name}", FieldKind.NUMBER, of_class(UnparsedEvent, f"unparsed.{name}"), unit="bytes")
    get = of_class(UnparsedEvent, "unparsed.reason")
    yield Field("unparsed.reason", FieldKind.WORD, get, words=_words(UNPARSED_REASONS), open=True)
    get = of_class(UnparsedEvent, "unparsed.packet_type")
    yield Field("unparsed.packet_type", FieldKind.WORD, get, words=TYPES)


_KINDS: dict[type, FieldKind] = {
    bool: FieldKind.FLAG,
    int: FieldKind.NUMBER,
    str: FieldKind.TEXT,
    bytes: FieldKind.BYTES,
    tuple: FieldKind.PAIRS,
}
"""By the class of the values; what has fields of its own is there or not."""
_SINGULAR = {"topic_filters": "topic_filter", "reason_codes": "reason_code", "reasons": "reason"}
"""Lists that are also found under the name that other packets have for one value."""


@dataclass(slots=True)
class Place:
    """Where packets of one class have a value; ``get`` is only called with packets of that class."""

    cls: type[ControlPacket]
    path: tuple[str, ...]
    kind: FieldKind
    get: Get
    many: bool = False
    plain: bool = False
    """Whether the value is the attribute of the path's only name, as it is."""


def packet_fields() -> Iterator[Field]:
    """Fields of all packets under all their names."""
    named: dict[str, list[Place]] = {}
    for cls in PACKETS.values():
        for place in _places(cls):
            for name in _names(type_name(cls.packet_type), place.path):
                named.setdefault(name, []).append(place)
    for name, places in named.items():
        yield _join(name, places)


def _names(packet: str, path: tuple[str, ...]) -> list[str]:
    paths = [path]
    if path[-1] in _SINGULAR:
        paths.append((*path[:-1], _SINGULAR[path[-1]]))
    found: dict[str, None] = {}
    for one in paths:
        for start in range(len(one)):
            found[".".join(one[start:])] = None
        found[".".join((packet, *one))] = None
        found[f"{packet}.{one[-1]}"] = None
        if len(one) > 1 and one[-2] == "user_property":
            found[f"{packet}.user_property.{one[-1]}"] = None
    # ``name`` and ``value`` alone would say nothing.
    return [name for name in found if path[-2:-1] != ("user_property",) or "user_property" in name]


def _places(cls: type[ControlPacket]) -> Iterator[Place]:
    for name in ("header_flags", "missing"):
        yield Place(cls, (name,), FieldKind.NUMBER, _reader(name), plain=True)
    for one in fields_of(cls.packet_type):
        if one.is_reason_code:
            yield from _reason_places(one)
        elif one.row is not None:
            yield from _property_places(one, one.row.identifier)
        else:
            yield _place(one)


def _place(field: PacketField) -> Place:
    """Where a field is that is neither a reason code nor a property."""
    words, (first, *inner) = field.words, field.words
    kind = FieldKind.SECRET if field.secret else _KINDS.get(field.value_type, FieldKind.PRESENCE)
    if "[]" in field.path:
        rows = _list(first)
        get = _option(rows, field) if inner else rows
        return Place(field.packet, words, kind, get, many=True)
    read = _reader(*words)
    if field.value_type is Properties:
        return Place(field.packet, words, kind, lambda event, packet: read(event, packet) or None)
    return Place(field.packet, words, kind, read, plain=not inner)


def _reader(first: str, *inner: str) -> Get:
    """An attribute of packets, or of a part that they may not have: ``will``, and what is in it."""
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
    """One attribute of all subscriptions; in versions that do not have it there is none."""
    read, since = attrgetter(field.name), field.versions[0]

    def get(event: Any, packet: Any) -> list[Any]:
        if event.connection.version < since:
            return []
        return [read(row) for row in rows(event, packet)]

    return get


def _property_places(field: PacketField, identifier: int) -> Iterator[Place]:
    """The values of a property: any may come twice by mistake, so all are lists here."""
    *path, _ = field.words
    block = _reader(*path)

    def get(event: Any, packet: Any) -> list[Any]:
        found = block(event, packet)
        return [value for one, value in found.items if one == identifier] if found is not None else []

    kind = _KINDS[field.value_type]
    yield Place(field.packet, field.words, kind, get, many=True)
    if kind is FieldKind.PAIRS:
        yield Place(field.packet, (*field.words, "name"), FieldKind.TEXT, _part(get, 0), many=True)
        yield Place(field.packet, (*field.words, "value"), FieldKind.TEXT, _part(get, 1), many=True)


def _part(pairs: Get, index: int) -> Get:
    return lambda event, packet: [pair[index] for pair in pairs(event, packet)]


def _reason_places(field: PacketField) -> Iterator[Place]:
    """The reason codes of a packet, and their names."""
    cls, name = field.packet, field.name
    if field.path.endswith("[]"):
        yield Place(cls, (name,), FieldKind.NUMBER, _list(name), many=True)
        yield Place(cls, ("reasons",), FieldKind.TEXT, _reasons(cls, name), many=True)
    else:
        get = _reason_code(field)
        yield Place(cls, (name,), FieldKind.NUMBER, get)
        yield Place(cls, ("reason",), FieldKind.TEXT, _reason(cls, get))


def _reason_code(field: PacketField) -> Get:
    """A reason code; one that was left out means 0x00, as the JSON form shows it."""
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


def _join(name: str, places: list[Place]) -> Field:
    """One field for all places that a name means."""
    first = places[0]
    kind = first.kind
    assert all(one.kind is kind for one in places), name
    last = name.rpartition(".")[2]
    topic = kind is FieldKind.TEXT and "topic" in last
    made = Field(name, kind, first.get, unit=unit_of(name) if kind is FieldKind.NUMBER else "", topic=topic)
    if name == last and all(one.plain for one in places):
        made.get = _anywhere(name)
    elif len(places) > 1 or first.many:
        made.many, made.get = True, _many(places)
    else:
        made.get = _only(first)
    return made


def _anywhere(name: str) -> Get:
    return lambda event, packet: getattr(packet, name, None)


def _only(place: Place) -> Get:
    cls, read = place.cls, place.get
    return lambda event, packet: read(event, packet) if type(packet) is cls else None


def _listed(place: Place) -> Get:
    if place.many:
        return place.get
    read = place.get

    def get(event: Any, packet: Any) -> tuple[Any, ...]:
        value = read(event, packet)
        return () if value is None else (value,)

    return get


def _many(places: list[Place]) -> Get:
    getters: dict[type, list[Get]] = {}
    for one in places:
        getters.setdefault(one.cls, []).append(_listed(one))

    def get(event: Any, packet: Any) -> Any:
        found = getters.get(type(packet))
        if found is None:
            return ()
        if len(found) == 1:
            return found[0](event, packet)
        return [value for one in found for value in one(event, packet)]

    return get


DECODED = ("payload", "publish.payload")
"""Names whose further parts lead into what payloads hold."""


@dataclass(slots=True)
class PayloadSource:
    """Where fields of payloads come from; the default knows no ``[[payload]]`` tables."""

    decoders: Decoders = field(default_factory=lambda: Decoders(()))


def decoded_path(name: str) -> list[str | int] | None:
    """The keys that a name has after that of the payload; ``None`` for a name that is none of a payload."""
    for one in DECODED:
        if name == one or name.startswith(f"{one}."):
            return [part for part in name[len(one) :].split(".") if part]
    return None


def decoded_field(name: str, path: Sequence[str | int], source: PayloadSource) -> Field:
    """The field of what payloads hold at a path."""

    def get(event: Any, packet: Any) -> Sequence[Any]:
        if type(packet) is not Publish or isinstance(event, MalformedEvent):
            return ()
        decoded = source.decoders.value(event)
        return () if decoded is None or decoded.problem else pick(decoded.value, path)

    return Field(name, FieldKind.DECODED, get, many=True)


@cache
def registry() -> dict[str, Field]:
    """All fields by name, ``.length`` and ``.count`` and bracketed names not included."""
    found = {one.name: one for one in packet_fields()}
    found.update((one.name, one) for one in common_fields())
    return found


def lookup(name: str) -> Field | None:
    """The field of this name; ``X.length`` and ``X.count`` are made from field ``X``."""
    found = registry().get(name)
    if found is not None:
        return found
    base_name, _, last = name.rpartition(".")
    base = registry().get(base_name)
    if base is None or base.kind is FieldKind.SECRET:
        return None
    if last == "length" and base.kind in (FieldKind.TEXT, FieldKind.BYTES):
        return _length_of(base, name)
    if last == "count" and base.many and (base.kind is not FieldKind.PRESENCE or base_name.endswith("subscriptions")):
        get = base.get
        return Field(name, FieldKind.NUMBER, lambda event, packet: len(get(event, packet)) or None)
    return None


def _length_of(base: Field, name: str) -> Field:
    get = base.get
    if base.many:
        measure: Callable[[Any], int] = utf8_length if base.kind is FieldKind.TEXT else len

        def lengths(event: Any, packet: Any) -> list[int]:
            return [measure(value) for value in get(event, packet)]

        return Field(name, FieldKind.NUMBER, lengths, many=True, unit="bytes")
    if base.kind is FieldKind.TEXT:

        def text_length(event: Any, packet: Any) -> int | None:
            value = get(event, packet)
            return None if value is None else utf8_length(value)

        return Field(name, FieldKind.NUMBER, text_length, unit="bytes")
    # Bytes that the capture lost can only be those of the payload, the last field of a packet.
    lost = base.name.rpartition(".")[2] == "payload"

    def length(event: Any, packet: Any) -> int | None:
        value = get(event, packet)
        return None if value is None else len(value) + (packet.missing if lost else 0)

    return Field(name, FieldKind.NUMBER, length, unit="bytes")


def keyed(base: Field, key: str) -> Field:
    """The values that a list of pairs has under one name."""
    get = base.get

    def values(event: Any, packet: Any) -> Sequence[str]:
        return [value for name, value in get(event, packet) if name == key]

    return Field(f"{base.name}[…]", FieldKind.TEXT, values, many=True)


def names() -> list[str]:
    return sorted(registry())
