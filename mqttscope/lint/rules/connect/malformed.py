"""CON102, CON103, CON107, CON109: layout faults of CONNECT and CONNACK."""

from mqttscope.events import MalformedEvent
from mqttscope.lint.rules import V3_1, V3_1_1, V5, Findings, RuleContext, Severity, examples, valid_elsewhere
from mqttscope.lint.shared_checks import MalformedRule
from mqttscope.mqtt import Connack, Connect, Direction, MalformedReason
from mqttscope.mqtt.declare import FaultReport


class ProtocolVersionUnknown(MalformedRule):
    """A CONNECT has a protocol level that no version of MQTT defines.

    The level determines the layout of the rest of the packet.  A server refuses an unknown level with 0x01 (3.1.1) or
    0x84 (5.0), or closes silently.  mqttscope shows the fields after the level in the layout of 3.1.1, which is a
    guess.

    Instead, use MQIsdp with level 3, MQTT with level 4, or MQTT with level 5.
    """

    code = "CON102"
    version_matters = False
    reason_code = 0x84
    also = {V5: ("MQTT-3.1.2-2",)}
    malformed = (MalformedReason.PROTOCOL_VERSION_UNKNOWN,)

    good = examples("""
        level 5
            opened
        level 4
            opened 3.1.1
        level 3
            opened 3.1
        bridge mark with level 3
            opened 3.1 client=bridge protocol_level=0x83
        bridge mark with level 4
            opened 3.1.1 client=bridge protocol_level=0x84
    """)
    bad = examples("""
        level 6
            > raw 10 0e 0004 "MQTT" 0602003c 0002 "c1" !protocol_level
        bit 7 has no meaning with level 5
            > connect 3.1.1 protocol_level=0x85 !protocol_level
        level 4 with the name of MQTT 3.1
            > connect protocol_name=MQIsdp !protocol_level
        level 3 with the name MQTT
            > connect 3.1 protocol_name=MQTT !protocol_level
    """)

    def check_malformed(self, fault: FaultReport, at: RuleContext) -> Findings:
        """Show the level in decimal and hexadecimal."""
        packet = getattr(getattr(at.event, "malformed", None), "packet", None)
        if not isinstance(packet, Connect):
            return self.report(fault.field, f"CONNECT: {fault.detail}")
        level, name = packet.protocol_level, packet.protocol_name
        return self.report(
            fault.field,
            f"CONNECT: protocol level {level} (0x{level:02x}) with name {name!r} is not a known MQTT version",
        )


class ConnectReservedFlag(MalformedRule):
    """A CONNECT sets the reserved bit 0 of its connect flags.

    Servers have to check the bit and close the connection if it is set.  MQTT 3.1 leaves the bit unused and unchecked,
    so there the finding is only info.

    Instead, leave bit 0 of the connect flags 0.
    """

    code = "CON103"
    severities = (Severity.ERROR, Severity.INFO)
    statements = {V5: {"MQTT-3.1.2-3": ""}, V3_1_1: {"MQTT-3.1.2-3": ""}}
    malformed = (MalformedReason.CONNECT_FLAGS_RESERVED,)
    signs = ("odd_connect",)
    sender = Direction.CLIENT_TO_SERVER

    good = examples("""
        bit 0 is 0
            opened
        all other bits may be set
            opened user_name=u password=p will=w will_payload=x will_qos=1 will_retain
        bit 0 is 0 in 3.1
            opened 3.1
    """)
    bad = examples("""
        bit 0 is 1
            > raw 10 0f 0004 "MQTT" 0503003c00 0002 "c1" !connect_flags
        bit 0 is 1 in 3.1.1
            > raw 10 0e 0004 "MQTT" 0403003c 0002 "c1" !connect_flags
        info in 3.1
            > raw 10 10 0006 "MQIsdp" 0303003c 0002 "c1" !connect_flags
    """)

    def check_malformed(self, fault: FaultReport, at: RuleContext) -> Findings:
        packet = at.event.malformed.packet if isinstance(at.event, MalformedEvent) else None
        return self.report(fault.field, _sentence(packet if isinstance(packet, Connect) else Connect()))

    def check(self, packet: Connect, at: RuleContext) -> Findings:
        """Report the bit as info in 3.1, where it is not a fault."""
        if at.version is not V3_1 or not (packet.connect_flags or 0) & 1:
            return None
        return self.report("connect_flags", f"{_sentence(packet)}; MQTT 3.1 does not use it", severity=Severity.INFO)


def _sentence(packet: Connect) -> str:
    flags = packet.derived_flags() | 1 if packet.connect_flags is None else packet.connect_flags
    return f"CONNECT: reserved bit 0 of the connect flags 0x{flags:02x} is set"


class ClientIdMissing(MalformedRule):
    """A CONNECT ends before its Client Identifier.

    The identifier is the one field that every CONNECT payload has; without it the packet is malformed and the server
    closes the connection.  An empty identifier is different: it is two zero bytes.

    Instead, always write the Client Identifier, with length 0 if the server is to choose one.
    """

    code = "CON107"
    statements = {V5: {"MQTT-3.1.3-3": ""}, V3_1_1: {"MQTT-3.1.3-3": ""}}
    malformed = (MalformedReason.CLIENT_IDENTIFIER_MISSING,)

    good = examples("""
        present
            opened 3.1.1
        empty, but present
            opened 3.1.1 client=-
        empty, but present, in 5.0
            > raw 10 0d 0004 "MQTT" 0502003c000000; < raw 20 08 00000512 0002 "a1"
        empty, as the last two bytes
            version 3.1.1; > raw 10 0c 0004 "MQTT" 0402003c0000; < connack
    """)
    bad = examples("""
        nothing after Keep Alive
            > raw 10 0a 0004 "MQTT" 0402003c !client_identifier
        half of the length
            > raw 10 0b 0004 "MQTT" 0402003c00 !client_identifier
        nothing after the properties
            > raw 10 0b 0004 "MQTT" 0502003c00 !client_identifier
        nothing after Keep Alive in 3.1
            > raw 10 0c 0006 "MQIsdp" 0302003c !client_identifier
    """)


class ConnackReservedFlags(MalformedRule):
    """A CONNACK has reserved bits of its acknowledge flags set.

    Only bit 0 (Session Present) has a meaning; a client that checks the others closes the connection.  MQTT 3.1 does
    not use this byte at all, so there the finding is only info.

    Instead, send 0x00 or 0x01 in byte 1 of the CONNACK, and 0x00 in MQTT 3.1.
    """

    code = "CON109"
    severities = (Severity.ERROR, Severity.INFO)
    statements = {
        V5: {"MQTT-3.2.2-1": ""},
        V3_1_1: {"V311-CONNACK-reserved-bits": ""},
        V3_1: {"V31-CONNACK-reserved-byte": ""},
    }
    malformed = (MalformedReason.CONNACK_FLAGS_RESERVED,)
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
        info in 3.1
            > connect 3.1; < raw 20 02 0100 !acknowledge_flags
    """)

    def check_malformed(self, fault: FaultReport, at: RuleContext) -> Findings:
        """Report the fault as decoded, unless the version may be MQTT 3.1."""
        return None if valid_elsewhere(at) else super().check_malformed(fault, at)

    def check(self, packet: Connack, at: RuleContext) -> Findings:
        """Report the bits as info in 3.1, where they are not a fault."""
        if at.version is not V3_1 or not packet.acknowledge_flags:
            return None
        return self.report(
            "acknowledge_flags",
            f"CONNACK: byte 1 is 0x{packet.acknowledge_flags:02x}; MQTT 3.1 does not use it",
            severity=Severity.INFO,
        )
