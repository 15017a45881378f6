"""WSK202."""

from mqttscope.lint.context import RuleContext
from mqttscope.lint.examples import (
    client,
    closes,
    conversation,
    examples,
    framed,
    make_connect,
    server,
    upgraded,
    web_opened,
)
from mqttscope.lint.finding import Confidence, Severity
from mqttscope.lint.rule import V3_1, V3_1_1, V5, Findings, Rule
from mqttscope.lint.shared_checks import NOT_OFFERED, problem
from mqttscope.mqtt.constants import Direction
from mqttscope.mqtt.packets import Connack, Connect
from mqttscope.session.connection import Connection


class WebsocketSubprotocolMissing(Rule):
    """A client asks for a WebSocket without offering the subprotocol 'mqtt'.

    A server that carries several protocols on one port cannot know what is meant, and strict ones refuse.  The name is
    compared as it is written.  'mqttv3.1' is what clients of MQTT 3.1 used before there was a standard, so of those it
    is told as information.

    Instead, put 'mqtt' into the header Sec-WebSocket-Protocol of the request.
    """

    code = "WSK202"
    severity = Severity.ERROR
    severities = (Severity.ERROR, Severity.INFO)
    statements = {V5: {"MQTT-6.0.0-3": ""}, V3_1_1: {"MQTT-6.0.0-3": ""}}
    looks_at = Connect
    signs = ("websocket",)
    sender = Direction.CLIENT_TO_SERVER

    good = examples(
        lambda: [
            conversation("mqtt is offered", *web_opened()),
            conversation(
                "mqtt is offered among others",
                *upgraded("mqttv3.1, mqtt"),
                client(framed(make_connect(V3_1_1), version=V3_1_1)),
                server(framed(Connack(), masked=False, version=V3_1_1)),
                version=V3_1_1,
            ),
        ]
    )
    bad = examples(
        lambda: [
            conversation(
                "only the old name",
                *upgraded("mqttv3.1", "mqttv3.1"),
                client(framed(make_connect(V3_1_1), version=V3_1_1)).marked(""),
                server(framed(Connack(), masked=False, version=V3_1_1)),
                version=V3_1_1,
            ),
            conversation("nothing is offered", *upgraded(None, None), client(framed(make_connect())).marked("")),
            conversation("upper case", *upgraded("MQTT", "MQTT"), client(framed(make_connect())).marked("")),
            conversation(
                "the old name in MQTT 3.1: information",
                *upgraded("mqttv3.1", "mqttv3.1"),
                client(framed(make_connect(V3_1), version=V3_1)).marked(""),
                version=V3_1,
            ),
            conversation("no MQTT follows", *upgraded(None, None), closes("server").marked("")),
        ]
    )

    def check(self, packet: Connect, at: RuleContext) -> Findings:
        """The first CONNECT says which version asks."""
        return self._judge(at.connection, at, None) if at.history.connect_sent is None else None

    def check_close(self, connection: Connection, at: RuleContext) -> Findings:
        """The server may have closed because of it."""
        return self._judge(connection, at, Confidence.LIKELY) if at.history.connect_sent is None else None

    def _judge(self, connection: Connection, at: RuleContext, confidence: Confidence | None) -> Findings:
        told = problem(connection, *NOT_OFFERED)
        if told is None:
            return None
        reason, detail = told
        old = at.version == V3_1 and reason == "subprotocol_old"
        return self.report(
            "",
            f"the WebSocket upgrade does not offer the subprotocol 'mqtt': {detail}",
            severity=Severity.INFO if old else None,
            confidence=confidence,
            sender=Direction.CLIENT_TO_SERVER,
        )
