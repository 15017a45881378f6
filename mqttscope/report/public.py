"""Events without secrets, for reports: secret bytes are replaced by asterisks.

The package `secrets` decides which bytes are secret; this module hides them before a report receives a packet.  Facts
about hidden bytes that reports show, such as another protocol, are determined before.
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, cast

from mqttscope import events
from mqttscope.mqtt import Connect, ControlPacket, Direction, FieldSpan, ProtocolVersion, Publish, packets, trace
from mqttscope.mqtt.codec import packet_end
from mqttscope.secrets.addresses import public_details
from mqttscope.secrets.credentials import starred_name, without_property_credentials
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
    from mqttscope.payloads.decoders import DecodedPayload

MAX_TRACED_BYTES = 65_536
"""Maximum bytes of packet fields that are traced, without the payload of a PUBLISH."""


@dataclass(slots=True)
class PublicPacket(events.PacketEvent):
    """A packet with hidden parts."""

    hidden: Ranges = field(default_factory=list)
    """Ranges of its bytes that are asterisks."""
    spans: list[FieldSpan] = field(default_factory=list)
    """Ranges of its fields, computed from the original bytes, for reports that show all fields."""


@dataclass(slots=True)
class DecodedPacket(PublicPacket):
    """A PUBLISH with its decoded payload."""

    decoded: DecodedPayload | None = None


@dataclass(slots=True)
class PublicMalformed(events.MalformedEvent):
    """A malformed packet with hidden secrets."""

    hidden: Ranges = field(default_factory=list)
    visible: tuple[str, ...] = ()
    """Fields that were read and may be shown."""
    protocol: str = ""
    """Other protocol that its bytes belong to; empty if they may be MQTT."""
    spans: list[FieldSpan] = field(default_factory=list)
    """Ranges of its fields, as in `PublicPacket`."""


@dataclass(slots=True)
class PublicUnparsed(events.UnparsedEvent):
    """Unparsed bytes with hidden secrets."""

    hidden: Ranges = field(default_factory=list)
    protocol: str = ""
    """Other protocol that the bytes belong to, as in `PublicMalformed`."""


ByteEvent = events.PacketEvent | events.MalformedEvent | events.UnparsedEvent
"""Events with bytes: a packet, a malformed packet or unparsed bytes."""
_NO_SECRETS = frozenset(
    (
        packets.Puback, packets.Pubrec, packets.Pubrel, packets.Pubcomp, packets.Subscribe, packets.Suback,
        packets.Unsubscribe, packets.Unsuback, packets.Pingreq, packets.Pingresp,
    )
)  # fmt: skip
"""Packet types without secrets if they have no fault and no properties."""


def public_event(event: events.Event, *, spans: bool = False) -> events.Event:
    """An event without its secrets; the event itself if it has no secrets.  Its connection has the state before it."""
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


def public_input(event: ByteEvent, hidden: Ranges) -> ByteEvent:
    """An event made from the user's input, with hidden ranges of its bytes, and the ranges of its fields."""
    if isinstance(event, events.MalformedEvent):
        return public_malformed(event, hidden, spans=True)
    if isinstance(event, events.UnparsedEvent):
        return public_unparsed(event, hidden)
    packet, connection = event.packet, event.connection
    version = packet.version if isinstance(packet, Connect) else connection.version
    # Type and length are shown of every packet.
    body = packet_end(packet.raw, 0, len(packet.raw))[0]
    hidden = joined([*((max(body, start), end) for start, end in hidden), *hidden_in_packet(packet, version)])
    return PublicPacket(
        connection, event.direction, event.number, event.frame, event.timestamp_ns, event.capture,
        public(packet, hidden), event.topic, event.stream_offset, hidden, spans_of(packet.raw, packet, version),
    )  # fmt: skip


def public_packet(event: events.PacketEvent, shown: int | None = None, *, spans: bool = False) -> events.PacketEvent:
    """A packet without its secrets; the packet itself if it has no secrets, like nearly all.

    ``shown``: maximum number of payload bytes that are shown.  ``spans``: include the ranges of its fields.
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
            and without_property_credentials(packet.properties) is packet.properties  # type: ignore[attr-defined]
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


def with_decoded(
    event: events.Event, decoded: DecodedPayload, *, show_secrets: bool, spans: bool = False
) -> events.Event:
    """A PUBLISH without secrets, with its decoded payload.

    If the decoded value has secrets that asterisks in the payload would not hide, the whole payload is hidden.
    ``spans``: include the ranges of its fields.
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


