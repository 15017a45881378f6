"""Events as reports may show them: asterisks in the place of secrets, and where they are.

`redact` knows what is secret; here it is taken out of packets before a report gets them.  What a report has to say of
bytes that it does not get is found before they are hidden: which other protocol they are of.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from mqttscope.events import Event, MalformedEvent, PacketEvent, UnparsedEvent
from mqttscope.lint.engine import foreign_protocol
from mqttscope.mqtt.packets import Connect
from mqttscope.redact.packets import (
    Ranges,
    covered,
    hidden_in_damaged,
    hidden_in_packet,
    hidden_in_unparsed,
    visible_fields,
)
from mqttscope.redact.values import public, public_damaged


@dataclass(slots=True)
class PublicPacket(PacketEvent):
    """A packet of which something is hidden."""

    hidden: Ranges = field(default_factory=list)
    """Ranges of its bytes that are asterisks."""


@dataclass(slots=True)
class PublicMalformed(MalformedEvent):
    """A malformed packet as it may be shown."""

    hidden: Ranges = field(default_factory=list)
    visible: tuple[str, ...] = ()
    """Fields that were read and may be shown."""
    protocol: str = ""
    """Which other protocol its bytes are of, empty where they may be MQTT."""


@dataclass(slots=True)
class PublicUnparsed(UnparsedEvent):
    """Bytes that are no packet, as they may be shown."""

    hidden: Ranges = field(default_factory=list)
    protocol: str = ""
    """As in `PublicMalformed`."""


def public_event(event: Event) -> Event:
    """An event without its secrets; itself where it has none.  Its connection is in the state before it."""
    if isinstance(event, PacketEvent):
        return public_packet(event)
    if isinstance(event, MalformedEvent):
        return public_malformed(event)
    return public_unparsed(event) if isinstance(event, UnparsedEvent) else event


def public_packet(event: PacketEvent) -> PacketEvent:
    """A packet without its secrets; itself where it has none."""
    packet, connection = event.packet, event.connection
    version = packet.version if isinstance(packet, Connect) else connection.version
    hidden = hidden_in_packet(packet, version, connection.side(event.direction).doubt)
    if not hidden:
        return event
    return PublicPacket(
        connection, event.direction, event.number, event.frame, event.timestamp_ns, event.capture,
        public(packet, hidden), event.topic, event.stream_offset, hidden,
    )  # fmt: skip


def public_malformed(event: MalformedEvent) -> PublicMalformed:
    """A malformed packet without what may be of a secret."""
    found, connection = event.malformed, event.connection
    version = connection.version
    hidden = hidden_in_damaged(found.raw, version, connection.side(event.direction).doubt)
    visible = visible_fields(found.fields_read, found.raw, version, hidden)
    shown = public_damaged(found, hidden, version) if hidden else found
    return PublicMalformed(
        connection, event.direction, event.number, event.frame, event.timestamp_ns, event.capture, shown, event.topic,
        event.stream_offset, hidden, visible, foreign_protocol(found.raw),
    )  # fmt: skip


def public_unparsed(event: UnparsedEvent) -> PublicUnparsed:
    """Bytes that are no packet without what may be of a secret."""
    found, connection = event.unparsed, event.connection
    hidden = hidden_in_unparsed(found, connection.version, connection.side(event.direction).doubt)
    shown = replace(found, raw=covered(found.raw, hidden)) if hidden else found
    return PublicUnparsed(
        connection, event.direction, event.frame, event.timestamp_ns, event.capture, shown, event.stream_offset,
        hidden, foreign_protocol(found.raw),
    )  # fmt: skip


def hidden_of(event: PacketEvent | MalformedEvent | UnparsedEvent) -> Ranges:
    """Ranges of the bytes of an event that are asterisks."""
    return event.hidden if isinstance(event, PublicPacket | PublicMalformed | PublicUnparsed) else []


def fields_shown(event: MalformedEvent) -> tuple[str, ...]:
    """The fields of a malformed packet that were read and may be shown."""
    return event.visible if isinstance(event, PublicMalformed) else tuple(event.malformed.fields_read)


def protocol_of(event: MalformedEvent | UnparsedEvent) -> str:
    """Which other protocol the bytes of an event are of, empty where they may be MQTT."""
    if isinstance(event, PublicMalformed | PublicUnparsed):
        return event.protocol
    return foreign_protocol(event.malformed.raw if isinstance(event, MalformedEvent) else event.unparsed.raw)
