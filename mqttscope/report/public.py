"""Events as reports may show them, with asterisks in the place of secrets.

The package `secrets` decides what is secret; here it is taken out of packets before a report gets them.  What a report
has to say of bytes that it does not get is found before they are hidden: which other protocol they are of.
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, cast

from mqttscope import events
from mqttscope.mqtt import Connect, ControlPacket, Direction, ProtocolVersion, Publish, Span, packets, trace
from mqttscope.mqtt.codec import packet_end
from mqttscope.secrets.addresses import public_details
from mqttscope.secrets.credentials import starred_name, without_told
from mqttscope.secrets.forms import REACH, SHORTEST, joined, suspicions
from mqttscope.secrets.packets import (
    DISGUISED,
    Ranges,
    covered,
    credentials_in_damaged,
    hidden_in_damaged,
    hidden_in_packet,
    hidden_in_unparsed,
    names_hidden,
    visible_fields,
)
from mqttscope.secrets.values import public, public_damaged, without_names_of

if TYPE_CHECKING:
    from mqttscope.payloads.decoders import Decoded

MAX_TRACED_BYTES = 65_536
"""Packets whose fields, the payload of a PUBLISH aside, take more bytes are explained up to here."""


@dataclass(slots=True)
class PublicPacket(events.PacketEvent):
    """A packet of which something is hidden."""

    hidden: Ranges = field(default_factory=list)
    """Ranges of its bytes that are asterisks."""
    spans: list[Span] = field(default_factory=list)
    """The places of its fields, as its own bytes say, for reports that show all of them."""


@dataclass(slots=True)
class DecodedPacket(PublicPacket):
    """A PUBLISH with what a decoder made of its payload."""

    decoded: Decoded | None = None


@dataclass(slots=True)
class PublicMalformed(events.MalformedEvent):
    """A malformed packet as it may be shown."""

    hidden: Ranges = field(default_factory=list)
    visible: tuple[str, ...] = ()
    """Fields that were read and may be shown."""
    protocol: str = ""
    """Which other protocol its bytes are of, empty where they may be MQTT."""
    spans: list[Span] = field(default_factory=list)
    """As in `PublicPacket`."""


@dataclass(slots=True)
class PublicUnparsed(events.UnparsedEvent):
    """Bytes that are no packet, as they may be shown."""

    hidden: Ranges = field(default_factory=list)
    protocol: str = ""
    """As in `PublicMalformed`."""


Found = events.PacketEvent | events.MalformedEvent | events.UnparsedEvent
"""What bytes are taken for."""
_NO_SECRETS = frozenset(
    (
        packets.Puback, packets.Pubrec, packets.Pubrel, packets.Pubcomp, packets.Subscribe, packets.Suback,
        packets.Unsubscribe, packets.Unsuback, packets.Pingreq, packets.Pingresp,
    )
)  # fmt: skip
"""Packets that hold none where they have no fault and no properties."""


def public_event(event: events.Event, *, spans: bool = False) -> events.Event:
    """An event without its secrets; itself where it has none.  Its connection is in the state before it."""
    if isinstance(event, PublicPacket | PublicMalformed | PublicUnparsed):
        return event
    if isinstance(event, events.PacketEvent):
        return public_packet(event, spans=spans)
    if isinstance(event, events.MalformedEvent):
        return public_malformed(event, spans=spans)
    if isinstance(event, events.UnparsedEvent):
        return public_unparsed(event)
    if isinstance(event, events.ConnectionOpened | events.ConnectionEnding | events.ConnectionClosed):
        return _public_connection(event)
    return event


def public_given(event: Found, hidden: Ranges) -> Found:
    """What a user gave, with these ranges of its bytes hidden, and the places of its fields."""
    if isinstance(event, events.MalformedEvent):
        return public_malformed(event, hidden, spans=True)
    if isinstance(event, events.UnparsedEvent):
        return public_unparsed(event, hidden)
    packet, connection = event.packet, event.connection
    version = packet.version if isinstance(packet, Connect) else connection.version
    # What type it has, and how long it is, is said of every packet.
    body = packet_end(packet.raw, 0, len(packet.raw))[0]
    hidden = joined([*((max(body, start), end) for start, end in hidden), *hidden_in_packet(packet, version)])
    return PublicPacket(
        connection, event.direction, event.number, event.frame, event.timestamp_ns, event.capture,
        public(packet, hidden), event.topic, event.stream_offset, hidden, spans_of(packet.raw, packet, version),
    )  # fmt: skip


def public_packet(event: events.PacketEvent, shown: int | None = None, *, spans: bool = False) -> events.PacketEvent:
    """A packet without its secrets; itself where it has none, as nearly all.

    ``shown``: bytes of a payload that anybody is shown, where these are not all.  With ``spans`` it has the places of
    its fields.
    """
    packet, connection = event.packet, event.connection
    kind = type(packet)
    if kind is Publish:
        payload = packet.payload  # type: ignore[attr-defined]
        if shown is not None and len(payload) > shown:
            payload = payload[: shown + REACH]
        if (
            (len(payload) < SHORTEST or not suspicions(payload))
            and not connection.doubtful
            and packet.topic_name not in DISGUISED  # type: ignore[attr-defined]
            and without_told(packet.properties) is packet.properties  # type: ignore[attr-defined]
        ):
            return event
    elif kind in _NO_SECRETS and not getattr(packet, "properties", None):
        return event
    version = packet.version if isinstance(packet, Connect) else connection.version
    hidden = hidden_in_packet(packet, version, connection.side(event.direction).doubt, shown)
    if not hidden:
        return event
    return PublicPacket(
        connection, event.direction, event.number, event.frame, event.timestamp_ns, event.capture,
        public(packet, hidden), event.topic, event.stream_offset, hidden,
        spans_of(packet.raw, packet, version) if spans else [],
    )  # fmt: skip


def with_decoded(event: events.Event, decoded: Decoded, *, show_secrets: bool, spans: bool = False) -> events.Event:
    """A PUBLISH, as it may be shown, with what a decoder made of its payload.

    Where that has secrets which asterisks in the payload would not hide, all bytes of the payload are hidden.  With
    ``spans`` it has the places of its fields.
    """
    if not isinstance(event, events.PacketEvent):
        return event
    packet = event.packet
    hidden = hidden_of(event)
    if not show_secrets and not decoded.problem and decoded.covers and decoded.shown(show_secrets=False).hidden:
        payload: bytes = packet.payload  # type: ignore[attr-defined]
        end = len(packet.raw)
        place = (end - len(payload), end)
        packet = replace(cast(Any, packet), raw=covered(packet.raw, [place]), payload=b"*" * len(payload))
        hidden = joined([*hidden, place])
    places = event.spans if isinstance(event, PublicPacket) else []
    if spans and not places:
        places = spans_of(packet.raw, packet, event.connection.version)
    return DecodedPacket(
        event.connection, event.direction, event.number, event.frame, event.timestamp_ns, event.capture, packet,
        event.topic, event.stream_offset, hidden, places, decoded,
    )  # fmt: skip


def decoded_of(event: events.Event) -> Decoded | None:
    """What a decoder made of the payload of an event."""
    return event.decoded if isinstance(event, DecodedPacket) else None


def with_public_names(event: events.Event, *, spans: bool = False) -> events.Event:
    """An event without credentials in the Client Identifier and in topics; itself where they have none."""
    connection: Any = getattr(event, "connection", None)
    identifier = None if connection is None else connection.client_identifier
    if identifier:
        shown = starred_name(identifier)
        if shown != identifier:
            known = copy(connection)
            known.client_identifier = shown
            event = replace(cast(Any, event), connection=known)
    if not isinstance(event, events.PacketEvent):
        return event
    packet, topic = without_names_of(event.packet), event.topic and starred_name(event.topic)
    if packet is event.packet and topic == event.topic:
        return event
    version = packet.version if isinstance(packet, Connect) else event.connection.version
    places = names_hidden(packet.raw, version)
    packet = replace(packet, raw=covered(packet.raw, places))
    return PublicPacket(
        event.connection, event.direction, event.number, event.frame, event.timestamp_ns, event.capture, packet, topic,
        event.stream_offset, joined([*hidden_of(event), *places]),
        spans_of(packet.raw, packet, version) if spans else [],
    )  # fmt: skip


def public_malformed(
    event: events.MalformedEvent, hidden: Ranges | None = None, *, spans: bool = False
) -> PublicMalformed:
    """A malformed packet without what may be of a secret; with the places of its fields where ``spans`` are wanted.

    ``hidden``: ranges of its bytes that are known to be secret, besides credentials; by default they are found.
    """
    found, connection = event.malformed, event.connection
    version = connection.version
    if hidden is None:
        hidden = hidden_in_damaged(found.raw, version, connection.side(event.direction).doubt)
    else:
        hidden = joined([*hidden, *credentials_in_damaged(found.raw, version)])
    visible = visible_fields(found.fields_read, found.raw, version, hidden)
    shown = public_damaged(found, hidden, version) if hidden else found
    return PublicMalformed(
        connection, event.direction, event.number, event.frame, event.timestamp_ns, event.capture, shown, event.topic,
        event.stream_offset, hidden, visible, _protocol(found.raw, event.direction),
        spans_of(found.raw, found.packet, version) if spans else [],
    )  # fmt: skip


def public_unparsed(event: events.UnparsedEvent, hidden: Ranges | None = None) -> PublicUnparsed:
    """Bytes that are no packet without what may be of a secret; ``hidden`` as for `public_malformed`."""
    found, connection = event.unparsed, event.connection
    if hidden is None:
        hidden = hidden_in_unparsed(found, connection.version, connection.side(event.direction).doubt)
    shown = replace(found, raw=covered(found.raw, hidden)) if hidden else found
    return PublicUnparsed(
        connection, event.direction, event.frame, event.timestamp_ns, event.capture, shown, event.stream_offset,
        hidden, _protocol(found.raw, event.direction),
    )  # fmt: skip


def _public_connection(
    event: events.ConnectionOpened | events.ConnectionEnding | events.ConnectionClosed,
) -> events.ConnectionOpened | events.ConnectionEnding | events.ConnectionClosed:
    """What opened or ended, without what may be a token in the HTTP request that it began with."""
    connection = event.connection
    if not connection.details or connection.transport == "tcp":
        return event
    details = public_details(connection.details)
    if details == connection.details:
        return event
    known = copy(connection)
    known.details = details
    return replace(event, connection=known)


def spans_of(raw: bytes, packet: ControlPacket | None, version: ProtocolVersion) -> list[Span]:
    """The places of the fields of a packet; what comes late in one of a great many fields is one."""
    # A payload is one field, however long it is; in front of it there may be hundreds of thousands.
    payload = len(packet.payload) if isinstance(packet, Publish) and packet.payload else 0
    if len(raw) - payload <= MAX_TRACED_BYTES:
        return trace(raw, version)
    spans = trace(raw[:MAX_TRACED_BYTES], version)
    if spans and spans[-1].field == "unparsed":
        spans[-1].end = len(raw)
        return spans
    return [*spans, Span("unparsed", MAX_TRACED_BYTES, len(raw))]


def hidden_of(event: events.PacketEvent | events.MalformedEvent | events.UnparsedEvent) -> Ranges:
    """Ranges of the bytes of an event that are asterisks."""
    return event.hidden if isinstance(event, PublicPacket | PublicMalformed | PublicUnparsed) else []


def fields_shown(event: events.MalformedEvent) -> tuple[str, ...]:
    """The fields of a malformed packet that were read and may be shown."""
    return event.visible if isinstance(event, PublicMalformed) else tuple(event.malformed.fields_read)


def protocol_of(event: events.MalformedEvent | events.UnparsedEvent) -> str:
    """Which other protocol the bytes of an event are of, empty where they may be MQTT."""
    if isinstance(event, PublicMalformed | PublicUnparsed):
        return event.protocol
    raw = event.malformed.raw if isinstance(event, events.MalformedEvent) else event.unparsed.raw
    return _protocol(raw, event.direction)


def _protocol(raw: bytes, direction: Direction) -> str:
    # What is well formed needs no linter.
    from mqttscope.mqtt.foreign import foreign_protocol

    return foreign_protocol(raw, is_answer=direction is Direction.SERVER_TO_CLIENT)
