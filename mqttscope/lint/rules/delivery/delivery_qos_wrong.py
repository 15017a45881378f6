"""DLV411."""

import zlib
from dataclasses import dataclass, field

from mqttscope.lint.broker_watch import SECOND_NS
from mqttscope.lint.context import ConnectionKey, RuleContext
from mqttscope.lint.examples import client, conversation, examples, on, opened, server
from mqttscope.lint.finding import Confidence, Related, Report, Severity
from mqttscope.lint.message_model import MAX_OF_TOPIC, MAX_WAITING, SETTLE_NS, Messages, Sent
from mqttscope.lint.rule import ALL_VERSIONS, V3_1, V3_1_1, V5, Findings, Rule
from mqttscope.lint.rules.delivery import (
    ALL_SUBSCRIPTIONS,
    filters_of,
    message,
    paired,
    publishes,
    steady_match,
    subscriber,
)
from mqttscope.mqtt.constants import Direction
from mqttscope.mqtt.packets import Pingreq, Puback, Publish, Suback, Subscribe
from mqttscope.mqtt.parts import Subscription
from mqttscope.session.connection import Connection

MAX_LOWER = 64
"""Deliveries of one connection that may be followed by one with the right QoS."""


@dataclass(slots=True)
class Other:
    """A delivery with another QoS than expected."""

    sent: Sent
    qos: int
    expected: int
    filters: str
    packet: int
    frame: int
    timestamp_ns: int


@dataclass(slots=True)
class Others:
    """Those of each connection, by topic and checksum, in the order of their times."""

    by_connection: dict[ConnectionKey, dict[tuple[str, int], Other]] = field(default_factory=dict)


_TWO = on(
    1,
    *opened(client_identifier="c2"),
    client(Subscribe(1, subscriptions=[Subscription("a/#", 0), Subscription("a", 1)])),
    server(Suback(1, reason_codes=[0, 1])),
)
_ACKED = client(Puback(1))
_LATER = on(1, client(Pingreq(), after=12))
_FOUND = on(1, client(Pingreq(), after=12).marked("", at=None))


