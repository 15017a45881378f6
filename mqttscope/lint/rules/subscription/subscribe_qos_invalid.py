"""SUB104."""

from mqttscope.lint.context import RuleContext
from mqttscope.lint.examples import examples
from mqttscope.lint.finding import Severity
from mqttscope.lint.rule import V3_1, V3_1_1, V5, Findings, Rule
from mqttscope.lint.rules.subscription import faulty_filter
from mqttscope.mqtt.constants import MalformedReason
from mqttscope.mqtt.declare import FaultReport


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

    good = examples("""
        QoS 2 is the highest
            opened; > subscribe 10 a/b:2; < suback 10 2
    """)
    bad = examples("""
        both QoS bits
            opened; > raw 82 09 000a00 0003 "a/b" 03 !subscriptions[0].maximum_qos
        in 3.1.1, in the second filter
            opened 3.1.1; > subscribe 10 a:0 b:3 !subscriptions[1].maximum_qos
        in 3.1
            opened 3.1; > subscribe 10 a:3 !subscriptions[0].maximum_qos
    """)

    def check_malformed(self, fault: FaultReport, at: RuleContext) -> Findings:
        """The decoder's words, with the filter."""
        return self.report(fault.field, f"SUBSCRIBE{faulty_filter(fault.field, at)}: {fault.detail}")
