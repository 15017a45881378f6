"""HDR104."""

from mqttscope.lint.context import RuleContext
from mqttscope.lint.examples import client, conversation, examples, hexadecimal, opened, server
from mqttscope.lint.finding import Severity
from mqttscope.lint.rule import V3_1, V3_1_1, V5, Findings, Rule
from mqttscope.lint.rules import lawful_elsewhere, nothing_understood
from mqttscope.lint.shared_checks import other_layout
from mqttscope.mqtt.constants import MalformedReason, PacketType
from mqttscope.mqtt.declare import FaultReport
from mqttscope.mqtt.packets import Disconnect, Pingreq, Pingresp, Puback, Publish

_PINGS = (PacketType.PINGREQ, PacketType.PINGRESP)


class RemainingLengthWrong(Rule):
    """A packet has another Remaining Length than its type allows.

    PINGREQ and PINGRESP have no body; before MQTT 5.0 acknowledgements have two bytes and DISCONNECT has none.  The
    receiver closes the connection, or reads what follows as packets that nobody sent.  On a connection of MQTT 3.1 or
    3.1.1 a longer packet mostly comes from an encoder for 5.0, which adds a reason code and properties.

    Instead, write the packet as its version lays it out.
    """

    code = "HDR104"
    severity = Severity.ERROR
    reason_code = 0x81
    statements = {V5: {"V5-LENGTH-empty-packets": "pingreq,pingresp"}, V3_1_1: {"V311-LENGTH-fixed": ""}}
    also = {V3_1_1: ("MQTT-3.2.2-6",), V3_1: ("V31-DISCONNECT-client-only",)}
    malformed = (MalformedReason.REMAINING_LENGTH_WRONG,)

    good = examples(
        lambda: [
            conversation("pings without a body", *opened(), client(Pingreq()), server(Pingresp())),
            conversation(
                "two bytes of PUBACK and none of DISCONNECT in MQTT 3.1.1",
                *opened(V3_1_1),
                client(Publish(qos=1, topic_name="a", packet_identifier=10)),
                server(Puback(10)),
                client(Disconnect()),
            ),
            conversation(
                "MQTT 5.0 lets a PUBACK have two to four bytes and more",
                *opened(),
                client(Publish(qos=1, topic_name="a", packet_identifier=10)),
                server(hexadecimal("40 02 00 0a")),
                client(Publish(qos=1, topic_name="a", packet_identifier=10)),
                server(hexadecimal("40 03 00 0a 10")),
                client(Publish(qos=1, topic_name="a", packet_identifier=10)),
                server(hexadecimal("40 04 00 0a 10 00")),
            ),
        ]
    )
    bad = examples(
        lambda: [
            conversation(
                "a PINGREQ with a body", *opened(), client(hexadecimal("c0 01 00")).marked("remaining_length")
            ),
            conversation(
                "a PUBACK of MQTT 5.0 in MQTT 3.1.1",
                *opened(V3_1_1),
                client(Publish(qos=1, topic_name="a", packet_identifier=10)),
                server(hexadecimal("40 04 00 0a 00 00")).marked("remaining_length"),
            ),
            conversation(
                "a server that refuses MQTT 3.1.1 in the layout of 5.0",
                opened(V3_1_1)[0],
                server(hexadecimal("20 03 00 84 00")).marked("remaining_length"),
            ),
            conversation(
                "a DISCONNECT with a reason in MQTT 3.1.1",
                *opened(V3_1_1),
                client(hexadecimal("e0 01 00")).marked("remaining_length"),
            ),
            conversation(
                "a PINGRESP with a body in MQTT 3.1",
                *opened(V3_1),
                server(hexadecimal("d0 01 00")).marked("remaining_length"),
            ),
            conversation(
                "a PUBACK of one byte in MQTT 5.0",
                *opened(),
                client(Publish(qos=1, topic_name="a", packet_identifier=10)),
                server(hexadecimal("40 01 0a")).marked("remaining_length"),
            ),
        ]
    )

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
