from mqttscope.lint.rules import V3_1, V3_1_1, V5, Findings, RuleContext, examples, lawful_elsewhere, nothing_understood
from mqttscope.lint.shared_checks import MalformedRule, other_layout
from mqttscope.mqtt.constants import MalformedReason, PacketType
from mqttscope.mqtt.declare import FaultReport

_PINGS = (PacketType.PINGREQ, PacketType.PINGRESP)


class RemainingLengthWrong(MalformedRule):
    """A packet has another Remaining Length than its type allows.

    PINGREQ and PINGRESP have no body; before MQTT 5.0 acknowledgements have two bytes and DISCONNECT has none.  The
    receiver closes the connection, or reads what follows as packets that nobody sent.  On a connection of MQTT 3.1 or
    3.1.1 a longer packet mostly comes from an encoder for 5.0, which adds a reason code and properties.

    Instead, write the packet as its version lays it out.
    """

    code = "HDR104"
    statements = {V5: {"V5-LENGTH-empty-packets": "pingreq,pingresp"}, V3_1_1: {"V311-LENGTH-fixed": ""}}
    also = {V3_1_1: ("MQTT-3.2.2-6",), V3_1: ("V31-DISCONNECT-client-only",)}
    malformed = (MalformedReason.REMAINING_LENGTH_WRONG,)

    good = examples("""
        pings without a body
            opened; > pingreq; < pingresp
        two bytes of PUBACK and none of DISCONNECT in MQTT 3.1.1
            opened 3.1.1; > publish a qos=1 id=10; < puback 10; > disconnect
        MQTT 5.0 lets a PUBACK have two to four bytes and more
            opened; > publish a qos=1 id=10; < raw 40 02 000a; > publish a qos=1 id=10; < raw 40 03 000a10
            > publish a qos=1 id=10; < raw 40 04 000a1000
    """)
    bad = examples("""
        a PINGREQ with a body
            opened; > raw c0 01 00 !remaining_length
        a PUBACK of MQTT 5.0 in MQTT 3.1.1
            opened 3.1.1; > publish a qos=1 id=10; < raw 40 04 000a0000 !remaining_length
        a server that refuses MQTT 3.1.1 in the layout of 5.0
            > connect 3.1.1; < raw 20 03 008400 !remaining_length
        a DISCONNECT with a reason in MQTT 3.1.1
            opened 3.1.1; > raw e0 01 00 !remaining_length
        a PINGRESP with a body in MQTT 3.1
            opened 3.1; < raw d0 01 00 !remaining_length
        a PUBACK of one byte in MQTT 5.0
            opened; > publish a qos=1 id=10; < raw 40 01 0a !remaining_length
    """)

    def check_malformed(self, fault: FaultReport, at: RuleContext) -> Findings:
        """Say when the packet is one of the other version."""
        if lawful_elsewhere(at) or nothing_understood(at):
            return None
        event = at.event
        found = event.malformed  # type: ignore[union-attr]
        kind = (event.type or "packet").upper()  # type: ignore[union-attr]
        other = other_layout(found, at.version)
        hint = "" if other is None else f"; it is laid out as in MQTT {other.text}"
        # Acknowledgements have no length of their own in 5.0, they only lack fields.
        lacks = at.version >= V5 and found.packet_type not in _PINGS
        statements = ("V5-LENGTH-overrun",) if lacks else None
        return self.report(fault.field, f"{kind}: {fault.detail}{hint}", statements=statements)
