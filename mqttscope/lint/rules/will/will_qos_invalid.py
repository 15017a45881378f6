"""WIL102."""

from mqttscope.lint.context import RuleContext
from mqttscope.lint.examples import client, conversation, examples, hexadecimal, make_connect, opened
from mqttscope.lint.finding import Severity
from mqttscope.lint.rule import V3_1, V3_1_1, V5, Findings, Rule
from mqttscope.mqtt.constants import MalformedReason
from mqttscope.mqtt.declare import FaultReport
from mqttscope.mqtt.parts import Will


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

    good = examples(
        lambda: [
            conversation("Will QoS 2", *opened(will=Will("w", b"x", will_qos=2))),
            conversation("Will QoS 1 in 3.1", *opened(V3_1, will=Will("w", b"x", will_qos=1))),
        ]
    )
    bad = examples(
        lambda: [
            conversation(
                "Will QoS 3",
                client(hexadecimal("10 16 00 04 4d 51 54 54 05 1e 00 3c 00 00 02 63 31 00 00 01 77 00 01 78")).marked(
                    "connect_flags"
                ),
            ),
            conversation(
                "Will QoS 3 in 3.1.1",
                client(make_connect(V3_1_1, will=Will("w", b"x", will_qos=3))).marked("connect_flags"),
            ),
            conversation(
                "Will QoS 3 in 3.1",
                client(make_connect(V3_1, will=Will("w", b"x", will_qos=3))).marked("connect_flags"),
            ),
        ]
    )

    def check_malformed(self, fault: FaultReport, at: RuleContext) -> Findings:
        """Say the value."""
        return self.report(fault.field, "CONNECT: Will QoS is 3")
