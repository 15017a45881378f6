"""Fields of packets, worked out from the declarations of the packets and the table of properties."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from mqttscope.events import MalformedEvent
from mqttscope.filter.fields import Field, Get, Kind, unit_of
from mqttscope.mqtt.constants import ProtocolVersion, reason_name, type_name
from mqttscope.mqtt.declare import PACKETS, ControlPacket, Declared
from mqttscope.mqtt.parts import Subscription, Will
from mqttscope.mqtt.properties import PROPERTIES, WILL, Property

V5 = ProtocolVersion.V5
SECRETS = frozenset({"password"})
"""Fields that may be asked for but not looked into."""
ONLY_5_0 = frozenset({"no_local", "retain_as_published", "retain_handling"})
"""Subscription Options that do not exist before 5.0 (3.8.3.1)."""
_KIND_OF_WIRE = {
    "Byte": Kind.NUMBER,
    "Two Byte Integer": Kind.NUMBER,
    "Four Byte Integer": Kind.NUMBER,
    "Variable Byte Integer": Kind.NUMBER,
    "UTF-8 Encoded String": Kind.TEXT,
    "Binary Data": Kind.BYTES,
    "rest of the packet": Kind.BYTES,
    "UTF-8 String Pair": Kind.PAIRS,
    "reason codes": Kind.NUMBER,
    "topic filters": Kind.TEXT,
    "Properties": Kind.PRESENCE,
    "Will": Kind.PRESENCE,
    "subscriptions": Kind.PRESENCE,
}
_KIND_OF_ANNOTATION = {"bool": Kind.FLAG, "int": Kind.NUMBER, "str": Kind.TEXT, "bytes": Kind.BYTES}
_SINGULAR = {"topic_filters": "topic_filter", "reason_codes": "reason_code", "reasons": "reason"}
"""Lists that are also found under the name that other packets have for one value."""


@dataclass(slots=True)
class Place:
    """Where packets of one class have a value; ``get`` is only called with packets of that class."""

    cls: type[ControlPacket]
    path: tuple[str, ...]
    kind: Kind
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
    annotations = {one.name: str(one.type) for one in dataclasses.fields(cls)}
    for name in ("header_flags", "missing"):
        yield Place(cls, (name,), Kind.NUMBER, _attribute(name), plain=True)
    for row in cls.declaration:
        name = row.name
        if row.kind != "wire":
            yield Place(
                cls, (name,), _KIND_OF_ANNOTATION[annotations[name].split(" ")[0]], _attribute(name), plain=True
            )
            continue
        wire = row.wire_in(V5).name
        kind = Kind.SECRET if name in SECRETS else _KIND_OF_WIRE[wire]
        if wire == "Properties":
            yield from _properties(cls, (name,), cls.packet_type, _attribute(name))
        elif wire == "Will":
            yield from _will(cls, name)
        elif wire == "subscriptions":
            yield from _subscriptions(cls, name)
        elif wire == "topic filters":
            yield Place(cls, (name,), kind, _list(name), many=True)
        elif wire == "reason codes":
            yield Place(cls, (name,), kind, _list(name), many=True)
            yield Place(cls, ("reasons",), Kind.TEXT, _reasons(cls, name), many=True)
        elif name == "reason_code":
            get = _reason_code(row)
            yield Place(cls, (name,), kind, get)
            yield Place(cls, ("reason",), Kind.TEXT, _reason(cls, get))
        else:
            yield Place(cls, (name,), kind, _attribute(name), plain=True)


def _attribute(name: str) -> Get:
    read = attrgetter(name)
    return lambda event, packet: read(packet)


def _list(name: str) -> Get:
    read = attrgetter(name)
    return lambda event, packet: read(packet) or ()


def _reason_code(row: Declared) -> Get:
    """A reason code; one that was left out means 0x00, as the JSON form shows it."""
    tail, since = row.tail, row.since

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


def _properties(cls: type[ControlPacket], path: tuple[str, ...], owner: int, block: Get) -> Iterator[Place]:
    yield Place(cls, path, Kind.PRESENCE, lambda event, packet: block(event, packet) or None)
    for row in PROPERTIES:
        if owner not in row.packets:
            continue
        # Any property may come twice by mistake, so all are lists here.
        get = _property(row, block)
        where = (*path, row.name)
        kind = _KIND_OF_WIRE[row.wire.name]
        yield Place(cls, where, kind, get, many=True)
        if kind is Kind.PAIRS:
            yield Place(cls, (*where, "name"), Kind.TEXT, _part(get, 0), many=True)
            yield Place(cls, (*where, "value"), Kind.TEXT, _part(get, 1), many=True)


def _property(row: Property, block: Get) -> Get:
    number = row.identifier

    def get(event: Any, packet: Any) -> list[Any]:
        found = block(event, packet)
        return [value for one, value in found.items if one == number] if found is not None else []

    return get


def _part(pairs: Get, index: int) -> Get:
    return lambda event, packet: [pair[index] for pair in pairs(event, packet)]


def _will(cls: type[ControlPacket], name: str) -> Iterator[Place]:
    read = attrgetter(name)
    yield Place(cls, (name,), Kind.PRESENCE, lambda event, packet: read(packet))
    for one in dataclasses.fields(Will):
        get = _part_of_will(read, attrgetter(one.name))
        kind = _KIND_OF_ANNOTATION.get(str(one.type))
        if kind is None:
            yield from _properties(cls, (name, one.name), WILL, get)
        else:
            yield Place(cls, (name, one.name), kind, get)


def _part_of_will(read: attrgetter[Any], part: attrgetter[Any]) -> Get:
    def get(event: Any, packet: Any) -> Any:
        will = read(packet)
        return None if will is None else part(will)

    return get


def _subscriptions(cls: type[ControlPacket], name: str) -> Iterator[Place]:
    rows = _list(name)
    yield Place(cls, (name,), Kind.PRESENCE, rows, many=True)
    for one in dataclasses.fields(Subscription):
        kind = _KIND_OF_ANNOTATION[str(one.type)]
        get = _option(rows, attrgetter(one.name), since=V5 if one.name in ONLY_5_0 else 0)
        yield Place(cls, (name, one.name), kind, get, many=True)


def _option(rows: Get, read: attrgetter[Any], since: int) -> Get:
    def get(event: Any, packet: Any) -> list[Any]:
        if since and event.connection.version < since:
            return []
        return [read(row) for row in rows(event, packet)]

    return get


def _join(name: str, places: list[Place]) -> Field:
    """One field for all places that a name means."""
    first = places[0]
    kind = first.kind
    assert all(one.kind is kind for one in places), name
    last = name.rpartition(".")[2]
    topic = kind is Kind.TEXT and "topic" in last
    made = Field(name, kind, first.get, unit=unit_of(name) if kind is Kind.NUMBER else "", topic=topic)
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
