"""Recorded deliveries made to fit the device: its limits, its subscriptions, what it said in place of the recorded."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, field

from mqttscope.mqtt.codec import encode
from mqttscope.mqtt.constants import V5
from mqttscope.mqtt.packets import Publish
from mqttscope.mqtt.properties import BY_NAME, Properties
from mqttscope.replay.script import Entry
from mqttscope.replay.stand_in.connection_matching import Session, Subscribed
from mqttscope.session.connection import Connection

ALIAS = BY_NAME["topic_alias"].identifier
SUBSCRIPTION = BY_NAME["subscription_identifier"].identifier
CORRELATION = BY_NAME["correlation_data"].identifier
RESPONSE_TOPIC = BY_NAME["response_topic"].identifier
MAX_SUBSTITUTES = 10_000


@dataclass(slots=True)
class Fitted:
    """A delivery that can be sent, or why it cannot."""

    packet: Publish
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

    def learn(self, recorded: Entry, live: Entry) -> None:
        """Compare two messages of the client."""
        before, now = recorded.packet, live.packet
        if not isinstance(before, Publish) or not isinstance(now, Publish) or len(self.messages) >= MAX_SUBSTITUTES:
            return
        if recorded.topic is not None and recorded.topic == live.topic and before.payload != now.payload:
            self.messages[recorded.topic, before.payload] = now.payload
        elif recorded.topic is not None:
            self.messages.pop((recorded.topic, before.payload), None)
        if before.properties is None or now.properties is None:
            return
        asked = before.properties.first(RESPONSE_TOPIC), now.properties.first(RESPONSE_TOPIC)
        if None not in asked and asked[0] != asked[1]:
            self.topics[asked[0]] = asked[1]
        data = before.properties.first(CORRELATION), now.properties.first(CORRELATION)
        if None not in data and data[0] != data[1]:
            self.correlation[data[0]] = data[1]


def fit(
    entry: Entry,
    live: Connection,
    session: Session,
    substitutes: Substitutes,
    recorded_filters: Sequence[tuple[str, int | None]],
    covering: Sequence[Subscribed],
) -> Fitted:
    """A recorded PUBLISH of the server as the device takes it (5.0 3.3.1.2, 3.3.2.3).

    Its packet identifier is left as it is.  ``recorded_filters``: Topic Filters that the recorded client had
    subscribed to, and that match, with their Subscription Identifiers; ``covering``: those of the device.
    """
    packet = entry.packet
    assert isinstance(packet, Publish)
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
    session: Session,
    recorded_filters: Sequence[tuple[str, int | None]],
    covering: Sequence[Subscribed],
) -> Properties:
    """The device's Subscription Identifiers and Correlation Data in place of the recorded ones."""
    items = []
    for number, value in block.items if block is not None else ():
        if number == CORRELATION:
            items.append((number, substitutes.correlation.get(value, value)))
        elif number != SUBSCRIPTION:
            items.append((number, value))
    recorded = [] if block is None else block.all(SUBSCRIPTION)
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
    items += [(SUBSCRIPTION, one) for one in wanted]
    if block is not None and sorted(recorded) == sorted(wanted):
        # In the order in which they stood.
        return Properties.of(
            (number, substitutes.correlation.get(value, value) if number == CORRELATION else value)
            for number, value in block.items
        )
    return Properties.of(items)


def _alias(fitted: Fitted, packet: Publish, live: Connection) -> None:
    """A Topic Alias within what the device takes, and set before it is used (5.0 3.3.2.3.4)."""
    made, topic = fitted.packet, fitted.topic
    block = made.properties
    alias = None if block is None else block.first(ALIAS)
    if block is None or alias is None:
        made.topic_name = topic
        return
    if not 0 < alias <= live.client_side.topic_alias_maximum:
        made.topic_name = topic
        made.properties = Properties.of(one for one in block.items if one[0] != ALIAS)
        fitted.notes.append("Topic Alias replaced by its topic: above the device's Topic Alias Maximum")
    elif packet.topic_name or live.server_side.aliases.get(alias) != topic:
        if not packet.topic_name:
            fitted.notes.append("Topic Alias established anew with its topic")
        made.topic_name = topic
