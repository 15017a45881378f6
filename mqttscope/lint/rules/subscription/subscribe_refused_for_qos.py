"""SUB216."""

from mqttscope.lint.context import RuleContext
from mqttscope.lint.examples import client, conversation, examples, opened, server
from mqttscope.lint.finding import Related, Severity
from mqttscope.lint.rule import V5, Findings, Needs, Rule
from mqttscope.mqtt.constants import Direction
from mqttscope.mqtt.packets import Disconnect, Publish, Suback, Subscribe
from mqttscope.mqtt.parts import Subscription
from mqttscope.mqtt.properties import Properties

_QOS_2 = Subscribe(10, subscriptions=[Subscription("a", 2)])


class SubscribeRefusedForQos(Rule):
    """A server disconnects with 0x9B because of the QoS that a SUBSCRIBE asks for.

    A server that does not support QoS 1 or 2 has to accept such a SUBSCRIBE all the same and to grant what it has.
    Reason code 0x9B (QoS not supported) is for messages that are published with too high a QoS.

    Instead, answer with a SUBACK that grants the highest supported QoS.
    """

    code = "SUB216"
    severity = Severity.ERROR
    versions = (V5,)
    statements = {V5: {"MQTT-3.2.2-10": ""}}
    looks_at = Disconnect
    sender = Direction.SERVER_TO_CLIENT
    needs = Needs.OPENING | Needs.WHOLE_RECEIVER

    good = examples(
        lambda: [
            conversation(
                "granted lower",
                *opened(connack=Properties(maximum_qos=0)),
                client(_QOS_2),
                server(Suback(10, reason_codes=[0])),
            ),
        ]
    )
    bad = examples(
        lambda: [
            conversation(
                "disconnected instead of granted lower",
                *opened(connack=Properties(maximum_qos=0)),
                client(_QOS_2),
                server(Disconnect(0x9B)).marked("reason_code"),
            ),
            conversation(
                "no Maximum QoS announced",
                *opened(),
                client(_QOS_2),
                server(Disconnect(0x9B)).marked("reason_code"),
            ),
            conversation(
                "a message of QoS 1 that was within the limit",
                *opened(connack=Properties(maximum_qos=1)),
                client(Publish(qos=1, topic_name="b", packet_identifier=1), _QOS_2),
                server(Disconnect(0x9B)).marked("reason_code"),
            ),
        ]
    )

    def check(self, packet: Disconnect, at: RuleContext) -> Findings:
        """The next thing a server sends after a SUBSCRIBE, and no PUBLISH that explains it."""
        if packet.reason_code != 0x9B:
            return None
        maximum = at.connection.maximum_qos
        limit = maximum if maximum < 2 else 0
        last = at.sender.last_timestamp_ns or 0
        asked = None
        for exchange in at.receiver.exchanges.values():
            if exchange.kind == "publish" and exchange.qos > limit:
                return None
            if exchange.kind == "subscribe" and exchange.timestamp_ns >= last:
                found = at.history.subscriptions.request_for(exchange.packet_identifier, "subscribe")
                if found is not None and any(qos > limit for qos in found.maximum_qos):
                    asked = found
        if asked is None:
            return None
        return self.report(
            "reason_code",
            f"DISCONNECT 0x9B (QoS not supported) answers a SUBSCRIBE for QoS {max(asked.maximum_qos)}, "
            f"the server's Maximum QoS is {maximum}",
            related=(Related("the SUBSCRIBE", asked.packet, asked.frame, asked.timestamp_ns),),
        )
