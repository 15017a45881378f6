"""Recorded packets made to fit the live server: its limits, its Topic Aliases, its packet identifiers.

Nothing is changed that need not be: a packet that fits is sent with the bytes it was recorded with.  A client that
broke a limit of the recorded server breaks that of the live one: only what kept the recorded limits is made to keep the
live ones.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from mqttscope.mqtt.codec import encode
from mqttscope.mqtt.constants import V3_1_1, ProtocolVersion
from mqttscope.mqtt.declare import ControlPacket
from mqttscope.mqtt.packets import Connect, Publish, Subscribe
from mqttscope.mqtt.properties import SUBSCRIPTION_IDENTIFIER, TOPIC_ALIAS
from mqttscope.mqtt.topics import parse_shared
from mqttscope.replay.live import Note, NoteKind, readdressed
from mqttscope.replay.script import Entry
from mqttscope.session.connection import Connection
from mqttscope.session.inflight import Side


@dataclass(slots=True)
class Fitted:
    """A packet that can be sent, or why it cannot."""

    packet: ControlPacket
    raw: bytes
    notes: list[Note] = field(default_factory=list)
    refused: Note | None = None


def _note(text: str) -> Note:
    return Note(NoteKind.ADAPTED, text)


def _refused(packet: ControlPacket, text: str) -> Fitted:
    return Fitted(packet, b"", refused=Note(NoteKind.SKIPPED, text))


def publish(entry: Entry, live: Connection, recorded: Connection, *, dup: bool | None = None) -> Fitted:
    """A PUBLISH as the live server takes it (5.0 3.2.2.3, 3.3.2.3.4).  Its packet identifier is left as it is.

    ``dup`` sets the DUP flag, where it is not to stay as it was recorded.
    """
    packet = entry.packet
    assert isinstance(packet, Publish)
    changes: dict[str, Any] = {}
    notes: list[Note] = []
    if recorded.maximum_qos >= packet.qos > live.maximum_qos:
        changes["qos"] = live.maximum_qos
        if not live.maximum_qos:
            changes |= {"packet_identifier": None, "dup": False}
        notes.append(_note("QoS of PUBLISH lowered to the server's Maximum QoS"))
    if packet.retain and recorded.retain_available and not live.retain_available:
        changes["retain"] = False
        notes.append(_note("RETAIN of PUBLISH cleared, since the server announced that it retains nothing"))
    if dup is not None:
        is_again = dup and bool(changes.get("qos", packet.qos))
        if changes.get("dup", packet.dup) != is_again:
            changes["dup"] = is_again
    block = packet.properties
    if block is not None and block.items:
        alias = block.topic_alias
        if alias is not None:
            topic = entry.topic
            if topic is None and _keeps(alias, recorded.server_side):
                return _refused(packet, "PUBLISH with a Topic Alias whose topic the recording does not show")
            if _keeps(alias, recorded.server_side) and not 0 < alias <= live.server_side.topic_alias_maximum:
                changes |= {"topic_name": topic, "properties": block.without(TOPIC_ALIAS)}
                notes.append(_note("Topic Alias replaced by its topic: above the server's Topic Alias Maximum"))
            elif topic is not None and not packet.topic_name and live.client_side.aliases.get(alias) != topic:
                changes["topic_name"] = topic
                notes.append(_note("Topic Alias established again with its topic"))
    return _in_size(_fitted(entry, packet, changes, notes, recorded.version), entry, live, recorded)


def subscribe(entry: Entry, live: Connection, recorded: Connection) -> Fitted:
    """A SUBSCRIBE as the live server takes it (5.0 3.2.2.3.11 to 3.2.2.3.13)."""
    packet = entry.packet
    assert isinstance(packet, Subscribe)
    filters = [one.topic_filter for one in packet.subscriptions]
    if _lost("wildcard_subscription_available", live, recorded) and any("+" in one or "#" in one for one in filters):
        return _refused(packet, "SUBSCRIBE with wildcards, which the server announced not to have")
    if _lost("shared_subscription_available", live, recorded) and any(parse_shared(one) for one in filters):
        return _refused(packet, "SUBSCRIBE to a shared subscription, which the server announced not to have")
    changes: dict[str, Any] = {}
    notes: list[Note] = []
    block = packet.properties
    identified = block is not None and block.first(SUBSCRIPTION_IDENTIFIER)
    if identified and block is not None and _lost("subscription_identifier_available", live, recorded):
        changes["properties"] = block.without(SUBSCRIPTION_IDENTIFIER)
        notes.append(_note("Subscription Identifier left out, since the server announced not to have them"))
    return _in_size(_fitted(entry, packet, changes, notes, recorded.version), entry, live, recorded)


def connect(
    entry: Entry, assigned: dict[str, str], user_name: str | None = None, password: bytes | None = None
) -> Fitted:
    """A CONNECT with the identifier that the live server assigned in place of a recorded one, and with credentials."""
    packet = entry.packet
    assert isinstance(packet, Connect)
    changes: dict[str, Any] = {}
    notes: list[Note] = []
    identifier = assigned.get(packet.client_identifier, packet.client_identifier)
    if identifier != packet.client_identifier:
        changes["client_identifier"] = identifier
        notes.append(_note("Client Identifier replaced by the one that the server assigned"))
    given = {"user_name": user_name, "password": password}
    if user_name is not None or password is not None:
        changes |= {name: value for name, value in given.items() if value is not None} | {"connect_flags": None}
        notes.append(_note("credentials replaced by those given"))
    return _fitted(entry, packet, changes, notes)


def _fitted(
    entry: Entry, packet: ControlPacket, changes: dict[str, Any], notes: list[Note], version: ProtocolVersion = V3_1_1
) -> Fitted:
    """The packet with other values of some fields; without any, as it was recorded."""
    if not changes:
        return Fitted(packet, entry.raw, notes)
    made = replace(packet, raw=b"", **changes)
    return Fitted(made, encode(made, version), notes)


def any_other(entry: Entry, live: Connection, recorded: Connection) -> Fitted:
    """Any other packet: as recorded, if it is not too large."""
    assert isinstance(entry.packet, ControlPacket)
    return _in_size(Fitted(entry.packet, entry.raw), entry, live, recorded)


def identified(fitted: Fitted, identifier: int, version: ProtocolVersion) -> Fitted:
    """The same with another packet identifier."""
    packet = readdressed(fitted.packet, identifier)
    if packet is not fitted.packet:
        fitted.packet, fitted.raw = packet, encode(packet, version)
    return fitted


def _keeps(alias: int, server: Side) -> bool:
    """Whether a Topic Alias is within what a server announced; where that was not seen it is."""
    return not server.limits_known or 0 < alias <= server.topic_alias_maximum


def _lost(name: str, live: Connection, recorded: Connection) -> bool:
    """Whether the live server announced not to have what the recorded one had."""
    return bool(getattr(recorded, name)) and not getattr(live, name)


def _in_size(fitted: Fitted, entry: Entry, live: Connection, recorded: Connection) -> Fitted:
    limit, before = live.server_side.maximum_packet_size, recorded.server_side.maximum_packet_size
    if limit is not None and len(fitted.raw) > limit and (before is None or len(entry.raw) <= before):
        fitted.refused = Note(NoteKind.SKIPPED, "packet longer than the server's Maximum Packet Size")
    return fitted