def decoded_of(event: events.Event) -> DecodedPayload | None:
    """The decoded payload of an event, if there is one."""
    return event.decoded if isinstance(event, DecodedPacket) else None


def with_public_names(event: events.Event, *, spans: bool = False) -> events.Event:
    """An event without credentials in Client Identifier and topics; the event itself if they are clean."""
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
    """A malformed packet without possible secrets; ``spans``: include the ranges of its fields.

    ``hidden``: ranges known to be secret, in addition to credentials; by default they are searched for.
    """
    malformed, connection = event.malformed, event.connection
    version = connection.version
    if hidden is None:
        hidden = hidden_in_damaged(malformed.raw, version, connection.side(event.direction).doubt)
    else:
        hidden = joined([*hidden, *credentials_in_damaged(malformed.raw, version)])
    visible = visible_fields(malformed.fields_read, malformed.raw, version, hidden)
    shown = public_damaged(malformed, hidden, version) if hidden else malformed
    return PublicMalformed(
        connection, event.direction, event.number, event.frame, event.timestamp_ns, event.capture, shown, event.topic,
        event.stream_offset, hidden, visible, _protocol(malformed.raw, event.direction),
        spans_of(malformed.raw, malformed.packet, version) if spans else [],
    )  # fmt: skip


def public_unparsed(event: events.UnparsedEvent, hidden: Ranges | None = None) -> PublicUnparsed:
    """Unparsed bytes without possible secrets; ``hidden`` as in `public_malformed`."""
    unparsed, connection = event.unparsed, event.connection
    if hidden is None:
        hidden = hidden_in_unparsed(unparsed, connection.version, connection.side(event.direction).doubt)
    shown = replace(unparsed, raw=covered(unparsed.raw, hidden)) if hidden else unparsed
    return PublicUnparsed(
        connection, event.direction, event.frame, event.timestamp_ns, event.capture, shown, event.stream_offset,
        hidden, _protocol(unparsed.raw, event.direction),
    )  # fmt: skip


def _public_connection(
    event: events.ConnectionOpened | events.ConnectionEnding | events.ConnectionClosed,
) -> events.ConnectionOpened | events.ConnectionEnding | events.ConnectionClosed:
    """An opened or ended connection without possible tokens in its initial HTTP request."""
    connection = event.connection
    if not connection.details or connection.transport == "tcp":
        return event
    details = public_details(connection.details)
    if details == connection.details:
        return event
    known = copy(connection)
    known.details = details
    return replace(event, connection=known)


def spans_of(raw: bytes, packet: ControlPacket | None, version: ProtocolVersion) -> list[FieldSpan]:
    """Ranges of the fields of a packet; fields after `MAX_TRACED_BYTES` become one range."""
    # A payload is one field of any length; before it there may be hundreds of thousands of fields.
    payload = len(packet.payload) if isinstance(packet, Publish) and packet.payload else 0
    if len(raw) - payload <= MAX_TRACED_BYTES:
        return trace(raw, version)
    spans = trace(raw[:MAX_TRACED_BYTES], version)
    if spans and spans[-1].field == "unparsed":
        spans[-1].end = len(raw)
        return spans
    return [*spans, FieldSpan("unparsed", MAX_TRACED_BYTES, len(raw))]


def hidden_of(event: events.PacketEvent | events.MalformedEvent | events.UnparsedEvent) -> Ranges:
    """Ranges of an event's bytes that are asterisks."""
    return event.hidden if isinstance(event, PublicPacket | PublicMalformed | PublicUnparsed) else []


def fields_shown(event: events.MalformedEvent) -> tuple[str, ...]:
    """Fields of a malformed packet that were read and may be shown."""
    return event.visible if isinstance(event, PublicMalformed) else tuple(event.malformed.fields_read)


def protocol_of(event: events.MalformedEvent | events.UnparsedEvent) -> str:
    """Other protocol that an event's bytes belong to; empty if they may be MQTT."""
    if isinstance(event, PublicMalformed | PublicUnparsed):
        return event.protocol
    raw = event.malformed.raw if isinstance(event, events.MalformedEvent) else event.unparsed.raw
    return _protocol(raw, event.direction)


def _protocol(raw: bytes, direction: Direction) -> str:
    # Imported late: most captures contain no other protocol.
    from mqttscope.mqtt.foreign import foreign_protocol

    return foreign_protocol(raw, is_answer=direction is Direction.SERVER_TO_CLIENT)
