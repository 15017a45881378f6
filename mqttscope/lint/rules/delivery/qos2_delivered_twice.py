"""DLV417."""

from mqttscope.lint.context import RuleContext
from mqttscope.lint.examples import Step, client, conversation, examples, on, opened, server
from mqttscope.lint.finding import Confidence, Related, Severity
from mqttscope.lint.message_model import SETTLE_NS, Messages
from mqttscope.lint.rule import ALL_VERSIONS, V3_1, V3_1_1, V5, Findings, Needs, Rule
from mqttscope.lint.rules.delivery import ALL_SUBSCRIPTIONS, message, paired, steady_match, subscriber
from mqttscope.mqtt.constants import Direction
from mqttscope.mqtt.packets import Puback, Pubcomp, Publish, Pubrec, Pubrel


def _gets(identifier: int, mark: str | None = None) -> tuple[Step, ...]:
    step = server(message(qos=2, packet_identifier=identifier))
    return on(
        1,
        step if mark is None else step.marked(mark),
        client(Pubrec(identifier)),
        server(Pubrel(identifier)),
        client(Pubcomp(identifier)),
    )


def _published(*, again: bool, identifier: int = 7) -> tuple[Step, ...]:
    repeats = [client(message(qos=2, packet_identifier=identifier, dup=True), after=5)] if again else []
    return (
        client(message(qos=2, packet_identifier=identifier), after=2),
        *repeats,
        server(Pubrec(identifier)),
        client(Pubrel(identifier)),
        server(Pubcomp(identifier)),
    )


class Qos2DeliveredTwice(Rule):
    """A message that was published once with QoS 2 reaches a subscriber twice.

    QoS 2 is what one pays four packets for so that this does not happen.  It is an error where the publisher has sent
    the same packet again, which the server has taken for another message; elsewhere another publisher that was not
    captured may have sent the same payload, which is a warning.

    Instead, keep the packet identifier of a QoS 2 message until its PUBREL, and hand the message on once.
    """

    code = "DLV417"
    severity = Severity.ERROR
    severities = (Severity.ERROR, Severity.WARNING)
    confidence = Confidence.LIKELY
    versions = ALL_VERSIONS
    statements = {V3_1: {"V31-PUBLISH-qos2-hold": ""}}
    also = {V5: ("MQTT-4.3.3-10",), V3_1_1: ("MQTT-4.3.3-2",)}
    looks_at = Publish
    sender = Direction.SERVER_TO_CLIENT
    when = "qos"
    needs = ALL_SUBSCRIPTIONS | Needs.WHOLE_SENDER
    models = (Messages,)
    about = (Messages, "topics")

    good = examples(
        lambda: [
            conversation(
                "sent again by the publisher, delivered once",
                *subscriber(granted=2),
                *opened(V3_1_1),
                *_published(again=True),
                *_gets(3),
            ),
            conversation(
                "a copy for each subscription",
                *subscriber(V5, "a", "#", granted=2),
                *opened(V3_1_1),
                *_published(again=True),
                *_gets(3),
                *_gets(4),
            ),
            conversation(
                "published twice",
                *subscriber(granted=2),
                *opened(),
                *_published(again=False),
                *_published(again=False, identifier=8),
                *_gets(3),
                *_gets(4),
            ),
            conversation(
                "delivered with QoS 1",
                *subscriber(granted=1),
                *opened(V3_1_1),
                *_published(again=False),
                *on(1, server(message()), client(Puback(1)), server(message(packet_identifier=2)), client(Puback(2))),
            ),
        ]
    )
    bad = examples(
        lambda: [
            conversation(
                "sent again by the publisher",
                *subscriber(granted=2),
                *opened(V3_1_1),
                *_published(again=True),
                *_gets(3),
                *_gets(4, "packet_identifier"),
            ),
            conversation(
                "sent again by the publisher, in 3.1",
                *subscriber(V3_1, granted=2),
                *opened(V3_1),
                *_published(again=True),
                *_gets(3),
                *_gets(4, "packet_identifier"),
            ),
            conversation(
                "published once: only a warning",
                *subscriber(granted=2),
                *opened(),
                *_published(again=False),
                *_gets(3),
                *_gets(4, "packet_identifier"),
            ),
        ]
    )

    def check(self, packet: Publish, at: RuleContext) -> Findings:
        """Count the copies that the client has got of the message, each with its packet identifier."""
        if packet.qos != 2:
            return None
        found = paired(packet, at)
        sent = None if found is None or found.retained else found.sole
        copies = None if found is None or sent is None or sent.qos != 2 else sent.copies.get(found.owner)
        if found is None or sent is None or not copies:
            return None
        match = steady_match(sent.topic, sent.timestamp_ns - SETTLE_NS, at)
        connect = at.history.connect
        if match is None or (connect is not None and connect.bridge) or at.model(Messages).hides(sent.topic):
            return None
        counted = {one.packet_identifier for one in copies if one.qos == 2 and not one.retained}
        if len(counted) < len(match.subscriptions) or packet.packet_identifier in counted:
            return None
        if any(one.key != at.key for one in copies):
            return None  # an exchange that another connection began
        first = copies[0]
        return self.report(
            "packet_identifier",
            f"message on {sent.topic!r}, published with QoS 2, reaches {found.owner!r} {len(copies) + 1} times",
            severity=None if sent.resent else Severity.WARNING,
            confidence=None if sent.resent else Confidence.HEURISTIC,
            related=(
                Related("the message as published", sent.packet, sent.frame, sent.timestamp_ns),
                Related("the message as delivered before", first.packet, first.frame, first.timestamp_ns),
            ),
        )
