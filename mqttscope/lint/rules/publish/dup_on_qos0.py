from mqttscope.lint.rules import V3_1, V3_1_1, V5, Findings, Rule, RuleContext, Severity, examples, may_be_3_1
from mqttscope.mqtt.packets import Publish


class DupOnQos0(Rule):
    """A PUBLISH with QoS 0 has the DUP flag set.

    QoS 0 messages are never resent, so this cannot be a duplicate.  Many receivers accept it; others treat the packet
    as malformed and close the connection.

    Instead, clear DUP whenever QoS is 0, especially in servers that forward a message with a lower QoS.
    """

    code = "PUB102"
    severity = Severity.ERROR
    versions = (V3_1_1, V5)
    statements = {
        V5: {"MQTT-3.3.1-2": "", "MQTT-4.3.1-1": ""},
        V3_1_1: {"MQTT-3.3.1-2": "", "MQTT-4.3.1-1": ""},
    }
    also = {V3_1: ("V31-PUBLISH-dup-qos0-unused",)}
    when = "dup"

    good = examples("""
        DUP 0
            opened; > publish a/b hi
        DUP with QoS 1 and 2
            opened 3.1.1 resume < present; > publish a/b dup qos=1 id=1; < puback 1
        MQTT 3.1 does not use the bit
            opened 3.1; > publish a/b dup
        capture started in mid-connection, perhaps MQTT 3.1
            midstream; version 3.1; > publish a/b hello dup & disconnect
    """)
    bad = examples("""
        DUP with QoS 0
            opened; > publish a/b hi dup !dup
        from the server, in MQTT 3.1.1
            opened 3.1.1; < publish a/b dup !dup
    """)

    def check(self, packet: Publish, at: RuleContext) -> Findings:
        """Report a packet with QoS 0, since DUP is set (`when`)."""
        if packet.qos or may_be_3_1(at):
            return None
        return self.report("dup", f"PUBLISH {at.topic!r} has DUP 1 with QoS 0")
