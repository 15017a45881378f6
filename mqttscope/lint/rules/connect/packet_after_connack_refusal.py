"""CON221."""

from dataclasses import dataclass

from mqttscope.lint.context import RuleContext
from mqttscope.lint.examples import (
    client,
    closes,
    conversation,
    crossing,
    examples,
    hexadecimal,
    make_connect,
    opened,
    server,
)
from mqttscope.lint.finding import Related, Severity
from mqttscope.lint.rule import V3_1, V3_1_1, V5, Findings, Rule, packet_name
from mqttscope.mqtt.constants import PacketType, reason_name
from mqttscope.mqtt.declare import ControlPacket
from mqttscope.mqtt.packets import Connack, Disconnect, Pingreq, Publish, Suback, Subscribe
from mqttscope.mqtt.parts import Subscription


@dataclass(slots=True)
class _Memory:
    """Which side has been reported."""

    client: bool = False
    server: bool = False


class PacketAfterConnackRefusal(Rule):
    """A side continues after the server has refused the connection.

    A refusing CONNACK is the last packet.  A server that sends more has processed what a refused client sent with its
    CONNECT; a client that sends more speaks to nobody, which is a warning.  What the client had sent before the
    refusal reached it is not reported, nor is a DISCONNECT.  The first packet of each side is.

    Instead, close the connection: the server after its CONNACK, the client when it has received it.
    """

    code = "CON221"
    severity = Severity.ERROR
    severities = (Severity.ERROR, Severity.WARNING)
    statements = {V5: {"MQTT-3.1.4-6": ""}, V3_1_1: {"MQTT-3.1.4-5": ""}}
    looks_at = ControlPacket
    signs = ("refused",)
    settled = False
    Memory = _Memory

    good = examples(
        lambda: [
            conversation(
                "sent together with the CONNECT",
                client(make_connect(), Subscribe(1, None, [Subscription("a")])),
                server(Connack(reason_code=0x87)),
                closes("server"),
            ),
            conversation(
                "on its way when the refusal came",
                client(make_connect()),
                server(Connack(reason_code=0x87)),
                crossing(client(Publish(topic_name="a"))),
                closes("server"),
            ),
            conversation(
                "a client that takes leave",
                client(make_connect(V3_1_1)),
                server(Connack(reason_code=5)),
                client(Disconnect()),
                closes("server"),
            ),
            conversation("accepted", *opened(), client(Publish(topic_name="a"))),
        ]
    )
    bad = examples(
        lambda: [
            conversation(
                "the server answers a refused client",
                client(make_connect(), Subscribe(1, None, [Subscription("a")])),
                server(Connack(reason_code=0x87), Suback(1, None, [0])).marked(""),
            ),
            conversation(
                "the server answers a refused client of 3.1.1",
                client(make_connect(V3_1_1), Pingreq()),
                server(Connack(reason_code=5)),
                server(hexadecimal("d0 00")).marked(""),
                server(hexadecimal("d0 00")),
            ),
            conversation(
                "the client knew",
                client(make_connect()),
                server(Connack(reason_code=0x86)),
                client(Publish(topic_name="a")).marked(""),
                client(Publish(topic_name="a")),
            ),
            conversation(
                "the client knew in 3.1",
                client(make_connect(V3_1)),
                server(Connack(reason_code=4)),
                client(Pingreq()).marked(""),
            ),
            conversation(
                "both continue",
                client(make_connect()),
                server(Connack(reason_code=0x86)),
                client(Pingreq()).marked(""),
                server(hexadecimal("d0 00")).marked(""),
            ),
        ]
    )

    def check(self, packet: ControlPacket, at: RuleContext) -> Findings:
        """After a refusal."""
        connack = at.history.connack
        if connack is None or not connack.reason_code:
            return None
        kind, sent = packet.packet_type, at.history.connack_sent
        if kind == PacketType.DISCONNECT or sent is None:
            return None
        memory: _Memory = at.memory(self)
        if at.from_client:
            if memory.client or kind == PacketType.AUTH or not at.knew(sent):
                return None
            memory.client, who = True, "the client"
        else:
            if memory.server:
                return None
            memory.server, who = True, "the server"
        code = connack.reason_code
        refusal = Related("the refusal", sent.packet, sent.frame, sent.timestamp_ns)
        name = reason_name(PacketType.CONNACK, code, at.version)
        return self.report(
            "",
            f"{who} sent {packet_name(packet)} after the refusing CONNACK 0x{code:02x} ({name})",
            # The statements bind the server alone; a client only speaks to nobody.
            severity=Severity.WARNING if at.from_client else None,
            related=(refusal,),
        )
