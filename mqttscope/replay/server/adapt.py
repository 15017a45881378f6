"""What the recorded server said, made to fit the device: what it asked, its limits, its subscriptions.

Answers are the recorded ones, and conforming ones where the recording has none.  Deliveries carry what the device said
in the place of what the recorded client said.
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
from mqttscope.replay.script import Entry
from mqttscope.replay.server.connection import ServerSessionState, Subscribed
from mqttscope.session.connection import Connection

FAILURE = 0x80
NO_SUBSCRIPTION, NOT_FOUND = 0x11, 0x92
_ASSIGNED = BY_NAME["assigned_client_identifier"].identifier
_RESPONSE = BY_NAME["response_information"].identifier
_AUTHENTICATION = (BY_NAME["authentication_method"].identifier, BY_NAME["authentication_data"].identifier)
_CORRELATION = BY_NAME["correlation_data"].identifier
_RESPONSE_TOPIC = BY_NAME["response_topic"].identifier
MAX_SUBSTITUTES = 10_000
"""Maximum number of payloads, of topics and of Correlation Data that are kept of a device; the oldest go first."""


def connack(
    recorded: packets.Connack | None, connect: packets.Connect, *, present: bool, assigned: str | None
) -> packets.Connack:
    """CONNACK for a device: what the recorded one says, as far as it is about this device (5.0 3.2).

    ``assigned``: the Client Identifier that the device gets for want of its own.
    """
    version = connect.version
    made = packets.Connack() if recorded is None else copy.copy(recorded)
    flag: bool | None = present and not made.reason_code
    if version == V3_1:
        flag = None
    block = made.properties or EMPTY
    asked = connect.properties or EMPTY
    unwanted = {_ASSIGNED}
    if not asked.request_response_information:
        unwanted.add(_RESPONSE)
    if asked.authentication_method is None:
        unwanted.update(_AUTHENTICATION)
    items = [one for one in block.items if one[0] not in unwanted]
    if assigned is not None:
        at = next((index for index, one in enumerate(block.items) if one[0] == _ASSIGNED), len(items))
        items.insert(at, (_ASSIGNED, assigned))
    if made.session_present != flag or tuple(items) != block.items or recorded is None:
        made.raw = b""
    made.session_present = flag
    made.properties = Properties.of(items) if version >= V5 else None
    return made


@dataclass(slots=True)
class Grants:
    """What the recorded server granted to a client, by Topic Filter."""

    asked: dict[str, tuple[int, int]]
    """QoS that was asked for, and the Reason Code that was given; the last one counts."""

    @classmethod
    def of(cls, entries: Iterable[Entry]) -> Grants:
        """From the SUBSCRIBEs and SUBACKs of a client."""
        asked: dict[str, tuple[int, int]] = {}
        for entry in entries:
            answer, request = entry.packet, entry.answers.packet if entry.answers is not None else None
            if isinstance(answer, packets.Suback) and isinstance(request, packets.Subscribe):
                for row, code in zip(request.subscriptions, answer.reason_codes, strict=False):
                    asked[row.topic_filter] = row.maximum_qos, code
        return cls(asked)

    def code(self, row: Subscription, live: Connection) -> int:
        """The Reason Code for a Topic Filter of the device (5.0 3.9.3, 3.1.1 3.9.3)."""
        wanted = min(row.maximum_qos, live.maximum_qos)
        found = self.asked.get(row.topic_filter)
        if found is None:
            return wanted
        before, code = found
        if code >= FAILURE:
            return code if live.version >= V5 else FAILURE
        return wanted if code >= before else min(wanted, code)


Exchanged = tuple[ControlPacket | Malformed, ControlPacket | Malformed]
"""A recorded request and its answer."""


def suback(request: packets.Subscribe, recorded: Exchanged | None, grants: Grants, live: Connection) -> packets.Suback:
    """SUBACK: the recorded Reason Codes where the same is asked for, else filter by filter."""
    identifier = request.packet_identifier
    codes = [grants.code(row, live) for row in request.subscriptions]
    asked, answer = recorded or (None, None)
    if isinstance(asked, packets.Subscribe) and isinstance(answer, packets.Suback):
        rows = [(one.topic_filter, one.maximum_qos) for one in asked.subscriptions]
        if rows == [(one.topic_filter, one.maximum_qos) for one in request.subscriptions]:
            return readdressed(answer, identifier)
        if len(asked.subscriptions) == len(answer.reason_codes):
            granted = zip(request.subscriptions, asked.subscriptions, answer.reason_codes, strict=False)
            for position, (row, same, code) in enumerate(granted):
                if same.topic_filter == row.topic_filter:
                    # This very answer, where the client had asked for it more than once.
                    codes[position] = Grants({row.topic_filter: (same.maximum_qos, code)}).code(row, live)
    return packets.Suback(identifier, EMPTY if live.version >= V5 else None, codes)


def subscribe(session: ServerSessionState, request: packets.Subscribe, answer: packets.Suback) -> None:
    """Keep what was granted (5.0 MQTT-3.8.4-3)."""
    block = request.properties
    identifier = None if block is None else block.subscription_identifier
    number = identifier[0] if isinstance(identifier, list) and identifier else identifier
    for row, code in zip(request.subscriptions, answer.reason_codes, strict=False):
        if code < FAILURE:
            session.subscriptions[row.topic_filter] = Subscribed(
                row, min(code, row.maximum_qos), number if isinstance(number, int) else None
            )


def unsuback(
    request: packets.Unsubscribe, recorded: Exchanged | None, session: ServerSessionState, live: Connection
) -> packets.Unsuback:
    """UNSUBACK: the recorded one where the same is asked for, else filter by filter (5.0 3.11)."""
    identifier = request.packet_identifier
    if live.version < V5:
        return packets.Unsuback(identifier)
    asked, answer = recorded or (None, None)
    same = isinstance(asked, packets.Unsubscribe) and asked.topic_filters == request.topic_filters
    if same and isinstance(answer, packets.Unsuback) and answer.reason_codes:
        return readdressed(answer, identifier)
    codes = [0 if one in session.subscriptions else NO_SUBSCRIPTION for one in request.topic_filters]
    return packets.Unsuback(identifier, EMPTY, codes)


def acknowledgement(
    kind: type[packets.Acknowledgement], identifier: int, recorded: ControlPacket | None, live: Connection
) -> ControlPacket:
    """PUBACK, PUBREC, PUBREL or PUBCOMP as recorded; where the recorded one is of another type, its failure alone."""
    if isinstance(recorded, kind):
        return readdressed(recorded, identifier)
    code = getattr(recorded, "reason_code", None) or 0
    failure = code if code >= FAILURE and live.version >= V5 and kind in (packets.Puback, packets.Pubrec) else None
    return kind(identifier, failure)


@dataclass(slots=True)
class Fitted:
    """A delivery that can be sent, or why it cannot."""

    packet: packets.Publish
    topic: str
    raw: bytes = b""
    notes: list[str] = field(default_factory=list)
    refused: str = ""


@dataclass(slots=True)
class Substitutes:
    """What the device said in the place of what the recorded client said, and expects to hear again."""

    messages: dict[tuple[str, bytes], bytes] = field(default_factory=dict)
    """Payloads, by the recorded topic and payload."""
    topics: dict[str, str] = field(default_factory=dict)
    """Topics of messages and of responses."""
    correlation: dict[bytes, bytes] = field(default_factory=dict)
    """Correlation Data."""

    def learn(self, recorded: Entry, live: Entry) -> bool:
        """Compare two messages of the client; returns whether others had to be forgotten."""
        before, now = recorded.packet, live.packet
        if not isinstance(before, packets.Publish) or not isinstance(now, packets.Publish):
            return False
        if recorded.topic is not None:
            self.messages.pop((recorded.topic, before.payload), None)
            if recorded.topic == live.topic and before.payload != now.payload:
                self.messages[recorded.topic, before.payload] = now.payload
        if before.properties is not None and now.properties is not None:
            asked = before.properties.first(_RESPONSE_TOPIC), now.properties.first(_RESPONSE_TOPIC)
            if None not in asked and asked[0] != asked[1]:
                self.topics[asked[0]] = asked[1]
            data = before.properties.first(_CORRELATION), now.properties.first(_CORRELATION)
            if None not in data and data[0] != data[1]:
                self.correlation[data[0]] = data[1]
        tables: tuple[dict[Any, Any], ...] = (self.messages, self.topics, self.correlation)
        full = [table for table in tables if len(table) > MAX_SUBSTITUTES]
        for table in full:
            del table[next(iter(table))]
        return bool(full)


def fit(
    entry: Entry,
    live: Connection,
    session: ServerSessionState,
    substitutes: Substitutes,
    recorded_filters: Sequence[tuple[str, int | None]],
    covering: Sequence[Subscribed],
) -> Fitted:
    """A recorded PUBLISH of the server as the device takes it (5.0 3.3.1.2, 3.3.2.3).

    Its packet identifier is left as it is.  ``recorded_filters``: Topic Filters that the recorded client had
    subscribed to, and that match, with their Subscription Identifiers; ``covering``: those of the device.
    """
    packet = entry.packet
    assert isinstance(packet, packets.Publish)
    topic = entry.topic
    if topic is None:
        return Fitted(packet, "", refused="PUBLISH with a Topic Alias whose topic the recording does not show")
    made = copy.copy(packet)
    made.raw, made.missing = b"", 0
    fitted = Fitted(made, substitutes.topics.get(topic, topic))
    made.payload = substitutes.messages.get((topic, packet.payload), packet.payload)
    if packet.missing:
        fitted.notes.append("payload of PUBLISH shorter than recorded: the capture lacks a part of it")
    granted = max((one.qos for one in covering), default=packet.qos)
    if granted < packet.qos:
        made.qos = granted
        if not granted:
            made.packet_identifier, made.dup = None, False
        fitted.notes.append("QoS of PUBLISH lowered to that of the device's subscription")
    block = packet.properties
    if live.version < V5:
        made.properties = None
    else:
        made.properties = _properties(block, substitutes, session, recorded_filters, covering)
    _alias(fitted, packet, live)
    same = made == packet and not made.missing and live.version == (V5 if block is not None else live.version)
    # What need not be changed is sent with the bytes that it was recorded with.
    fitted.raw = entry.raw if same and entry.raw and not packet.missing else encode(made, live.version)
    limit = live.client_side.maximum_packet_size
    if limit is not None and len(fitted.raw) > limit:
        fitted.refused = "PUBLISH longer than the device's Maximum Packet Size"
    return fitted


def _properties(
    block: Properties | None,
    substitutes: Substitutes,
    session: ServerSessionState,
    recorded_filters: Sequence[tuple[str, int | None]],
    covering: Sequence[Subscribed],
) -> Properties:
    """The device's Subscription Identifiers and Correlation Data in place of the recorded ones."""
    items = [
        (number, substitutes.correlation.get(value, value) if number == _CORRELATION else value)
        for number, value in (block.items if block is not None else ())
    ]
    recorded = [] if block is None else block.all(SUBSCRIPTION_IDENTIFIER)
    wanted = dict.fromkeys(recorded)
    if covering:
        # 5.0 MQTT-3.3.4-3: the identifiers of the subscriptions that match, where there are any.
        mine = dict.fromkeys(
            live.identifier
            for name, identifier in recorded_filters
            if (identifier in wanted or not recorded)
            and (live := session.subscriptions.get(name)) is not None
            and live.identifier is not None
        )
        others = dict.fromkeys(one.identifier for one in covering if one.identifier is not None)
        kept = {one: None for one in wanted if one in others}
        wanted = kept if len(kept) == len(wanted) and wanted else mine or others
    if sorted(recorded) != sorted(wanted):
        items = [one for one in items if one[0] != SUBSCRIPTION_IDENTIFIER]
        items += [(SUBSCRIPTION_IDENTIFIER, one) for one in wanted]
    return Properties.of(items)


def _alias(fitted: Fitted, packet: packets.Publish, live: Connection) -> None:
    """A Topic Alias within what the device takes, and set before it is used (5.0 3.3.2.3.4)."""
    made, topic = fitted.packet, fitted.topic
    block = made.properties
    alias = None if block is None else block.topic_alias
    if block is None or alias is None:
        made.topic_name = topic
        return
    if not 0 < alias <= live.client_side.topic_alias_maximum:
        made.topic_name = topic
        made.properties = block.without(TOPIC_ALIAS)
        fitted.notes.append("Topic Alias replaced by its topic: above the device's Topic Alias Maximum")
    elif packet.topic_name or live.server_side.aliases.get(alias) != topic:
        if not packet.topic_name:
            fitted.notes.append("Topic Alias established again with its topic")
        made.topic_name = topic
