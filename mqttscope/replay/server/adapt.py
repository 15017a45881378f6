"""Adapts recorded packets of the server to the device: to its requests, its limits, its subscriptions.

Answers are the recorded ones, or conforming ones without a recorded answer.  Deliveries contain values that the device
sent in place of the recorded client's.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from mqttscope.mqtt import packets
from mqttscope.mqtt.codec import encode
from mqttscope.mqtt.constants import V3_1, V5
from mqttscope.mqtt.declare import ControlPacket, Malformed
from mqttscope.mqtt.parts import Subscription
from mqttscope.mqtt.properties import BY_NAME, EMPTY, SUBSCRIPTION_IDENTIFIER, TOPIC_ALIAS, Properties
from mqttscope.replay.live import readdressed
from mqttscope.replay.script import ScriptEntry
from mqttscope.replay.server.connection import DeviceSubscription, ServerSessionState
from mqttscope.session.connection import Connection

FAILURE = 0x80
NO_SUBSCRIPTION, NOT_FOUND = 0x11, 0x92
_ASSIGNED = BY_NAME["assigned_client_identifier"].identifier
_RESPONSE = BY_NAME["response_information"].identifier
_AUTHENTICATION = (BY_NAME["authentication_method"].identifier, BY_NAME["authentication_data"].identifier)
_CORRELATION = BY_NAME["correlation_data"].identifier
_RESPONSE_TOPIC = BY_NAME["response_topic"].identifier
MAX_SUBSTITUTES = 10_000
"""Maximum number of payloads, of topics and of Correlation Data kept per device; the oldest are dropped first."""


def connack(
    recorded: packets.Connack | None, connect: packets.Connect, *, present: bool, assigned: str | None
) -> packets.Connack:
    """CONNACK for a device: the recorded one, as far as it applies to this device (5.0 3.2).

    ``assigned``: Client Identifier for a device that has not sent one.
    """
    version = connect.version
    connack = packets.Connack() if recorded is None else copy.copy(recorded)
    flag: bool | None = present and not connack.reason_code
    if version == V3_1:
        flag = None
    block = connack.properties or EMPTY
    requested = connect.properties or EMPTY
    unwanted = {_ASSIGNED}
    if not requested.request_response_information:
        unwanted.add(_RESPONSE)
    if requested.authentication_method is None:
        unwanted.update(_AUTHENTICATION)
    items = [item for item in block.items if item[0] not in unwanted]
    if assigned is not None:
        at = next((index for index, item in enumerate(block.items) if item[0] == _ASSIGNED), len(items))
        items.insert(at, (_ASSIGNED, assigned))
    if connack.session_present != flag or tuple(items) != block.items or recorded is None:
        connack.raw = b""
    connack.session_present = flag
    connack.properties = Properties.of(items) if version >= V5 else None
    return connack


@dataclass(slots=True)
class Grants:
    """Reason Codes that the recorded server gave to a client, by Topic Filter."""

    asked: dict[str, tuple[int, int]]
    """Requested QoS and Reason Code; the last ones count."""

    @classmethod
    def of(cls, entries: Iterable[ScriptEntry]) -> Grants:
        """Collect the Reason Codes from the SUBSCRIBEs and SUBACKs of a client."""
        asked: dict[str, tuple[int, int]] = {}
        for entry in entries:
            answer, request = entry.packet, entry.answers.packet if entry.answers is not None else None
            if isinstance(answer, packets.Suback) and isinstance(request, packets.Subscribe):
                for row, code in zip(request.subscriptions, answer.reason_codes, strict=False):
                    asked[row.topic_filter] = row.maximum_qos, code
        return cls(asked)

    def code(self, row: Subscription, live: Connection) -> int:
        """The Reason Code for a Topic Filter of the device (5.0 3.9.3, 3.1.1 3.9.3)."""
        requested_qos = min(row.maximum_qos, live.maximum_qos)
        grant = self.asked.get(row.topic_filter)
        if grant is None:
            return requested_qos
        before, code = grant
        if code >= FAILURE:
            return code if live.version >= V5 else FAILURE
        return requested_qos if code >= before else min(requested_qos, code)


Exchanged = tuple[ControlPacket | Malformed, ControlPacket | Malformed]
"""A recorded request and its answer."""


def suback(request: packets.Subscribe, recorded: Exchanged | None, grants: Grants, live: Connection) -> packets.Suback:
    """SUBACK: the recorded Reason Codes if the requests are equal, else filter by filter."""
    identifier = request.packet_identifier
    codes = [grants.code(row, live) for row in request.subscriptions]
    recorded_request, answer = recorded or (None, None)
    if isinstance(recorded_request, packets.Subscribe) and isinstance(answer, packets.Suback):
        rows = [(row.topic_filter, row.maximum_qos) for row in recorded_request.subscriptions]
        if rows == [(row.topic_filter, row.maximum_qos) for row in request.subscriptions]:
            return readdressed(answer, identifier)
        if len(recorded_request.subscriptions) == len(answer.reason_codes):
            granted = zip(request.subscriptions, recorded_request.subscriptions, answer.reason_codes, strict=False)
            for position, (row, recorded_row, code) in enumerate(granted):
                if recorded_row.topic_filter == row.topic_filter:
                    # The code of this answer, since the client may have subscribed to the filter more than once.
                    codes[position] = Grants({row.topic_filter: (recorded_row.maximum_qos, code)}).code(row, live)
    return packets.Suback(identifier, EMPTY if live.version >= V5 else None, codes)


def subscribe(session: ServerSessionState, request: packets.Subscribe, answer: packets.Suback) -> None:
    """Store the granted subscriptions (5.0 MQTT-3.8.4-3)."""
    block = request.properties
    identifier = None if block is None else block.subscription_identifier
    number = identifier[0] if isinstance(identifier, list) and identifier else identifier
    for row, code in zip(request.subscriptions, answer.reason_codes, strict=False):
        if code < FAILURE:
            session.subscriptions[row.topic_filter] = DeviceSubscription(
                row, min(code, row.maximum_qos), number if isinstance(number, int) else None
            )


def unsuback(
    request: packets.Unsubscribe, recorded: Exchanged | None, session: ServerSessionState, live: Connection
) -> packets.Unsuback:
    """UNSUBACK: the recorded one if the requests are equal, else filter by filter (5.0 3.11)."""
    identifier = request.packet_identifier
    if live.version < V5:
        return packets.Unsuback(identifier)
    recorded_request, answer = recorded or (None, None)
    same = isinstance(recorded_request, packets.Unsubscribe) and recorded_request.topic_filters == request.topic_filters
    if same and isinstance(answer, packets.Unsuback) and answer.reason_codes:
        return readdressed(answer, identifier)
    codes = [0 if topic_filter in session.subscriptions else NO_SUBSCRIPTION for topic_filter in request.topic_filters]
    return packets.Unsuback(identifier, EMPTY, codes)


def acknowledgement(
    kind: type[packets.Acknowledgement], identifier: int, recorded: ControlPacket | None, live: Connection
) -> ControlPacket:
    """PUBACK, PUBREC, PUBREL or PUBCOMP as recorded; from a recorded one of another type, only its failure."""
    if isinstance(recorded, kind):
        return readdressed(recorded, identifier)
    code = getattr(recorded, "reason_code", None) or 0
    failure = code if code >= FAILURE and live.version >= V5 and kind in (packets.Puback, packets.Pubrec) else None
    return kind(identifier, failure)


@dataclass(slots=True)
class AdaptedDelivery:
    """A delivery that can be sent, or the reason why not."""

    packet: packets.Publish
    topic: str
    raw: bytes = b""
    notes: list[str] = field(default_factory=list)
    refused: str = ""


@dataclass(slots=True)
class Substitutes:
    """Values that the device sent in place of the recorded client's, and expects in deliveries."""

    messages: dict[tuple[str, bytes], bytes] = field(default_factory=dict)
    """Payloads, by the recorded topic and payload."""
    topics: dict[str, str] = field(default_factory=dict)
    """Topics of messages and responses, by the recorded topic."""
    correlation: dict[bytes, bytes] = field(default_factory=dict)
    """Correlation Data, by the recorded data."""

    def learn(self, recorded: ScriptEntry, live: ScriptEntry) -> bool:
        """Compare two messages of the client; returns whether older values were dropped."""
        before, now = recorded.packet, live.packet
        if not isinstance(before, packets.Publish) or not isinstance(now, packets.Publish):
            return False
        if recorded.topic is not None:
            self.messages.pop((recorded.topic, before.payload), None)
            if recorded.topic == live.topic and before.payload != now.payload:
                self.messages[recorded.topic, before.payload] = now.payload
        if before.properties is not None and now.properties is not None:
            response_topics = before.properties.first(_RESPONSE_TOPIC), now.properties.first(_RESPONSE_TOPIC)
            if None not in response_topics and response_topics[0] != response_topics[1]:
                self.topics[response_topics[0]] = response_topics[1]
            data = before.properties.first(_CORRELATION), now.properties.first(_CORRELATION)
            if None not in data and data[0] != data[1]:
                self.correlation[data[0]] = data[1]
        tables: tuple[dict[Any, Any], ...] = (self.messages, self.topics, self.correlation)
        full = [table for table in tables if len(table) > MAX_SUBSTITUTES]
        for table in full:
            del table[next(iter(table))]
        return bool(full)