class DeliveryQosWrong(Rule):
    """A message is delivered with another QoS than the lower one of published and granted.

    A lower QoS loses messages that both sides wanted to be safe; a higher one makes acknowledgments that nobody asked
    for.  With several matching subscriptions there may be a copy for each, and one of them has to have the highest
    granted QoS.  So the rule waits for other copies before it says anything: they may also be those of another
    publisher, whom nobody captured.

    Instead, send with the lower one of the published QoS and the highest granted one.
    """

    code = "DLV411"
    severity = Severity.ERROR
    confidence = Confidence.LIKELY
    versions = ALL_VERSIONS
    statements = {
        V5: {"MQTT-3.3.4-2": ""},
        V3_1_1: {"MQTT-3.3.5-1": ""},
        V3_1: {"V31-PUBLISH-retained-original-qos": ""},
    }
    also = {V5: ("MQTT-3.8.4-8",), V3_1_1: ("MQTT-3.8.4-6",)}
    looks_at = Publish
    sender = Direction.SERVER_TO_CLIENT
    needs = ALL_SUBSCRIPTIONS
    settings = {"timeout": 10}
    models = (Messages,)
    Memory = Others

    good = examples(
        lambda: [
            conversation(
                "as granted, and as published",
                *subscriber(),
                *opened(),
                *publishes(message()),
                *on(1, server(message()), _ACKED),
                *publishes(message(b"other", qos=0)),
                *on(1, server(message(b"other", qos=0))),
                *_LATER,
            ),
            conversation(
                "a copy for each subscription",
                *_TWO,
                *opened(),
                *publishes(message()),
                *on(1, server(message(qos=0)), server(message()), _ACKED),
                *_LATER,
            ),
            conversation(
                "the copy with the right QoS comes when the message is forgotten",
                *_TWO,
                *opened(),
                *publishes(message()),
                *on(1, server(message(qos=0))),
                *publishes(*(message(f"{number}".encode(), qos=0) for number in range(2 * MAX_OF_TOPIC))),
                *on(1, server(message()), _ACKED),
                *_LATER,
            ),
            conversation(
                "of another publisher too, who was not captured",
                *subscriber(),
                *opened(),
                *publishes(message()),
                *on(1, server(message(qos=0)), server(message()), _ACKED),
                *_LATER,
            ),
            conversation(
                "retained",
                *opened(),
                *publishes(message(retain=True)),
                *subscriber(V5, granted=0),
                *on(1, server(message(qos=0, retain=True))),
                *_LATER,
            ),
            conversation(
                "the subscription has changed since",
                *subscriber(),
                *opened(),
                *publishes(message()),
                *on(
                    1,
                    client(Subscribe(2, subscriptions=[Subscription("a", 0)])),
                    server(Suback(2, reason_codes=[0])),
                    server(message(qos=0)),
                ),
                *_LATER,
            ),
            conversation(
                "the same payload with different QoS",
                *subscriber(),
                *opened(),
                *publishes(message(), message(qos=0)),
                *on(1, server(message(qos=0))),
                *_LATER,
            ),
        ]
    )
    bad = examples(
        lambda: [
            conversation(
                "QoS 0 of two that match",
                *_TWO,
                *opened(),
                *publishes(message()),
                *on(1, server(message(qos=0))),
                *_FOUND,
            ),
            conversation(
                "lower than published and granted, in 3.1.1",
                *subscriber(V3_1_1),
                *opened(V3_1_1),
                *publishes(message()),
                *on(1, server(message(qos=0))),
                *_FOUND,
            ),
            conversation(
                "higher than published",
                *subscriber(),
                *opened(),
                *publishes(message(qos=0)),
                *on(1, server(message()), _ACKED),
                *_FOUND,
            ),
        ]
    )

    def check(self, packet: Publish, at: RuleContext) -> Findings:
        """Note a delivery with another QoS, and forget it where one with the right QoS comes."""
        memory: Others = at.memory(self)
        others = memory.by_connection.get(at.key)
        if others and at.topic is not None:
            # The message may be forgotten by now: a copy is one by topic and payload alone.
            name = at.topic, zlib.crc32(packet.payload)
            waiting = others.get(name)
            if waiting is not None and waiting.expected == packet.qos:
                del others[name]
        found = paired(packet, at)
        if found is None or found.retained or packet.qos > 2:
            return None
        sent = found.candidates[-1]
        if any(one.qos != sent.qos or one.crowded for one in found.candidates):
            return None
        match = at.history.subscriptions.match(sent.topic)
        expected = min(sent.qos, match.granted_qos)
        if packet.qos == expected:
            return None
        name = sent.topic, sent.checksum
        if steady_match(sent.topic, found.candidates[0].timestamp_ns - SETTLE_NS, at) is None:
            return None
        if any(one.is_shared for one in match.subscriptions) and len(match.subscriptions) > 1:
            return None
        if others is None:
            if len(memory.by_connection) >= MAX_WAITING:
                return None
            others = memory.by_connection[at.key] = {}
        if name in others or len(others) >= MAX_LOWER:
            return None
        if at.client_name in sent.copies:
            return None  # it has got one before
        filters = filters_of(match.subscriptions)
        others[name] = Other(sent, packet.qos, expected, filters, at.number, at.event.frame, at.timestamp_ns)
        at.ask(self, at.timestamp_ns + self._patience_ns)
        return None

    @property
    def _patience_ns(self) -> int:
        return round(float(self.set["timeout"]) * SECOND_NS)

    def check_due(self, connection: Connection, at: RuleContext) -> Findings:
        """Judge those that no other delivery has followed."""
        memory: Others = at.memory(self)
        others = memory.by_connection.get(at.key, {})
        found = []
        for name, one in list(others.items()):
            due_ns = one.timestamp_ns + self._patience_ns
            if due_ns > at.timestamp_ns:
                at.ask(self, due_ns)
                break
            del others[name]
            if not at.model(Messages).hides(one.sent.topic) and not one.sent.refused:
                found.append(self._judge(one, at))
        if not others:
            memory.by_connection.pop(at.key, None)
        return found

    def _judge(self, one: Other, at: RuleContext) -> Report:
        sent = one.sent
        return self.report(
            "",
            f"message on {sent.topic!r} published with QoS {sent.qos} was delivered to {at.client_name!r} "
            f"({one.filters}) with QoS {one.qos}, not {one.expected}",
            related=(
                Related("the message as published", sent.packet, sent.frame, sent.timestamp_ns),
                Related("the message as delivered", one.packet, one.frame, one.timestamp_ns),
            ),
            sender=self.sender,
            overdue=True,
            topic=sent.topic,
        )

    def check_close(self, connection: Connection, at: RuleContext) -> Findings:
        """What was due by now has been judged."""
        memory: Others = at.memory(self)
        memory.by_connection.pop(at.key, None)
        return None
