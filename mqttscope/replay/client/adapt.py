"""Adapts recorded packets to the live server: to its limits, Topic Aliases and packet identifiers.

A packet that needs no change is sent with its recorded bytes.  A client that broke a limit of the recorded server
breaks the live server's limit too: only packets within the recorded limits are adapted to the live ones.
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
from mqttscope.replay.live import NoteKind, ReplayNote, readdressed
from mqttscope.replay.script import ScriptEntry
from mqttscope.session.connection import Connection
from mqttscope.session.inflight import ConnectionSide


@dataclass(slots=True)
class AdaptedPacket:
    """A packet that can be sent, or the reason why not."""

    packet: ControlPacket
    raw: bytes
    notes: list[ReplayNote] = field(default_factory=list)
    refused: ReplayNote | None = None


def _note(text: str) -> ReplayNote:
    return ReplayNote(NoteKind.ADAPTED, text)


def _refused(packet: ControlPacket, text: str) -> AdaptedPacket:
    return AdaptedPacket(packet, b"", refused=ReplayNote(NoteKind.SKIPPED, text))


def publish(entry: ScriptEntry, live: Connection, recorded: Connection, *, dup: bool | None = None) -> AdaptedPacket:
    """Adapt a PUBLISH to the live server (5.0 3.2.2.3, 3.3.2.3.4); its packet identifier is unchanged.

    ``dup`` sets the DUP flag; ``None`` keeps the recorded one.
    """
    packet = entry.packet
    assert isinstance(packet, Publish)
    changes: dict[str, Any] = {}
    notes: list[ReplayNote] = []
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
            if topic is None and _is_within_limit(alias, recorded.server_side):
                return _refused(packet, "PUBLISH with a Topic Alias for an unknown topic")
            if _is_within_limit(alias, recorded.server_side) and not 0 < alias <= live.server_side.topic_alias_maximum:
                changes |= {"topic_name": topic, "properties": block.without(TOPIC_ALIAS)}
                notes.append(_note("Topic Alias replaced by its topic: above the server's Topic Alias Maximum"))
            elif topic is not None and not packet.topic_name and live.client_side.aliases.get(alias) != topic:
                changes["topic_name"] = topic
                notes.append(_note("Topic Alias established again with its topic"))
    return _in_size(_fitted(entry, packet, changes, notes, recorded.version), entry, live, recorded)


def subscribe(entry: ScriptEntry, live: Connection, recorded: Connection) -> AdaptedPacket:
    """Adapt a SUBSCRIBE to the live server (5.0 3.2.2.3.11 to 3.2.2.3.13)."""
    packet = entry.packet
    assert isinstance(packet, Subscribe)
    filters = [subscription.topic_filter for subscription in packet.subscriptions]
    has_wildcards = any("+" in topic_filter or "#" in topic_filter for topic_filter in filters)
    if has_wildcards and _is_withdrawn("wildcard_subscription_available", live, recorded):
        return _refused(packet, "SUBSCRIBE with wildcards, which the server announced not to support")
    if _is_withdrawn("shared_subscription_available", live, recorded) and any(map(parse_shared, filters)):
        return _refused(packet, "SUBSCRIBE to a shared subscription, which the server announced not to support")
    changes: dict[str, Any] = {}
    notes: list[ReplayNote] = []
    block = packet.properties
    identified = block is not None and block.first(SUBSCRIPTION_IDENTIFIER)
    if identified and block is not None and _is_withdrawn("subscription_identifier_available", live, recorded):
        changes["properties"] = block.without(SUBSCRIPTION_IDENTIFIER)
        notes.append(_note("Subscription Identifier left out, since the server announced not to support them"))
    return _in_size(_fitted(entry, packet, changes, notes, recorded.version), entry, live, recorded)


def connect(
    entry: ScriptEntry, assigned: dict[str, str], user_name: str | None = None, password: bytes | None = None
) -> AdaptedPacket:
    """Adapt a CONNECT: use the Client Identifier that the live server assigned, and the given credentials."""
    packet = entry.packet
    assert isinstance(packet, Connect)
    changes: dict[str, Any] = {}
    notes: list[ReplayNote] = []
    identifier = assigned.get(packet.client_identifier, packet.client_identifier)
    if identifier != packet.client_identifier:
        changes["client_identifier"] = identifier
        notes.append(_note("Client Identifier replaced by the one that the server assigned"))
    credentials = {"user_name": user_name, "password": password}
    if user_name is not None or password is not None:
        changes |= {name: value for name, value in credentials.items() if value is not None} | {"connect_flags": None}
        notes.append(_note("credentials replaced by the given ones"))
    return _fitted(entry, packet, changes, notes)


def _fitted(
    entry: ScriptEntry,
    packet: ControlPacket,
    changes: dict[str, Any],
    notes: list[ReplayNote],
    version: ProtocolVersion = V3_1_1,
) -> AdaptedPacket:
    """The packet with other values of some fields; with its recorded bytes if nothing changes."""
    if not changes:
        return AdaptedPacket(packet, entry.raw, notes)
    adapted = replace(packet, raw=b"", **changes)
    return AdaptedPacket(adapted, encode(adapted, version), notes)


def any_other(entry: ScriptEntry, live: Connection, recorded: Connection) -> AdaptedPacket:
    """Any other packet as recorded, unless it is too long."""
    assert isinstance(entry.packet, ControlPacket)
    return _in_size(AdaptedPacket(entry.packet, entry.raw), entry, live, recorded)


def identified(fitted: AdaptedPacket, identifier: int, version: ProtocolVersion) -> AdaptedPacket:
    """Set another packet identifier."""
    packet = readdressed(fitted.packet, identifier)
    if packet is not fitted.packet:
        fitted.packet, fitted.raw = packet, encode(packet, version)
    return fitted


def _is_within_limit(alias: int, server: ConnectionSide) -> bool:
    """Whether a Topic Alias is within the limit that a server announced, or that limit is unknown."""
    return not server.limits_known or 0 < alias <= server.topic_alias_maximum


def _is_withdrawn(name: str, live: Connection, recorded: Connection) -> bool:
    """Whether the recorded server supported a feature that the live one announced not to support."""
    return bool(getattr(recorded, name)) and not getattr(live, name)


def _in_size(fitted: AdaptedPacket, entry: ScriptEntry, live: Connection, recorded: Connection) -> AdaptedPacket:
    limit, before = live.server_side.maximum_packet_size, recorded.server_side.maximum_packet_size
    if limit is not None and len(fitted.raw) > limit and (before is None or len(entry.raw) <= before):
        fitted.refused = ReplayNote(NoteKind.SKIPPED, "packet longer than the server's Maximum Packet Size")
    return fitted
