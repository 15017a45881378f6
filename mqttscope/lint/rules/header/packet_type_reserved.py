from mqttscope.lint.rules import V3_1, V3_1_1, V5, Findings, RuleContext, examples, nothing_decoded, valid_elsewhere
from mqttscope.lint.shared_checks import MalformedRule
from mqttscope.mqtt.constants import MalformedReason, PacketType
from mqttscope.mqtt.declare import FaultReport


class PacketTypeReserved(MalformedRule):
    """A packet has a reserved type.

    Type 0 is reserved in every version, and type 15 (AUTH) exists only in MQTT 5.0.  The receiver closes the
    connection.  Often the real fault is an earlier packet with a wrong Remaining Length, so that bytes of a field or a
    payload are read as a packet type.

    Instead, send only packet types of the version in use, and check the lengths of the preceding packets.
    """

    code = "HDR101"
    statements = {
        V5: {"V5-TYPE-reserved": ""},
        V3_1_1: {"V311-TYPE-reserved": ""},
        V3_1: {"V31-HEADER-type-reserved": ""},
    }
    malformed = (MalformedReason.PACKET_TYPE_RESERVED,)

    good = examples("""
        PINGREQ
            opened; > pingreq; < pingresp
        type 15 is AUTH in MQTT 5.0
            > connect authentication_method=SCRAM-SHA-1
            < auth code=0x18 authentication_method=SCRAM-SHA-1 authentication_data=salt
            > auth code=0x18 authentication_method=SCRAM-SHA-1 authentication_data=proof
            < connack authentication_method=SCRAM-SHA-1
    """)
    bad = examples("""
        type 0
            opened; > raw 00 00 !packet_type
        AUTH in MQTT 3.1.1
            opened 3.1.1; > raw f0 00 !packet_type
        AUTH in MQTT 3.1
            opened 3.1; > raw f0 00 !packet_type
        after a PINGREQ with a wrong length
            opened; > raw c0 01 c0 & raw 00 00 !packet_type
        bytes that begin no packet, before the client closes
            opened 3.1.1; > raw 0a c0 !packet_type; > fin
    """)

    def check_malformed(self, fault: FaultReport, at: RuleContext) -> Findings:
        """Mention an earlier packet with a wrong length."""
        if valid_elsewhere(at) or nothing_decoded(at):
            return None
        first = at.event.malformed.raw[0]  # type: ignore[union-attr]
        name = " (AUTH of MQTT 5.0)" if first >> 4 == PacketType.AUTH else ""
        text = f"packet type {first >> 4}{name} is reserved in MQTT {at.version.text} (first byte 0x{first:02x})"
        if at.party.miscounted is not None:
            text += "; an earlier packet had a wrong length, so this may not be a packet"
        return self.report(fault.field, text)
