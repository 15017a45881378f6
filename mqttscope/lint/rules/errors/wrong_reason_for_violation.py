from dataclasses import dataclass, field

from mqttscope.lint.rules import V5, Confidence, Findings, Needs, Rule, RuleContext, Severity, examples, packet_name
from mqttscope.mqtt import Connack, Disconnect, Malformed
from mqttscope.mqtt.constants import MalformedReason as M
from mqttscope.mqtt.constants import allowed_reason_codes, reason_name

BLAMES = frozenset({0x81, 0x82, 0x93, 0x94, 0x95, 0x99, 0x9A, 0x9B, 0x9E, 0xA1, 0xA2})
"""Reason codes that blame a packet of the other side; other codes may have independent reasons."""
NAMED = frozenset(
    {
        M.FIXED_HEADER_FLAGS,
        M.REMAINING_LENGTH_TOO_LONG,
        M.REMAINING_LENGTH_WRONG,
        M.QOS_INVALID,
        M.FIELD_OVERRUN,
        M.TRAILING_BYTES,
        M.UTF8_ILL_FORMED,
        M.UTF8_NULL_CHARACTER,
        M.VARIABLE_BYTE_INTEGER_TOO_LONG,
        M.VARIABLE_BYTE_INTEGER_NOT_MINIMAL,
        M.PROPERTY_LENGTH_MISSING,
        M.PROPERTY_LENGTH_OVERRUN,
        M.PROPERTY_UNKNOWN,
        M.PROPERTY_NOT_ALLOWED,
        M.CONNECT_FLAGS_RESERVED,
        M.WILL_QOS_INVALID,
        M.SUBSCRIPTION_OPTIONS_RESERVED,
    }
)
"""Faults that the specification defines as a Malformed Packet, 0x81."""


@dataclass(slots=True)
class LastMalformedPackets:
    """The last malformed packet of each side."""

    last: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Packet number and expected reason code by direction; 0 if the specification names no code."""


class WrongReasonForViolation(Rule):
    """A side closes the connection for a violation with a different reason code than the specification requires.

    The wrong code misleads developers: 0x9B (QoS not supported) suggests a server limit although
    the packet was malformed.  If a packet violates several rules, any of their codes is accepted.

    Instead, use the reason code that the specification defines for the violation.
    """

    code = "ERR202"
    severity = Severity.INFO
    versions = (V5,)
    also = {
        V5: (
            "V5-PUBLISH-qos-above-max",
            "V5-PUBLISH-retain-unavailable",
            "V5-PUBLISH-alias-receive-max-disconnect",
        )
    }
    when = "reason_code"
    needs = Needs.WHOLE_RECEIVER
    reads_findings = True
    Memory = LastMalformedPackets

    good = examples("""
        another, independent reason
            opened; > publish a; < disconnect code=0x8b
    """)
    bad = examples("""
        0x9B for QoS 3
            opened; > raw 36 0a 0003 "a/b" 000a006869; < disconnect code=0x9b !reason_code
        0x82 for text that is not UTF-8, by the client
            opened; < raw 30 08 0003612fff006869; > disconnect code=0x82 !reason_code
        0x95 for a CONNECT with a reserved flag
            > raw 10 0f 0004 "MQTT" 0503003c00 0002 "c1"; < connack code=0x95 !reason_code
    """)

    def check_damaged(self, malformed: Malformed, at: RuleContext) -> Findings:
        due = 0x81 if all(fault.reason in NAMED for fault in malformed.faults) else 0
        at.memory(self).last[str(at.direction)] = (at.number, due)
        return None

    def check(self, packet: Disconnect | Connack, at: RuleContext) -> Findings:
        """Compare with the reason code for the last violation by the other side."""
        got = packet.reason_code
        if got not in BLAMES:
            return None
        blamed = at.direction.opposite
        rows = [(row.packet, row.reason_code, row.rule) for row in at.history.reported if row.sender is blamed]
        damaged = at.memory(self).last.get(str(blamed))
        if damaged is not None:
            rows.append((*damaged, "a malformed packet"))
        if not rows or any(due == got for _, due, _ in rows):
            return None
        last = max(number for number, _, _ in rows)
        expected = [(due, code) for number, due, code in rows if number == last]
        allowed = allowed_reason_codes(packet.packet_type, V5)
        if any(due not in allowed or not due for due, _ in expected):
            return None  # one fault has no specified code, so any code may be right
        code = expected[0][1]
        names = " or ".join(
            f"0x{due:02x} ({reason_name(packet.packet_type, due, V5)})" for due in sorted({due for due, _ in expected})
        )
        who = "client" if at.from_client else "server"
        return self.report(
            "reason_code",
            f"{who} sends {packet_name(packet)} 0x{got:02x} ({reason_name(packet.packet_type, got, V5)}) after {code}; "
            f"the specification requires {names}",
            confidence=None if last == at.other.last_packet else Confidence.LIKELY,
        )
