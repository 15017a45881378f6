"""WIL102."""

from mqttscope.lint.context import RuleContext
from mqttscope.lint.examples import examples
from mqttscope.lint.finding import Severity
from mqttscope.lint.rule import V3_1, V3_1_1, V5, Findings, Rule
from mqttscope.mqtt.constants import MalformedReason
from mqttscope.mqtt.declare import FaultReport


class WillQosInvalid(Rule):
    """A CONNECT asks for Will QoS 3.

    There is no QoS 3: the server closes the connection, in 5.0 as a malformed packet.

    Instead, use Will QoS 0, 1 or 2, and 0 without a will.
    """

    code = "WIL102"
    severity = Severity.ERROR
    reason_code = 0x81
    statements = {V5: {"MQTT-3.1.2-12": ""}, V3_1_1: {"MQTT-3.1.2-14": ""}, V3_1: {"V31-CONNECT-will-qos": ""}}
    malformed = (MalformedReason.WILL_QOS_INVALID,)

    good = examples("""
        Will QoS 2
            opened will=w will_payload=x will_qos=2
        Will QoS 1 in 3.1
            opened 3.1 will=w will_payload=x will_qos=1
    """)
    bad = examples("""
        Will QoS 3
            > raw 10 16 0004 "MQTT" 051e003c00 0002 "c1" 00 0001 "w" 0001 "x" !connect_flags
        Will QoS 3 in 3.1.1
            > connect 3.1.1 will=w will_payload=x will_qos=3 !connect_flags
        Will QoS 3 in 3.1
            > connect 3.1 will=w will_payload=x will_qos=3 !connect_flags
    """)

    def check_malformed(self, fault: FaultReport, at: RuleContext) -> Findings:
        """Say the value."""
        return self.report(fault.field, "CONNECT: Will QoS is 3")
