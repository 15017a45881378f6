"""DLV202."""

from mqttscope.lint.context import RuleContext
from mqttscope.lint.examples import client, conversation, examples, opened, server
from mqttscope.lint.finding import Related, Severity
from mqttscope.lint.rule import V3_1, V3_1_1, V5, Findings, Rule
from mqttscope.lint.rules.delivery import ALL_SUBSCRIPTIONS, filters_of
from mqttscope.mqtt.constants import Direction
from mqttscope.mqtt.packets import Puback, Publish, Pubrec, Suback, Subscribe, Unsuback, Unsubscribe
from mqttscope.mqtt.parts import Subscription

_QOS_0 = (client(Subscribe(10, subscriptions=[Subscription("a", 0)])), server(Suback(10, reason_codes=[0])))
_QOS_1 = (client(Subscribe(10, subscriptions=[Subscription("a", 1)])), server(Suback(10, reason_codes=[1])))
_MESSAGE = Publish(qos=1, topic_name="a", packet_identifier=1)


class DeliveryQosAboveGranted(Rule):
    """A client gets a message with a higher QoS than the server granted its subscription.

    The granted QoS is the most that the client has to handle.  A client that subscribed with QoS 0 may have no way to
    acknowledge, and then the message blocks the server's window.  With several matching subscriptions the highest
    counts; while a subscription is replaced or ended, the old QoS still does.  In MQTT 3.1 retained messages keep the
    QoS they were published with.

    Instead, send with the lower one of the published and the granted QoS.
    """

    code = "DLV202"
    severity = Severity.ERROR
    statements = {V5: {"MQTT-3.8.4-8": "", "MQTT-4.8.2-3": ""}, V3_1_1: {"MQTT-3.8.4-6": ""}}
    also = {V5: ("MQTT-3.9.3-1",)}
    looks_at = Publish
    sender = Direction.SERVER_TO_CLIENT
    when = "qos"
    signs = ("above_granted",)
    needs = ALL_SUBSCRIPTIONS

    good = examples(
        lambda: [
            conversation("as granted", *opened(), *_QOS_1, server(_MESSAGE), client(Puback(1))),
            conversation(
                "the highest of several counts",
                *opened(),
                client(Subscribe(10, subscriptions=[Subscription("a", 0), Subscription("#", 1)])),
                server(Suback(10, reason_codes=[0, 1])),
                server(_MESSAGE),
                client(Puback(1)),
            ),
            conversation(
                "sent before the SUBACK",
                *opened(V3_1_1),
                client(Subscribe(10, subscriptions=[Subscription("a", 1)])),
                server(_MESSAGE, Suback(10, reason_codes=[0])),
                client(Puback(1)),
            ),
            conversation(
                "the subscription is being replaced",
                *opened(),
                *_QOS_1,
                client(Subscribe(11, subscriptions=[Subscription("a", 0)])),
                server(_MESSAGE),
                client(Puback(1)),
                server(Suback(11, reason_codes=[0])),
            ),
            conversation(
                "queued for a subscription that is over",
                *opened(),
                client(Subscribe(10, subscriptions=[Subscription("a", 0), Subscription("#", 1)])),
                server(Suback(10, reason_codes=[0, 1])),
                client(Unsubscribe(11, topic_filters=["#"])),
                server(Unsuback(11, reason_codes=[0])),
                server(_MESSAGE),
                client(Puback(1)),
            ),
            conversation(
                "a retained message in 3.1",
                *opened(V3_1),
                *_QOS_0,
                server(Publish(qos=1, topic_name="a", packet_identifier=1, retain=True, payload=b"x")),
                client(Puback(1)),
            ),
            conversation(
                "a session from before may have another subscription",
                *opened(V3_1_1, clean_start=False, session_present=True),
                *_QOS_0,
                server(_MESSAGE),
                client(Puback(1)),
            ),
        ]
    )
    bad = examples(
        lambda: [
            conversation(
                "QoS 1 where 0 was granted", *opened(), *_QOS_0, server(_MESSAGE).marked("qos"), client(Puback(1))
            ),
            conversation(
                "granted lower than requested, in 3.1.1",
                *opened(V3_1_1),
                client(Subscribe(10, subscriptions=[Subscription("a", 2)])),
                server(Suback(10, reason_codes=[1])),
                server(Publish(qos=2, topic_name="a", packet_identifier=1)).marked("qos"),
                client(Pubrec(1)),
            ),
            conversation(
                "a Shared Subscription",
                *opened(),
                client(Subscribe(10, subscriptions=[Subscription("$share/g/a", 0)])),
                server(Suback(10, reason_codes=[0])),
                server(_MESSAGE).marked("qos"),
                client(Puback(1)),
            ),
            conversation("in 3.1", *opened(V3_1), *_QOS_0, server(_MESSAGE).marked("qos"), client(Puback(1))),
        ]
    )

    def check(self, packet: Publish, at: RuleContext) -> Findings:
        """Compare with the highest QoS of all that the topic belongs to."""
        topic = at.topic
        if topic is None:
            return None
        table = at.history.subscriptions
        found = table.found.get(topic) or table.match(topic)
        if packet.qos <= found.highest_qos or not found.subscriptions or not found.known:
            return None
        if packet.qos > 2 or (packet.retain and at.version is V3_1):
            return None
        broken: tuple[str, ...] | None = None
        if at.version is V5:
            shared = any(one.is_shared for one in found.subscriptions)
            broken = ("MQTT-3.8.4-8", "MQTT-4.8.2-3") if shared else ("MQTT-3.8.4-8",)
        first = found.subscriptions[0]
        return self.report(
            "qos",
            f"PUBLISH {topic!r} to {at.client_name!r} has QoS {packet.qos}, granted was at most "
            f"{found.highest_qos} ({filters_of(found.subscriptions)})",
            statements=broken,
            related=(Related("the SUBSCRIBE", first.packet, first.frame, first.timestamp_ns),),
        )
