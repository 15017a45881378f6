"""DIS201."""

from mqttscope.lint.context import RuleContext
from mqttscope.lint.examples import client, closes, conversation, crossing, examples, hexadecimal, opened, server
from mqttscope.lint.finding import Related, Report, Severity
from mqttscope.lint.rule import V3_1, V3_1_1, V5, Findings, Needs, Rule, packet_name
from mqttscope.mqtt.constants import PacketType
from mqttscope.mqtt.declare import ControlPacket, Malformed
from mqttscope.mqtt.packets import Disconnect, Pingreq, Publish


class PacketAfterDisconnect(Rule):
    """A side sends packets after its own DISCONNECT.

    DISCONNECT is the last packet of its sender; what follows is not read any more, so messages sent then are lost.

    Instead, send everything first, then DISCONNECT, and close the connection.
    """

    code = "DIS201"
    severity = Severity.ERROR
    statements = {V5: {"MQTT-3.14.4-1": ""}, V3_1_1: {"MQTT-3.14.4-2": "client"}}
    looks_at = ControlPacket
    signs = ("disconnected",)
    settled = False
    needs = Needs.WHOLE_SENDER

    good = examples(
        lambda: [
            conversation(
                "DISCONNECT last", *opened(), client(Publish(topic_name="a")), client(Disconnect()), closes("client")
            ),
            conversation(
                "the other side had not read it yet",
                *opened(),
                client(Disconnect()),
                crossing(server(Publish(topic_name="a"))),
                closes("client"),
            ),
            conversation(
                "crossing DISCONNECT packets",
                *opened(),
                server(Disconnect(0x8B)),
                crossing(client(Disconnect())),
                closes("server"),
            ),
        ]
    )
    bad = examples(
        lambda: [
            conversation(
                "a message after DISCONNECT",
                *opened(),
                client(Disconnect()),
                client(Publish(topic_name="a")).marked(""),
            ),
            conversation(
                "two more packets in 3.1.1",
                *opened(V3_1_1),
                client(Disconnect(), Publish(topic_name="a"), Pingreq()).marked("", at=1).marked("", at=2),
            ),
            conversation("DISCONNECT twice in 3.1", *opened(V3_1), client(Disconnect(), Disconnect()).marked("")),
            conversation("bytes of type 0", *opened(), client(Disconnect()), client(hexadecimal("00 00")).marked("")),
            conversation(
                "the server continues",
                *opened(),
                server(Disconnect(0x8B)),
                server(hexadecimal("30 04 00 01 61 00")).marked(""),
            ),
        ]
    )

    def check(self, packet: ControlPacket, at: RuleContext) -> Findings:
        """The state knows who has taken leave."""
        if at.party.disconnect is None:
            return None
        return self._after(packet_name(packet), at)

    def check_damaged(self, found: Malformed, at: RuleContext) -> Findings:
        """The same for a packet that cannot be read to its end."""
        if at.party.disconnect is None or found.complete:
            return None
        kind = found.packet_type
        return self._after(f"a malformed {PacketType(kind).name}" if kind else "a packet of reserved type", at)

    def _after(self, what: str, at: RuleContext) -> Report:
        left = at.party.disconnect
        assert left is not None
        who = "the client" if at.from_client else "the server"
        leave = Related("the DISCONNECT", left.packet, left.frame, left.timestamp_ns)
        return self.report("", f"{who} sent {what} after its own DISCONNECT", related=(leave,))
