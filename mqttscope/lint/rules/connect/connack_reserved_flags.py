"""CON109."""

from mqttscope.lint.context import RuleContext
from mqttscope.lint.examples import examples
from mqttscope.lint.finding import Severity
from mqttscope.lint.rule import V3_1, V3_1_1, V5, Findings, Rule
from mqttscope.lint.rules import lawful_elsewhere
from mqttscope.mqtt.constants import Direction, MalformedReason
from mqttscope.mqtt.declare import FaultReport
from mqttscope.mqtt.packets import Connack


class ConnackReservedFlags(Rule):
    """A CONNACK sets reserved bits of its acknowledge flags.

    Only bit 0 (Session Present) has a meaning; a client that checks the others closes the connection.  In MQTT 3.1 the
    whole byte is unused, so that there a value in it is worth a note only.

    Instead, send 0x00 or 0x01 in byte 1 of the CONNACK, and 0x00 in MQTT 3.1.
    """

    code = "CON109"
    severity = Severity.ERROR
    severities = (Severity.ERROR, Severity.INFO)
    reason_code = 0x81
    statements = {
        V5: {"MQTT-3.2.2-1": ""},
        V3_1_1: {"V311-CONNACK-reserved-bits": ""},
        V3_1: {"V31-CONNACK-reserved-byte": ""},
    }
    malformed = (MalformedReason.CONNACK_FLAGS_RESERVED,)
    looks_at = Connack
    when = "acknowledge_flags"
    sender = Direction.SERVER_TO_CLIENT

    good = examples("""
        no flag
            opened
        Session Present
            opened resume < present
        no flag in 3.1
            opened 3.1
    """)
    bad = examples("""
        bit 1
            > connect; < raw 20 03 020000 !acknowledge_flags
        bit 7 in 3.1.1
            > connect 3.1.1; < raw 20 02 8000 !acknowledge_flags
        a note in 3.1
            > connect 3.1; < raw 20 02 0100 !acknowledge_flags
    """)

    def check_malformed(self, fault: FaultReport, at: RuleContext) -> Findings:
        """The decoder's words, unless it may be MQTT 3.1 that is spoken."""
        return None if lawful_elsewhere(at) else super().check_malformed(fault, at)

    def check(self, packet: Connack, at: RuleContext) -> Findings:
        """In 3.1 no fault of the packet, and only a note."""
        if at.version is not V3_1 or not packet.acknowledge_flags:
            return None
        return self.report(
            "acknowledge_flags",
            f"CONNACK: byte 1 is 0x{packet.acknowledge_flags:02x}; MQTT 3.1 does not use it",
            severity=Severity.INFO,
        )
