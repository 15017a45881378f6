"""AUT206."""

from mqttscope.lint.context import RuleContext
from mqttscope.lint.examples import client, conversation, examples, lost, make_connect, opened, server
from mqttscope.lint.finding import Related, Severity
from mqttscope.lint.rule import V5, Findings, Rule, packet_name
from mqttscope.mqtt.constants import Direction, PacketType
from mqttscope.mqtt.declare import ControlPacket
from mqttscope.mqtt.packets import Auth, Connack, Disconnect, Publish
from mqttscope.mqtt.properties import Properties

_METHOD = Properties(authentication_method="SCRAM-SHA-1")


class PacketDuringAuth(Rule):
    """A client that chose enhanced authentication sends other packets before the CONNACK.

    Until the exchange is over the server does not know who speaks, and takes nothing but AUTH and DISCONNECT; it
    closes the connection.  Without an Authentication Method a client may send early.

    Instead, wait for the CONNACK.
    """

    code = "AUT206"
    severity = Severity.ERROR
    versions = (V5,)
    statements = {V5: {"MQTT-3.1.2-30": ""}}
    looks_at = ControlPacket
    signs = ("early",)
    settled = False
    sender = Direction.CLIENT_TO_SERVER

    good = examples(
        lambda: [
            conversation(
                "AUTH only",
                client(make_connect(properties=_METHOD)),
                server(Auth(0x18, _METHOD)),
                client(Auth(0x18, _METHOD)),
                server(Connack(properties=_METHOD)),
                client(Publish(topic_name="a")),
            ),
            conversation("given up", client(make_connect(properties=_METHOD)), client(Disconnect())),
            conversation(
                "early packets without a method", client(make_connect(), Publish(topic_name="a")), server(Connack())
            ),
            conversation(
                "a capture that has only the client's half",
                client(make_connect(properties=_METHOD)),
                lost(server(Connack(properties=_METHOD))),
                client(Publish(topic_name="a")),
            ),
            conversation("no method", *opened(), client(Publish(topic_name="a"))),
        ]
    )
    bad = examples(
        lambda: [
            conversation(
                "PUBLISH after CONNECT",
                client(make_connect(properties=_METHOD)),
                client(Publish(topic_name="a")).marked(""),
            ),
            conversation(
                "PUBLISH after AUTH",
                client(make_connect(properties=_METHOD)),
                server(Auth(0x18, _METHOD)),
                client(Auth(0x18, _METHOD), Publish(topic_name="a")).marked(""),
                server(Connack(properties=_METHOD)),
            ),
        ]
    )

    def check(self, packet: ControlPacket, at: RuleContext) -> Findings:
        """Between CONNECT and CONNACK, as far as the client had received the server's bytes."""
        history = at.history
        if history.connack is not None or history.connack_malformed is not None:
            return None
        connect, sent = history.connect, history.connect_sent
        if connect is None or sent is None or connect.properties is None or not saw_all(at):
            return None
        method = connect.properties.authentication_method
        if method is None or packet.packet_type in (PacketType.CONNECT, PacketType.AUTH, PacketType.DISCONNECT):
            return None
        request = Related("the CONNECT", sent.packet, sent.frame, sent.timestamp_ns)
        return self.report(
            "",
            f"the client sent {packet_name(packet)} before CONNACK although it named Authentication Method {method!r}",
            related=(request,),
        )


def saw_all(at: RuleContext) -> bool:
    """Whether the capture has all bytes of the other side that the sender had received when it sent this."""
    return not at.receiver.gapped and 0 <= at.party.acknowledged <= at.other.position