def fit(
    entry: ScriptEntry,
    live: Connection,
    session: ServerSessionState,
    substitutes: Substitutes,
    recorded_filters: Sequence[tuple[str, int | None]],
    covering: Sequence[DeviceSubscription],
) -> AdaptedDelivery:
    """Adapt a recorded PUBLISH of the server to the device (5.0 3.3.1.2, 3.3.2.3).

    Its packet identifier is unchanged.  ``recorded_filters``: matching Topic Filters that the recorded client had
    subscribed to, with their Subscription Identifiers; ``covering``: matching subscriptions of the device.
    """
    packet = entry.packet
    assert isinstance(packet, packets.Publish)
    topic = entry.topic
    if topic is None:
        return AdaptedDelivery(packet, "", refused="PUBLISH with a Topic Alias for an unknown topic")
    adapted = copy.copy(packet)
    adapted.raw, adapted.missing = b"", 0
    fitted = AdaptedDelivery(adapted, substitutes.topics.get(topic, topic))
    adapted.payload = substitutes.messages.get((topic, packet.payload), packet.payload)
    if packet.missing:
        fitted.notes.append("payload of PUBLISH shorter than recorded: the capture lacks a part of it")
    granted = max((subscription.qos for subscription in covering), default=packet.qos)
    if granted < packet.qos:
        adapted.qos = granted
        if not granted:
            adapted.packet_identifier, adapted.dup = None, False
        fitted.notes.append("QoS of PUBLISH lowered to the QoS of the device's subscription")
    block = packet.properties
    if live.version < V5:
        adapted.properties = None
    else:
        adapted.properties = _properties(block, substitutes, session, recorded_filters, covering)
    _alias(fitted, packet, live)
    version = V5 if block is not None else live.version
    unchanged = adapted == packet and not adapted.missing and live.version == version
    # A packet without changes is sent with its recorded bytes.
    fitted.raw = entry.raw if unchanged and entry.raw and not packet.missing else encode(adapted, live.version)
    limit = live.client_side.maximum_packet_size
    if limit is not None and len(fitted.raw) > limit:
        fitted.refused = "PUBLISH longer than the device's Maximum Packet Size"
    return fitted


