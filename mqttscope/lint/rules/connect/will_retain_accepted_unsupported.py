"""CON223."""

from mqttscope.lint.context import RuleContext
from mqttscope.lint.examples import client, closes, conversation, examples, make_connect, opened, server
from mqttscope.lint.finding import Related, Severity
from mqttscope.lint.rule import V5, Findings, Rule
from mqttscope.mqtt.constants import Direction
from mqttscope.mqtt.packets import Connack
from mqttscope.mqtt.parts import Will
from mqttscope.mqtt.properties import Properties


class WillRetainAcceptedUnsupported(Rule):
    """A server accepts a retained will although it announces that it retains nothing.

    The will cannot be kept as asked, so that clients which subscribe later never learn that the client is gone.

    Instead, refuse the CONNECT with 0x9A (Retain not supported) and close the connection.
    """

    code = "CON223"
    severity = Severity.ERROR
    versions = (V5,)
    statements = {V5: {"MQTT-3.2.2-13": ""}}
    looks_at = Connack
    sender = Direction.SERVER_TO_CLIENT
    when = "properties"

    good = examples(
        lambda: [
            conversation(
                "refused",
                client(make_connect(will=Will("w", b"x", will_retain=True))),
                server(Connack(reason_code=0x9A)),
                closes("server"),
            ),
            conversation("not retained", *opened(will=Will("w", b"x"), connack=Properties(retain_available=0))),
            conversation(
                "supported", *opened(will=Will("w", b"x", will_retain=True), connack=Properties(retain_available=1))
            ),
        ]
    )
    bad = examples(
        lambda: [
            conversation(
                "Retain Available 0",
                client(make_connect(will=Will("w", b"x", will_retain=True))),
                server(Connack(properties=Properties(retain_available=0))).marked("properties.retain_available"),
            ),
        ]
    )

    def check(self, packet: Connack, at: RuleContext) -> Findings:
        """Compare with the CONNECT."""
        connect, sent = at.history.connect, at.history.connect_sent
        if packet.reason_code or packet.properties is None or packet.properties.retain_available != 0:
            return None
        if connect is None or sent is None or connect.will is None or not connect.will.will_retain:
            return None
        request = Related("the CONNECT", sent.packet, sent.frame, sent.timestamp_ns)
        return self.report(
            "properties.retain_available",
            "CONNACK accepts Will Retain 1 and announces Retain Available 0",
            related=(request,),
        )
