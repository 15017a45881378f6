from mqttscope.lint.rules import V5, Confidence, Findings, RuleContext, examples
from mqttscope.lint.shared_checks import REFUSAL_OF_3_1_1, MalformedRule, other_layout
from mqttscope.mqtt.constants import MalformedReason, PacketType, type_name
from mqttscope.mqtt.declare import FaultReport, Malformed

_REASON = MalformedReason.PROPERTY_LENGTH_MISSING


class PropertyLengthMissing(MalformedRule):
    """A packet of MQTT 5.0 has no Property Length where its properties should be.

    An empty set of properties is written as one zero byte.  Without it, the receiver reads the following bytes as a
    length: the packet is malformed, and the connection is closed.  Only PUBACK, PUBREC, PUBREL, PUBCOMP, DISCONNECT and
    AUTH may end before it.  Usually the sender used an encoder for MQTT 3.1.1.

    Instead, write the byte 00 for an empty set of properties.
    """

    code = "PRP101"
    versions = (V5,)
    statements = {V5: {"MQTT-2.2.2-1": ""}}
    malformed = (_REASON,)

    good = examples("""
        an empty set of properties
            opened; > subscribe 10 a/b:1; < suback 10 1; > unsubscribe 11 a/b; < unsuback 11 0
        an acknowledgement may end before its properties
            opened; > raw 32 07 0001 "a" 000a0068; < raw 40 03 000a10; > disconnect
        a server without MQTT 5.0 that refuses in the layout of 3.1.1
            > connect; < raw 20 02 0001
    """)
    bad = examples("""
        an UNSUBACK that ends before its properties
            opened; > unsubscribe 10 a/b; < raw b0 02 000a !properties
        a PUBLISH that ends after its topic
            opened; > raw 30 03 0001 "a" !properties
        a SUBSCRIBE with its filter in that position
            opened; > raw 82 08 000a 0003 "a/b" 01 !properties
        a PUBLISH with its text in that position
            opened; > raw 32 09 0003 "a/b" 000a6869 !properties
        a CONNACK that accepts
            > connect; < raw 20 02 0000 !properties
    """)

    def check_malformed(self, fault: FaultReport, at: RuleContext) -> Findings:
        """Report a missing length, except in the 3.1.1 CONNACK of a server that does not support 5.0."""
        malformed = at.event.malformed  # type: ignore[union-attr]
        if malformed.raw == REFUSAL_OF_3_1_1:
            return None
        return self.report(fault.field, _message(malformed, "the packet ends before it"))

    def check_damaged(self, malformed: Malformed, at: RuleContext) -> Findings:
        """Report an invalid property block in a packet that decodes well without one."""
        if any(fault.reason is _REASON for fault in malformed.faults) or other_layout(malformed, at.version) is None:
            return None
        # A payload may contain anything: text is strong evidence, but not a proof.
        likely = Confidence.LIKELY if malformed.packet_type == PacketType.PUBLISH else None
        return self.report("properties", _message(malformed, "without one the packet decodes well"), confidence=likely)


def _message(malformed: Malformed, evidence: str) -> str:
    kind = type_name(malformed.packet_type or 0).upper()
    return f"{kind}: no Property Length, an empty set of properties is written as 00 ({evidence})"
