from mqttscope.lint.rules import V3_1, V3_1_1, V5, Findings, Rule, RuleContext, Severity, examples, valid_elsewhere
from mqttscope.lint.shared_checks import REFUSAL_OF_3_1_1
from mqttscope.mqtt.constants import REASON_CODES, MalformedReason
from mqttscope.mqtt.declare import FaultReport
from mqttscope.mqtt.packets import Disconnect

_BAD_AUTHENTICATION_METHOD = 0x8C


class ReasonCodeInvalid(Rule):
    """A reason or return code is not defined for its packet type.

    Every packet type has its own table of codes in every version.  The receiver cannot interpret other codes: it treats
    the packet as malformed, or mistakes a failure for success.  Usually the code belongs to another packet type, or to
    MQTT 5.0 on an older connection.

    Instead, use a code from the packet's own table; the failure 0x80 (Unspecified error) is valid for nearly all
    packets.
    """

    code = "RSN101"
    severities = (Severity.ERROR, Severity.INFO)
    statements = {
        V5: {
            "MQTT-3.2.2-8": "connack",
            "MQTT-3.4.2-1": "puback",
            "MQTT-3.5.2-1": "pubrec",
            "MQTT-3.6.2-1": "pubrel",
            "MQTT-3.7.2-1": "pubcomp",
            "MQTT-3.8.4-7": "suback",
            "MQTT-3.9.3-2": "suback",
            "MQTT-3.11.3-2": "unsuback",
            "MQTT-3.14.2-1": "disconnect",
            "MQTT-3.15.2-1": "auth",
        },
        V3_1_1: {"MQTT-3.2.2-6": "connack", "MQTT-3.9.3-2": "suback"},
        V3_1: {"V31-CONNACK-codes": "connack", "V31-SUBACK-codes": "suback"},
    }
    malformed = (MalformedReason.REASON_CODE_INVALID,)
    when = "reason_code"

    good = examples("""
        a PUBREL that reports an unknown identifier, in a resumed session
            opened resume session_expiry_interval=60 < present; < pubrec 10; > pubrel 10 code=0x92
        the highest return code of MQTT 3.1.1
            opened 3.1.1 < code=0x05
        a filter that MQTT 3.1.1 refuses
            opened 3.1.1; > subscribe 1 a:0; < suback 1 0x80
        all codes of a successful UNSUBACK
            opened; > subscribe 1 a:0; < suback 1 0; > unsubscribe 2 a b; < unsuback 2 0 0x11
        a server without MQTT 5.0 that refuses in the layout of 3.1.1
            > connect; < raw 20 02 0001
        the highest code of a DISCONNECT
            opened; < disconnect code=0xa2
    """)
    bad = examples("""
        a PUBREL with a code of PUBLISH acknowledgements
            opened; > publish a qos=2 id=10; < pubrec 10; > raw 62 03 000a91 !reason_code
        a return code that MQTT 3.1.1 reserves
            opened 3.1.1 < code=0x06 !reason_code
        a return code that MQTT 3.1 reserves
            opened 3.1 < code=0x06 !reason_code
        a reason code of MQTT 5.0 in a SUBACK of 3.1.1
            opened 3.1.1; > subscribe 1 a:0 b:0; < suback 1 0 0x87 !reason_codes[1]
        a failure code in a SUBACK of MQTT 3.1
            opened 3.1; > subscribe 1 a:0; < suback 1 0x80 !reason_codes[0]
        granted QoS 3
            opened; > subscribe 1 a:2; < suback 1 0x03 !reason_codes[0]
        0x8C in a DISCONNECT, which only the general table lists: info
            opened; < disconnect code=0x8c !reason_code
    """)

    def check_malformed(self, fault: FaultReport, at: RuleContext) -> Findings:
        """Name the meaning of the code in other packets."""
        event = at.event
        raw = event.malformed.raw  # type: ignore[union-attr]
        if (raw == REFUSAL_OF_3_1_1 and at.version == V5) or valid_elsewhere(at):
            return None
        kind, code = str(event.type).upper(), raw[fault.offset]  # type: ignore[union-attr]
        known = REASON_CODES.get(code) if code > 2 else None
        meaning = f" ({known})" if known else ""
        return self.report(
            fault.field, f"{kind}: 0x{code:02X}{meaning} is not a code of {kind} in MQTT {at.version.text}"
        )

    def check(self, packet: Disconnect, at: RuleContext) -> Findings:
        """Check the one code that two tables of the standard disagree about."""
        if packet.reason_code != _BAD_AUTHENTICATION_METHOD:
            return None
        return self.report(
            "reason_code",
            "DISCONNECT: 0x8C (Bad authentication method) is a DISCONNECT code in the general table of reason codes, "
            "but not in the table of DISCONNECT itself",
            severity=Severity.INFO,
        )
