"""WIL101, WIL102: invalid will flags."""

from mqttscope.events import MalformedEvent
from mqttscope.lint.rules import V3_1, V3_1_1, V5, Findings, Report, RuleContext, Severity, examples
from mqttscope.lint.shared_checks import MalformedRule
from mqttscope.mqtt import Connect, Direction, MalformedReason, ProtocolVersion
from mqttscope.mqtt.declare import FaultReport

_QOS, _RETAIN = 0x18, 0x20
_FORBIDDEN: dict[ProtocolVersion, tuple[tuple[int, str], ...]] = {
    V5: ((_QOS, "MQTT-3.1.2-11"), (_RETAIN, "MQTT-3.1.2-13")),
    V3_1_1: ((_QOS | _RETAIN, "MQTT-3.1.2-11"), (_QOS, "MQTT-3.1.2-13"), (_RETAIN, "MQTT-3.1.2-15")),
    V3_1: (),
}
"""Statements about the flag bits of a CONNECT without a will."""


class WillFlagsWithoutWill(MalformedRule):
    """A CONNECT without a will sets Will QoS or Will Retain.

    The bits describe the publication of a will; without one they are reserved, and servers close the connection.  MQTT
    3.1 does not mention this case, so there the finding is only info.

    Instead, leave Will QoS and Will Retain 0 if the Will Flag is 0.
    """

    code = "WIL101"
    severities = (Severity.ERROR, Severity.INFO)
    statements = {
        V5: {"MQTT-3.1.2-11": "connect", "MQTT-3.1.2-13": "connect"},
        V3_1_1: {"MQTT-3.1.2-11": "connect", "MQTT-3.1.2-13": "connect", "MQTT-3.1.2-15": "connect"},
    }
    malformed = (MalformedReason.WILL_FLAGS_WITHOUT_WILL,)
    signs = ("odd_connect",)
    sender = Direction.CLIENT_TO_SERVER

    good = examples("""
        no will
            opened
        a will with all flags
            opened will=w will_payload=x will_qos=1 will_retain
        no will in 3.1
            opened 3.1
    """)
    bad = examples("""
        Will QoS and Will Retain
            > raw 10 0f 0004 "MQTT" 052a003c00 0002 "c1" !connect_flags
        Will QoS only, in 3.1.1
            > connect 3.1.1 connect_flags=0x0a !connect_flags
        Will Retain only, in 3.1.1
            > connect 3.1.1 connect_flags=0x22 !connect_flags
        info in 3.1
            > connect 3.1 connect_flags=0x22 !connect_flags
    """)

    def check_malformed(self, fault: FaultReport, at: RuleContext) -> Findings:
        packet = at.event.malformed.packet if isinstance(at.event, MalformedEvent) else None
        return self._flags_report((packet.connect_flags or 0) if isinstance(packet, Connect) else 0, at, Severity.ERROR)

    def check(self, packet: Connect, at: RuleContext) -> Findings:
        """Report the bits as info in 3.1, where they are not a fault."""
        flags = packet.connect_flags or 0
        if at.version is not V3_1 or flags & 4 or not flags & (_QOS | _RETAIN):
            return None
        return self._flags_report(flags, at, Severity.INFO)

    def _flags_report(self, flags: int, at: RuleContext, severity: Severity) -> Report:
        bits = [f"Will QoS is {flags >> 3 & 3}"] if flags & _QOS else []
        bits += ["Will Retain is 1"] if flags & _RETAIN else []
        return self.report(
            "connect_flags",
            f"CONNECT: Will Flag is 0 but {' and '.join(bits) or 'bits of the will are set'}",
            severity=severity,
            statements=tuple(identifier for mask, identifier in _FORBIDDEN[at.version] if flags & mask),
        )


class WillQosInvalid(MalformedRule):
    """A CONNECT requests Will QoS 3.

    QoS 3 does not exist: the server closes the connection, in 5.0 with Malformed Packet.

    Instead, use Will QoS 0, 1 or 2, and 0 without a will.
    """

    code = "WIL102"
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
        return self.report(fault.field, "CONNECT: Will QoS is 3")
