"""HDR103."""

from mqttscope.lint.context import RuleContext
from mqttscope.lint.examples import client, conversation, examples, opened, server
from mqttscope.lint.finding import Confidence, Severity
from mqttscope.lint.rule import V3_1, V3_1_1, V5, Findings, Rule, packet_name
from mqttscope.lint.rules import nothing_understood, sides_guessed
from mqttscope.mqtt.declare import ControlPacket
from mqttscope.mqtt.packets import (
    Connack,
    Connect,
    Disconnect,
    Pingreq,
    Pingresp,
    Puback,
    Publish,
    Suback,
    Subscribe,
    Unsuback,
    Unsubscribe,
)
from mqttscope.mqtt.parts import Subscription

_REQUESTS = (Connect, Subscribe, Unsubscribe, Pingreq)


class PacketWrongDirection(Rule):
    """A packet is sent by the side that never sends its type.

    Clients connect, subscribe, unsubscribe and ping; servers answer.  Before MQTT 5.0 only clients send DISCONNECT,
    and a server closes the connection without a word.  The receiver treats the packet as a protocol error.

    Instead, let each side send the packet types of its role; a server of MQTT 3.1 or 3.1.1 just closes.
    """

    code = "HDR103"
    severity = Severity.ERROR
    reason_code = 0x82
    statements = {
        V5: {"V5-TYPE-direction": ""},
        V3_1_1: {"V311-TYPE-direction": ""},
        V3_1: {"V31-DISCONNECT-client-only": "server disconnect"},
    }
    looks_at = (Connect, Connack, Subscribe, Suback, Unsubscribe, Unsuback, Pingreq, Pingresp, Disconnect)
    signs = ("wrong_sender",)

    good = examples(
        lambda: [
            conversation(
                "requests and answers",
                *opened(),
                client(Subscribe(1, subscriptions=[Subscription("a")])),
                server(Suback(1, reason_codes=[0])),
                client(Unsubscribe(2, topic_filters=["a"])),
                server(Unsuback(2, reason_codes=[0])),
                client(Pingreq()),
                server(Pingresp()),
                client(Publish(topic_name="b")),
                client(Disconnect()),
            ),
            conversation(
                "joined in the middle, where nothing says who is who",
                client(Publish(topic_name="b", payload=b"hello"), Puback(1), Puback(2)),
                server(Publish(topic_name="c", payload=b"hello"), Disconnect()),
                version=V3_1_1,
                handshake=False,
                server="10.0.0.2:40000",
            ),
            conversation("a server of MQTT 5.0 says why it closes", *opened(), server(Disconnect(0x8B))),
        ]
    )
    bad = examples(
        lambda: [
            conversation("a PINGRESP from the client", *opened(), client(Pingresp()).marked("")),
            conversation("a PINGREQ from the server", *opened(), server(Pingreq()).marked("")),
            conversation(
                "a SUBSCRIBE from the server, in MQTT 3.1.1",
                *opened(V3_1_1),
                server(Subscribe(1, subscriptions=[Subscription("a")])).marked(""),
            ),
            conversation(
                "a DISCONNECT from the server, in MQTT 3.1.1", *opened(V3_1_1), server(Disconnect()).marked("")
            ),
            conversation("a DISCONNECT from the server, in MQTT 3.1", *opened(V3_1), server(Disconnect()).marked("")),
            conversation("a CONNACK from the client", *opened(), client(Connack()).marked("")),
        ]
    )

    def check(self, packet: ControlPacket, at: RuleContext) -> Findings:
        """Compare with the table of directions."""
        if isinstance(packet, Disconnect) and (at.version >= V5 or not at.connection.version_known):
            return None
        asks = isinstance(packet, (*_REQUESTS, Disconnect))
        if asks == at.from_client or sides_guessed(at) or nothing_understood(at):
            return None
        sender, allowed = ("client", "server") if at.from_client else ("server", "client")
        return self.report(
            "",
            f"{packet_name(packet)} sent by the {sender}, only the {allowed} may send it",
            # After a gap a packet may be one by chance.
            confidence=Confidence.LIKELY if at.sender.gapped else None,
        )
