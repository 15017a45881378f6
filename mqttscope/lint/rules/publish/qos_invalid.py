from mqttscope.events import MalformedEvent
from mqttscope.lint.rules import V3_1, V3_1_1, V5, Findings, RuleContext, examples
from mqttscope.lint.shared_checks import MalformedRule
from mqttscope.mqtt.constants import MalformedReason
from mqttscope.mqtt.declare import FaultReport


class QosInvalid(MalformedRule):
    """A PUBLISH has both QoS bits set, which is invalid.

    QoS 3 does not exist, so the receiver cannot decide whether a packet identifier follows the topic, and treats the
    packet as malformed.  mqttscope can only guess the fields after the topic.

    Instead, send QoS 0, 1 or 2.
    """

    code = "PUB101"
    statements = {V5: {"MQTT-3.3.1-4": ""}, V3_1_1: {"MQTT-3.3.1-4": ""}, V3_1: {"V31-HEADER-qos3": ""}}
    malformed = (MalformedReason.QOS_INVALID,)

    good = examples("""
        the highest QoS
            opened; > publish a/b hi qos=1 id=10; < puback 10
    """)
    bad = examples("""
        both bits set
            opened; > raw 36 0a 0003 "a/b" 000a006869 !qos
        from the server, in MQTT 3.1.1
            opened 3.1.1; < raw 37 09 0003 "a/b" 000a6869 !qos
        in MQTT 3.1
            opened 3.1; > raw 36 09 0003 "a/b" 000a6869 !qos
    """)

    def check_malformed(self, fault: FaultReport, at: RuleContext) -> Findings:
        """Name the topic, which is still reliable."""
        assert isinstance(at.event, MalformedEvent)
        malformed = at.event.malformed
        topic = getattr(malformed.packet, "topic_name", None)
        name = "PUBLISH" if topic is None else f"PUBLISH {topic!r}"
        return self.report("qos", f"{name} has both QoS bits set (first byte 0x{malformed.raw[0]:02x}): invalid QoS 3")
