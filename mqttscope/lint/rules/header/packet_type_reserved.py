from mqttscope.lint.rules import V3_1, V3_1_1, V5, Findings, RuleContext, examples, lawful_elsewhere, nothing_understood
from mqttscope.lint.shared_checks import MalformedRule
from mqttscope.mqtt.constants import MalformedReason, PacketType
from mqttscope.mqtt.declare import FaultReport


class PacketTypeReserved(MalformedRule):
    """A packet has a type that is reserved.

    Type 0 is no packet in any version, and type 15 (AUTH) came with MQTT 5.0.  The receiver closes the connection.
    Often it is no packet at all: an earlier one had a wrong Remaining Length, and what is read as a type is something
    from the middle of a field or a payload.

    Instead, send packets of the types that the version has, and check the lengths of those before.
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
    """)

    def check_malformed(self, fault: FaultReport, at: RuleContext) -> Findings:
        """Point to a packet before whose length was wrong."""
        if lawful_elsewhere(at) or nothing_understood(at):
            return None
        first = at.event.malformed.raw[0]  # type: ignore[union-attr]
        name = " (AUTH of MQTT 5.0)" if first >> 4 == PacketType.AUTH else ""
        told = f"packet type {first >> 4}{name} is reserved in MQTT {at.version.text} (first byte 0x{first:02x})"
        if at.party.miscounted is not None:
            told += "; the length of a packet before it was wrong, so this may be no packet"
        return self.report(fault.field, told)
