"""CON225."""

from mqttscope.lint.context import RuleContext
from mqttscope.lint.examples import client, closes, conversation, examples, make_connect, opened, server
from mqttscope.lint.finding import Severity
from mqttscope.lint.rule import V3_1, V3_1_1, Findings, Rule
from mqttscope.mqtt.constants import Direction, PacketType, reason_name
from mqttscope.mqtt.packets import Auth, Connack, Pingreq, Publish, Subscribe
from mqttscope.mqtt.parts import Subscription
from mqttscope.mqtt.properties import Properties

_METHOD = Properties(authentication_method="A")
_NOT_LOST = (PacketType.CONNECT, PacketType.AUTH, PacketType.DISCONNECT)


class EarlyDataRefused(Rule):
    """What a client sent before the CONNACK is lost because the server refused it.

    A client may send packets right after its CONNECT.  When the CONNACK refuses, the server throws them away, and a
    client library that counts them as sent loses messages without a word.

    Instead, wait for the CONNACK before sending, or send everything again after a refusal.
    """

    code = "CON225"
    severity = Severity.INFO
    looks_at = Connack
    when = "reason_code"
    sender = Direction.SERVER_TO_CLIENT

    good = examples(
        lambda: [
            conversation("accepted", client(make_connect(), Publish(topic_name="a")), server(Connack())),
            conversation("nothing sent before", *opened(), client(Publish(topic_name="a"))),
            conversation(
                "refused, but nothing was lost",
                client(make_connect()),
                server(Connack(reason_code=0x87)),
                closes("server"),
            ),
            conversation(
                "AUTH is no data",
                client(make_connect(properties=_METHOD)),
                server(Auth(0x18, _METHOD)),
                client(Auth(0x18, _METHOD)),
                server(Connack(reason_code=0x87)),
                closes("server"),
            ),
        ]
    )
    bad = examples(
        lambda: [
            conversation(
                "a message",
                client(make_connect(), Publish(qos=1, topic_name="a", packet_identifier=1)),
                server(Connack(reason_code=0x87)).marked("reason_code"),
                closes("server"),
            ),
            conversation(
                "several packets in 3.1.1",
                client(make_connect(V3_1_1), Subscribe(1, None, [Subscription("a")])),
                client(Publish(topic_name="a"), Publish(topic_name="b")),
                server(Connack(reason_code=5)).marked("reason_code"),
                closes("server"),
            ),
            conversation(
                "in 3.1",
                client(make_connect(V3_1), Pingreq()),
                server(Connack(reason_code=4)).marked("reason_code"),
                closes("server"),
            ),
        ]
    )

    def check(self, packet: Connack, at: RuleContext) -> Findings:
        """Count what came before a refusal."""
        code = packet.reason_code
        if not code or not at.history.early or at.history.connack is not None:
            return None
        rows = [(kind, at.other.counts[kind]) for kind in PacketType if kind not in _NOT_LOST and at.other.counts[kind]]
        if not rows:
            return None
        total = sum(count for _, count in rows)
        what = ", ".join(f"{count} {kind.name}" for kind, count in rows)
        sent = "1 packet" if total == 1 else f"{total} packets"
        return self.report(
            "reason_code",
            f"{sent} ({what}) sent before CONNACK lost to refusal 0x{code:02x} "
            f"({reason_name(PacketType.CONNACK, code, at.version)})",
            sender=Direction.CLIENT_TO_SERVER,
        )