def _properties(
    block: Properties | None,
    substitutes: Substitutes,
    session: ServerSessionState,
    recorded_filters: Sequence[tuple[str, int | None]],
    covering: Sequence[DeviceSubscription],
) -> Properties:
    """The recorded properties with the Subscription Identifiers and Correlation Data of the device."""
    items = [
        (number, substitutes.correlation.get(value, value) if number == _CORRELATION else value)
        for number, value in (block.items if block is not None else ())
    ]
    recorded = [] if block is None else block.all(SUBSCRIPTION_IDENTIFIER)
    identifiers = dict.fromkeys(recorded)
    if covering:
        # 5.0 MQTT-3.3.4-3: the identifiers of the matching subscriptions, if there are any.
        own_identifiers = dict.fromkeys(
            live.identifier
            for name, identifier in recorded_filters
            if (identifier in identifiers or not recorded)
            and (live := session.subscriptions.get(name)) is not None
            and live.identifier is not None
        )
        others = dict.fromkeys(row.identifier for row in covering if row.identifier is not None)
        matching = {identifier: None for identifier in identifiers if identifier in others}
        identifiers = matching if len(matching) == len(identifiers) and identifiers else own_identifiers or others
    if sorted(recorded) != sorted(identifiers):
        items = [item for item in items if item[0] != SUBSCRIPTION_IDENTIFIER]
        items += [(SUBSCRIPTION_IDENTIFIER, identifier) for identifier in identifiers]
    return Properties.of(items)


def _alias(fitted: AdaptedDelivery, packet: packets.Publish, live: Connection) -> None:
    """Keep a Topic Alias within the device's limit, and set it before it is used (5.0 3.3.2.3.4)."""
    adapted, topic = fitted.packet, fitted.topic
    block = adapted.properties
    alias = None if block is None else block.topic_alias
    if block is None or alias is None:
        adapted.topic_name = topic
        return
    if not 0 < alias <= live.client_side.topic_alias_maximum:
        adapted.topic_name = topic
        adapted.properties = block.without(TOPIC_ALIAS)
        fitted.notes.append("Topic Alias replaced by its topic: above the device's Topic Alias Maximum")
    elif packet.topic_name or live.server_side.aliases.get(alias) != topic:
        if not packet.topic_name:
            fitted.notes.append("Topic Alias established again with its topic")
        adapted.topic_name = topic
