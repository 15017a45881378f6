from mqttscope.lint.rules import V3_1_1, V5, Confidence, Findings, Related, Rule, RuleContext, Severity, examples
from mqttscope.lint.shared_checks import REFUSAL_OF_3_1_1, other_layout
from mqttscope.mqtt import Malformed, MalformedReason, ProtocolVersion, Suback, decode
from mqttscope.mqtt.constants import type_name

_SAID = (MalformedReason.PACKET_TYPE_RESERVED, MalformedReason.REMAINING_LENGTH_WRONG)
"""Faults that prove themselves, and whose rules (HDR101, HDR104) name the other version."""


class VersionMixedEncoding(Rule):
    """A packet is laid out for another version than the one its connection was opened with.

    Version 5.0 puts a property block into nearly every packet, the older ones have none; read with the wrong layout,
    text becomes lengths and lengths become text.  The version that CONNECT names holds for both sides until the
    connection closes.  Mostly a library or a proxy keeps the version in a place that not all of its encoders look at.

    Instead, encode every packet in the version of the CONNECT.
    """

    code = "HDR205"
    severities = (Severity.ERROR, Severity.INFO)
    confidence = Confidence.LIKELY
    also = {V5: ("MQTT-2.2.2-1",)}
    signs = ("odd_count",)

    good = examples("""
        a property block in every packet of MQTT 5.0
            opened; > raw 32 0a 0003 "a/b" 000a006869; < raw 40 02 000a; > subscribe 10 a:1; < suback 10 0
        two codes for two filters in MQTT 3.1.1
            opened 3.1.1; > subscribe 10 a:1 b:1; < suback 10 0 1
    """)
    bad = examples("""
        a PUBLISH without Property Length, so that 'h' is read as length 104
            opened; > raw 32 09 0003 "a/b" 000a6869 !
        a SUBSCRIBE without Property Length
            opened; > raw 82 08 000a 0003 "a/b" 01 !
        a SUBACK that grants QoS 0 and has no Property Length
            opened; > subscribe 10 a:1; < raw 90 03 000a00 !
        a server that refuses MQTT 5.0 in the layout of 3.1.1, as one that does not know 5.0 has to
            > connect; < raw 20 02 0001 !
        a SUBACK with Property Length in MQTT 3.1
            opened 3.1; > subscribe 10 a:1; < raw 90 04 000a0001 !
    """)

    def check_damaged(self, found: Malformed, at: RuleContext) -> Findings:
        """Read the packet in the other layout."""
        if not at.connection.version_known:
            return None
        other = other_layout(found, at.version)
        if other is None or found.packet_type is None or found.reason in _SAID:
            return None
        kind = type_name(found.packet_type).upper()
        if at.version == V5 and found.raw == REFUSAL_OF_3_1_1:
            return self._report(kind, other, at, "; a server that knows no other answers so", Severity.INFO)
        return self._report(kind, other, at)

    def check(self, packet: Suback, at: RuleContext) -> Findings:
        """A SUBACK reads well in both layouts, but with one code more or less."""
        asked = at.receiver.running(packet.packet_identifier, "subscribe")
        if asked is None or not at.connection.version_known or len(packet.reason_codes or ()) == asked.filters:
            return None
        other = V3_1_1 if at.version == V5 else V5
        read = decode(packet.raw, other)
        if not isinstance(read, Suback) or len(read.reason_codes) != asked.filters or read.properties:
            return None
        return self._report("SUBACK", other, at)

    def _report(
        self, kind: str, other: ProtocolVersion, at: RuleContext, remark: str = "", severity: Severity | None = None
    ) -> Findings:
        first = at.history.connect_sent
        opening = () if first is None else (Related.to("the CONNECT", first),)
        return self.report(
            "",
            f"{kind} is laid out for MQTT {other.text} but the connection was opened as MQTT {at.version.text}{remark}",
            severity=severity,
            related=opening,
        )
