"""Fields that belong to the event, its connection or its capture, not to the inside of a packet."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from operator import attrgetter
from typing import Any

from mqttscope.events import (
    ConnectionClosed,
    ConnectionEnding,
    ConnectionOpened,
    DiscardedEvent,
    GapEvent,
    MalformedEvent,
    PacketEvent,
    UnparsedEvent,
)
from mqttscope.filter.fields import Field, Get, Kind, unit_of
from mqttscope.mqtt.codec import packet_end
from mqttscope.mqtt.constants import Direction, MalformedReason, PacketType, type_name
from mqttscope.net.frame import CaptureDrops, CaptureError, CaptureSecrets

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
)  # fmt: skip
CLOSINGS = ("fin", "reset", "port_reused", "idle", "evicted", "capture_end")
UNPARSED_REASONS = ("resynchronised", "gap", "too_large", "not_mqtt", *CLOSINGS[1:])


_BROKEN = (
    ("malformed", MalformedEvent),
    ("gap", GapEvent),
    ("unparsed", UnparsedEvent),
    ("discarded", DiscardedEvent),
)


def _words(values: tuple[str, ...]) -> dict[str, str]:
    return {one: one for one in values}


def attribute(name: str) -> Get:
    """An attribute of the event itself, of whatever class it is."""

    def get(event: Any, packet: Any) -> Any:
        return getattr(event, name, None)

    return get


def of_connection(name: str) -> Get:
    """An attribute of the event's connection."""

    def get(event: Any, packet: Any) -> Any:
        return getattr(getattr(event, "connection", None), name, None)

    return get


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
    yield Field("event", Kind.WORD, _event, words=_words(tuple(EVENTS.values())))
    yield Field("type", Kind.WORD, packet_type, words=TYPES)
    for number in PacketType:
        yield Field(type_name(number), Kind.PRESENCE, _is_type(number))
    for name in ("time", "timestamp"):
        yield Field(name, Kind.TIME, attribute("timestamp_ns"))
    for name in ("timestamp_ns", "frame"):
        yield Field(name, Kind.NUMBER, attribute(name))
    yield Field("packet", Kind.NUMBER, attribute("number"))
    yield Field("length", Kind.NUMBER, _length, unit="bytes")
    yield Field("remaining_length", Kind.NUMBER, _remaining_length, unit="bytes")
    yield Field("capture", Kind.TEXT, attribute("capture"))
    yield Field("message", Kind.TEXT, of_class(CaptureError, "message"))
    yield Field("topic", Kind.TEXT, attribute("topic"), topic=True)
    yield Field("direction", Kind.WORD, attribute("direction"), words=DIRECTIONS)
    yield from _connection_fields()
    yield from _broken_fields()


def _connection_fields() -> Iterator[Field]:
    yield Field("connection", Kind.NUMBER, of_connection("number"))
    yield Field("client_identifier", Kind.TEXT, of_connection("client_identifier"))
    yield Field("version", Kind.VERSION, of_connection("version"))
    yield Field("transport", Kind.WORD, of_connection("transport"), words=_words(TRANSPORTS), open=True)
    for name in ("version_known", "roles_known", "handshake_seen"):
        yield Field(name, Kind.FLAG, of_connection(name))
    for side in SIDES:
        yield Field(side, Kind.ENDPOINT, of_connection(side))
        yield Field(f"{side}.address", Kind.ADDRESS, _address(side))
        yield Field(f"{side}.port", Kind.NUMBER, _port(side))
    # What only the lines of a connection that ends or is closed have; before that the values are not final.
    ends = ConnectionEnding, ConnectionClosed
    yield Field("how", Kind.WORD, of_class(ends, "connection.closed_how"), words=_words(CLOSINGS))
    for name, path in (("by", "closed_by"), ("disconnect_by", "disconnect_by")):
        yield Field(name, Kind.WORD, of_class(ends, f"connection.{path}"), words=_words(SIDES))
    yield Field("disconnect_reason", Kind.NUMBER, of_class(ends, "connection.disconnect_reason"))
    get = of_class(ConnectionClosed, "connection.one_sided")
    yield Field("one_sided", Kind.WORD, get, words={str(one): str(one) for one in Direction})
    for name in ("gaps", "gap_bytes", "discarded_segments", "discarded_bytes", "copied_segments"):
        yield Field(name, Kind.NUMBER, of_class(ConnectionClosed, f"connection.{name}"), unit=unit_of(name))


def _broken_fields() -> Iterator[Field]:
    for name, cls in _BROKEN:
        yield Field(name, Kind.PRESENCE, _is_event(cls))
    reasons = _words(tuple(str(one) for one in MalformedReason))
    yield Field("malformed.reason", Kind.WORD, of_class(MalformedEvent, "malformed.reason"), words=reasons)
    yield Field("malformed.faults.reason", Kind.WORD, _faults("reason"), many=True, words=reasons)
    yield Field("malformed.faults.field", Kind.TEXT, _faults("field"), many=True)
    for name in ("field", "detail"):
        yield Field(f"malformed.{name}", Kind.TEXT, of_class(MalformedEvent, f"malformed.{name}"))
    for name in ("offset", "missing", "reason_code"):
        get = of_class(MalformedEvent, f"malformed.{name}")
        yield Field(f"malformed.{name}", Kind.NUMBER, get, unit=unit_of(name))
    yield Field("gap.length", Kind.NUMBER, of_class(GapEvent, "length"), unit="bytes")
    yield Field("gap.reason", Kind.WORD, of_class(GapEvent, "reason"), words=_words(GAP_REASONS), open=True)
    yield Field("discarded.length", Kind.NUMBER, of_class(DiscardedEvent, "length"), unit="bytes")
    get = of_class(DiscardedEvent, "reason")
    yield Field("discarded.reason", Kind.WORD, get, words=_words(DISCARD_REASONS), open=True)
    for name in ("length", "missing"):
        yield Field(f"unparsed.{name}", Kind.NUMBER, of_class(UnparsedEvent, f"unparsed.{name}"), unit="bytes")
    get = of_class(UnparsedEvent, "unparsed.reason")
    yield Field("unparsed.reason", Kind.WORD, get, words=_words(UNPARSED_REASONS), open=True)
    get = of_class(UnparsedEvent, "unparsed.packet_type")
    yield Field("unparsed.packet_type", Kind.WORD, get, words=TYPES)
