"""SUB104."""

from mqttscope.lint.context import RuleContext
from mqttscope.lint.examples import client, conversation, examples, hexadecimal, opened, server
from mqttscope.lint.finding import Severity
from mqttscope.lint.rule import V3_1, V3_1_1, V5, Findings, Rule
from mqttscope.lint.rules.subscription import faulty_filter
from mqttscope.mqtt.constants import MalformedReason
from mqttscope.mqtt.declare import FaultReport
from mqttscope.mqtt.packets import Suback, Subscribe
from mqttscope.mqtt.parts import Subscription


class SubscribeQosInvalid(Rule):
    """A SUBSCRIBE asks for QoS 3, which does not exist.

    Both QoS bits of the options byte are set.  Servers refuse the whole packet and close the connection, so that the
    other filters in it are not subscribed either.

    Instead, ask for QoS 0, 1 or 2.
    """

    code = "SUB104"
    severity = Severity.ERROR
    reason_code = 0x82
    statements = {V5: {"V5-SUBSCRIBE-qos-3": ""}, V3_1: {"V31-SUBSCRIBE-qos": ""}}
    also = {V3_1_1: ("MQTT-3.8.3-4",)}
    malformed = (MalformedReason.SUBSCRIPTION_QOS_INVALID,)

    good = examples(
        lambda: [
            conversation(
                "QoS 2 is the highest",
                *opened(),
                client(Subscribe(10, subscriptions=[Subscription("a/b", 2)])),
                server(Suback(10, reason_codes=[2])),
            )
        ]
    )
    bad = examples(
        lambda: [
            conversation(
                "both QoS bits",
                *opened(),
                client(hexadecimal("82 09 00 0a 00 00 03 61 2f 62 03")).marked("subscriptions[0].maximum_qos"),
            ),
            conversation(
                "in 3.1.1, in the second filter",
                *opened(V3_1_1),
                client(Subscribe(10, subscriptions=[Subscription("a"), Subscription("b", 3)])).marked(
                    "subscriptions[1].maximum_qos"
                ),
            ),
            conversation(
                "in 3.1",
                *opened(V3_1),
                client(Subscribe(10, subscriptions=[Subscription("a", 3)])).marked("subscriptions[0].maximum_qos"),
            ),
        ]
    )

    def check_malformed(self, fault: FaultReport, at: RuleContext) -> Findings:
        """The decoder's words, with the filter."""
        return self.report(fault.field, f"SUBSCRIBE{faulty_filter(fault.field, at)}: {fault.detail}")
