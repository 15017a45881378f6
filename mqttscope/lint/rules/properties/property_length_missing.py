from mqttscope.lint.rules import V5, Confidence, Findings, RuleContext, examples
from mqttscope.lint.shared_checks import REFUSAL_OF_3_1_1, MalformedRule, other_layout
from mqttscope.mqtt.constants import MalformedReason, PacketType, type_name
from mqttscope.mqtt.declare import FaultReport, Malformed

_REASON = MalformedReason.PROPERTY_LENGTH_MISSING


class PropertyLengthMissing(MalformedRule):
    """A packet of MQTT 5.0 has no Property Length where its properties should be.

    An empty set of properties is written as one zero byte.  Where it is missing the receiver takes what follows for a
    length: the packet is malformed and the connection closed.  Only PUBACK, PUBREC, PUBREL, PUBCOMP, DISCONNECT and
    AUTH may end before it.  Mostly it was written by an encoder for MQTT 3.1.1.

    Instead, write the byte 00 when there are no properties.
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
        a server that does not know MQTT 5.0 refuses in the layout of 3.1.1
            > connect; < raw 20 02 0001
    """)
    bad = examples("""
        an UNSUBACK that ends where the properties should be
            opened; > unsubscribe 10 a/b; < raw b0 02 000a !properties
        a PUBLISH that ends after its topic
            opened; > raw 30 03 0001 "a" !properties
        a SUBSCRIBE whose filter stands in their place
            opened; > raw 82 08 000a 0003 "a/b" 01 !properties
        a PUBLISH whose text stands in their place
            opened; > raw 32 09 0003 "a/b" 000a6869 !properties
        a CONNACK that accepts
            > connect; < raw 20 02 0000 !properties
    """)

    def check_malformed(self, fault: FaultReport, at: RuleContext) -> Findings:
        """A server that does not know 5.0 has no other way to say so than a CONNACK of 3.1.1."""
        found = at.event.malformed  # type: ignore[union-attr]
        if found.raw == REFUSAL_OF_3_1_1:
            return None
        return self.report(fault.field, _told(found, "the packet ends before it"))

    def check_damaged(self, found: Malformed, at: RuleContext) -> Findings:
        """Bytes that cannot be a property block, in a packet that reads well without one."""
        if any(fault.reason is _REASON for fault in found.faults) or other_layout(found, at.version) is None:
            return None
        # Anything can be a payload: that it is text is strong evidence, and no proof.
        likely = Confidence.LIKELY if found.packet_type == PacketType.PUBLISH else None
        return self.report("properties", _told(found, "without one the packet reads well"), confidence=likely)


def _told(found: Malformed, evidence: str) -> str:
    kind = type_name(found.packet_type or 0).upper()
    return f"{kind}: no Property Length, an empty set of properties is written as 00 ({evidence})"
