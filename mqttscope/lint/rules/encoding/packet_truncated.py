"""ENC107."""

from mqttscope.lint.context import RuleContext
from mqttscope.lint.examples import client, closes, conversation, examples, hexadecimal, opened, server
from mqttscope.lint.finding import Confidence, Severity
from mqttscope.lint.rule import V3_1, V3_1_1, V5, Findings, Rule
from mqttscope.lint.rules import nothing_understood
from mqttscope.mqtt.constants import MalformedReason
from mqttscope.mqtt.declare import FaultReport
from mqttscope.mqtt.packets import Connack, Publish


class PacketTruncated(Rule):
    """A field reaches past the end of its packet, or the sender closes the connection inside a packet.

    The Remaining Length says where the packet ends, and a field in it announces more bytes than are left: one of the
    two lengths is wrong, or text was counted in characters and not in bytes.  The receiver closes the connection.  A
    packet that the capture cut off is not meant: only a sender that closes in good order can leave one unfinished.
    Where the other side had closed before, it may have had no reason to send the rest: that is a guess.

    Instead, compute the Remaining Length from the encoded bytes of all fields, and send packets whole.
    """

    code = "ENC107"
    severity = Severity.ERROR
    reason_code = 0x81
    statements = {V5: {"V5-LENGTH-overrun": ""}, V3_1_1: {"V311-LENGTH-overrun": ""}}
    also = {
        V5: ("MQTT-3.1.2-17", "MQTT-3.1.2-19", "MQTT-3.3.2-1"),
        V3_1_1: ("MQTT-3.1.2-19", "MQTT-3.1.2-21", "MQTT-3.3.2-1", "MQTT-3.10.3-1"),
    }
    malformed = (MalformedReason.FIELD_OVERRUN, MalformedReason.TRUNCATED)

    good = examples(
        lambda: [
            conversation("the topic fills the packet", *opened(V3_1_1), client(hexadecimal("30 05 00 03 61 2f 62"))),
            conversation(
                "the capture ends inside a packet",
                *opened(),
                client(Publish(topic_name="a")),
                client(hexadecimal("30 08 00")),
            ),
            conversation(
                "a reset inside a packet",
                *opened(),
                client(Publish(topic_name="a")),
                client(hexadecimal("30 08 00")),
                closes("client", "reset"),
            ),
            conversation(
                "MQTT 3.1 lets a CONNECT end before the user name that its flags announce",
                client(hexadecimal("10 10 00 06 4d 51 49 73 64 70 03 82 00 3c 00 02 63 31")),
                server(Connack()),
                version=V3_1,
            ),
        ]
    )
    bad = examples(
        lambda: [
            conversation(
                "a topic of five bytes where two are left",
                *opened(),
                client(hexadecimal("30 04 00 05 61 2f")).marked("topic_name"),
            ),
            conversation(
                "in MQTT 3.1.1", *opened(V3_1_1), client(hexadecimal("30 04 00 05 61 2f")).marked("topic_name")
            ),
            conversation(
                "no room for the packet identifier, in MQTT 3.1",
                *opened(V3_1),
                client(hexadecimal("32 06 00 03 61 2f 62 00")).marked("packet_identifier"),
            ),
            conversation(
                "a SUBSCRIBE without options for its last filter",
                *opened(),
                client(hexadecimal("82 08 00 0a 00 00 03 61 2f 62")).marked("subscriptions[0].options"),
            ),
            conversation(
                "the client closes inside a packet",
                *opened(),
                client(hexadecimal("30 08 00 03 61 2f")).marked(""),
                closes("client"),
            ),
            conversation(
                "the other side has closed before: only a guess",
                *opened(),
                client(hexadecimal("30 08 00 03 61 2f")).marked(""),
                closes("server"),
                closes("client"),
            ),
        ]
    )

    def check_malformed(self, fault: FaultReport, at: RuleContext) -> Findings:
        """Say who cut the packet where it is not a field's length."""
        if nothing_understood(at):
            return None
        found = at.event.malformed  # type: ignore[union-attr]
        kind = at.event.type  # type: ignore[union-attr]
        kind = "packet" if kind in (None, "reserved") else kind.upper()
        if fault.reason is MalformedReason.TRUNCATED:
            sender, other = ("client", "server") if at.from_client else ("server", "client")
            told = f"the {sender} closed the connection inside a {kind}: {fault.detail}"
            if at.connection.closed_by == other:
                # It may have been about to send the rest.
                return self.report(
                    fault.field, f"{told}; the {other} had closed before", confidence=Confidence.HEURISTIC
                )
            return self.report(fault.field, told)
        left = f"{fault.field} {fault.detail}" if fault.field else fault.detail
        return self.report(fault.field, f"{kind}: {left} within its {len(found.raw)} bytes")
