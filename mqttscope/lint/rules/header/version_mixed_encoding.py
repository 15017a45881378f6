from mqttscope.lint.rules import V3_1_1, V5, Confidence, Findings, Related, Rule, RuleContext, Severity, examples
from mqttscope.lint.rules.subscription import request_of
from mqttscope.lint.shared_checks import REFUSAL_OF_3_1_1, other_layout
from mqttscope.mqtt import Malformed, MalformedReason, ProtocolVersion, Suback, decode
from mqttscope.mqtt.constants import type_name

_REPORTED_BY_OTHERS = (MalformedReason.PACKET_TYPE_RESERVED, MalformedReason.REMAINING_LENGTH_WRONG)
"""Faults that HDR101 and HDR104 report, including the other version."""


class VersionMixedEncoding(Rule):
    """A packet has the layout of a different MQTT version than its connection.

    Version 5.0 adds a property block to nearly every packet; older versions have no such block.  Read in the wrong
    layout, text becomes lengths and lengths become text.  The version in CONNECT applies to both sides until the
    connection closes.  Usually some encoders of a library or proxy ignore the negotiated version.

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
        a server without 5.0 that refuses it in the layout of 3.1.1, as it must
            > connect; < raw 20 02 0001 !
        a SUBACK with Property Length in MQTT 3.1
            opened 3.1; > subscribe 10 a:1; < raw 90 04 000a0001 !
    """)

    def check_damaged(self, malformed: Malformed, at: RuleContext) -> Findings:
        """Decode the packet in the other layout."""
        if not at.connection.version_known:
            return None
        other = other_layout(malformed, at.version)
        if other is None or malformed.packet_type is None or malformed.reason in _REPORTED_BY_OTHERS:
            return None
        kind = type_name(malformed.packet_type).upper()
        if at.version == V5 and malformed.raw == REFUSAL_OF_3_1_1:
            return self._report(kind, other, at, "; a server that does not support 5.0 answers this way", Severity.INFO)
        return self._report(kind, other, at)

    def check(self, packet: Suback, at: RuleContext) -> Findings:
        """A SUBACK decodes in both layouts, but with a different number of codes."""
        asked = at.receiver.running(packet.packet_identifier, "subscribe")
        if asked is None or not at.connection.version_known or len(packet.reason_codes or ()) == asked.filters:
            return None
        other = V3_1_1 if at.version == V5 else V5
        read = decode(packet.raw, other)
        if not isinstance(read, Suback) or len(read.reason_codes) != asked.filters or read.properties:
            return None
        request = request_of(packet, at)
        wanted = () if request is None else request.maximum_qos
        grants_more = any(qos < code < 0x80 for qos, code in zip(wanted, read.reason_codes, strict=False))
        if grants_more or wanted == tuple(packet.reason_codes or ())[: asked.filters]:
            return None  # more probably a wrong number of codes, which SUB210 reports
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
