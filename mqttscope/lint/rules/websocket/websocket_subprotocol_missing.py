"""WSK202."""

from mqttscope.lint.context import RuleContext
from mqttscope.lint.examples import examples
from mqttscope.lint.finding import Confidence, Severity
from mqttscope.lint.rule import V3_1, V3_1_1, V5, Findings, Rule
from mqttscope.lint.shared_checks import NOT_OFFERED, problem
from mqttscope.mqtt.constants import Direction
from mqttscope.mqtt.packets import Connect
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

    good = examples("""
        mqtt is offered
            upgraded; > frame connect; < frame connack
        mqtt is offered among others
            version 3.1.1; upgraded offered="mqttv3.1, mqtt"; > frame connect; < frame connack
    """)
    bad = examples("""
        only the old name
            version 3.1.1; upgraded offered=mqttv3.1 selected=mqttv3.1; > frame connect !; < frame connack
        nothing is offered
            upgraded offered=none selected=none; > frame connect !
        upper case
            upgraded offered=MQTT selected=MQTT; > frame connect !
        the old name in MQTT 3.1: information
            version 3.1; upgraded offered=mqttv3.1 selected=mqttv3.1; > frame connect !
        no MQTT follows
            upgraded offered=none selected=none; < fin !
    """)

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
