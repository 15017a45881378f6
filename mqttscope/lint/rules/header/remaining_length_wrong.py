from mqttscope.lint.rules import V3_1, V3_1_1, V5, Findings, RuleContext, examples, nothing_decoded, valid_elsewhere
from mqttscope.lint.shared_checks import MalformedRule, other_layout
from mqttscope.mqtt.constants import MalformedReason, PacketType
from mqttscope.mqtt.declare import FaultReport

_PINGS = (PacketType.PINGREQ, PacketType.PINGRESP)


class RemainingLengthWrong(MalformedRule):
    """A packet has a Remaining Length that its type does not allow.

    PINGREQ and PINGRESP have no body; before MQTT 5.0 acknowledgements have two bytes and DISCONNECT has no body.  The
    receiver closes the connection, or reads the following bytes as packets that were never sent.  In MQTT 3.1 or 3.1.1
    a longer packet usually comes from an encoder for 5.0, which adds a reason code and properties.

    Instead, encode the packet in the layout of its version.
    """

    code = "HDR104"
    statements = {V5: {"V5-LENGTH-empty-packets": "pingreq,pingresp"}, V3_1_1: {"V311-LENGTH-fixed": ""}}
    also = {V3_1_1: ("MQTT-3.2.2-6",), V3_1: ("V31-DISCONNECT-client-only",)}
    malformed = (MalformedReason.REMAINING_LENGTH_WRONG,)

    good = examples("""
        pings without a body
            opened; > pingreq; < pingresp
        PUBACK with two bytes, DISCONNECT without a body, in MQTT 3.1.1
            opened 3.1.1; > publish a qos=1 id=10; < puback 10; > disconnect
        PUBACK may have two, three, four or more bytes in MQTT 5.0
            opened; > publish a qos=1 id=10; < raw 40 02 000a; > publish a qos=1 id=10; < raw 40 03 000a10
            > publish a qos=1 id=10; < raw 40 04 000a1000
    """)
    bad = examples("""
        a PINGREQ with a body
            opened; > raw c0 01 00 !remaining_length
        a PUBACK in the 5.0 layout in MQTT 3.1.1
            opened 3.1.1; > publish a qos=1 id=10; < raw 40 04 000a0000 !remaining_length
        a server that refuses MQTT 3.1.1 in the 5.0 layout
            > connect 3.1.1; < raw 20 03 008400 !remaining_length
        a DISCONNECT with a reason in MQTT 3.1.1
            opened 3.1.1; > raw e0 01 00 !remaining_length
        a PINGRESP with a body in MQTT 3.1
            opened 3.1; < raw d0 01 00 !remaining_length
        a one-byte PUBACK in MQTT 5.0
            opened; > publish a qos=1 id=10; < raw 40 01 0a !remaining_length
    """)

    def check_malformed(self, fault: FaultReport, at: RuleContext) -> Findings:
        """Mention the other version if its layout fits."""
        if valid_elsewhere(at) or nothing_decoded(at):
            return None
        event = at.event
        malformed = event.malformed  # type: ignore[union-attr]
        kind = (event.type or "packet").upper()  # type: ignore[union-attr]
        other = other_layout(malformed, at.version)
        hint = "" if other is None else f"; it is laid out as in MQTT {other.text}"
        # In 5.0 acknowledgements have no fixed length; a short one only lacks fields.
        lacks = at.version >= V5 and malformed.packet_type not in _PINGS
        statements = ("V5-LENGTH-overrun",) if lacks else None
        return self.report(fault.field, f"{kind}: {fault.detail}{hint}", statements=statements)
