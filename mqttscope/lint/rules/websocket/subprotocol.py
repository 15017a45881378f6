"""WSK202, WSK203: the subprotocol of a WebSocket."""

from mqttscope.lint.rules import V3_1, V3_1_1, V5, Confidence, Findings, Rule, RuleContext, Severity, examples
from mqttscope.lint.shared_checks import NOT_OFFERED, problem
from mqttscope.mqtt import Connect, Direction
from mqttscope.net.http_upgrade import OLD_SUBPROTOCOL, SUBPROTOCOL
from mqttscope.secrets.addresses import public_details
from mqttscope.session.connection import Connection

SWITCHES = 101
"""HTTP status of a successful upgrade."""


class SubprotocolRule(Rule):
    """A rule about the subprotocol, applied at the first CONNECT or at an end without CONNECT."""

    severity = Severity.ERROR
    signs = ("websocket",)
    sender = Direction.CLIENT_TO_SERVER

    def check(self, packet: Connect, at: RuleContext) -> Findings:
        """Check at the first CONNECT, which has the version."""
        return self.judge(at.connection, at, None) if at.history.connect_sent is None else None

    def check_close(self, connection: Connection, at: RuleContext) -> Findings:
        """Check at the end, since a side may have closed because of the subprotocol."""
        return self.judge(connection, at, Confidence.LIKELY) if at.history.connect_sent is None else None

    def judge(self, connection: Connection, at: RuleContext, confidence: Confidence | None) -> Findings:
        raise NotImplementedError


class WebsocketSubprotocolMissing(SubprotocolRule):
    """A client requests a WebSocket without offering the subprotocol 'mqtt'.

    A server with several protocols on one port cannot choose the right one, and strict servers refuse.  The name is
    compared exactly.  Clients of MQTT 3.1 used 'mqttv3.1' before there was a standard, so for them the finding is info.

    Instead, send the header Sec-WebSocket-Protocol with 'mqtt' in the request.
    """

    code = "WSK202"
    severities = (Severity.ERROR, Severity.INFO)
    statements = {V5: {"MQTT-6.0.0-3": ""}, V3_1_1: {"MQTT-6.0.0-3": ""}}

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
        the old name in MQTT 3.1: info
            version 3.1; upgraded offered=mqttv3.1 selected=mqttv3.1; > frame connect !
        no MQTT follows
            upgraded offered=none selected=none; < fin !
    """)

    def judge(self, connection: Connection, at: RuleContext, confidence: Confidence | None) -> Findings:
        """Check the offers."""
        offer = problem(connection, *NOT_OFFERED)
        if offer is None:
            return None
        reason, detail = offer
        is_old = at.version == V3_1 and reason == "subprotocol_old"
        return self.report(
            "",
            f"the WebSocket upgrade does not offer the subprotocol 'mqtt': {detail}",
            severity=Severity.INFO if is_old else None,
            confidence=confidence,
            sender=Direction.CLIENT_TO_SERVER,
        )


class WebsocketSubprotocolWrong(SubprotocolRule):
    """A server answers a WebSocket upgrade without selecting the subprotocol 'mqtt'.

    Browsers close a connection if the server does not confirm an offered subprotocol, and MQTT clients check the name.
    If the client did not offer 'mqtt', the server can only refuse, so a wrong answer is a warning; the old name
    'mqttv3.1' on a connection of MQTT 3.1 is info.

    Instead, answer with 'mqtt' if it was offered, and otherwise refuse the upgrade.
    """

    code = "WSK203"
    severities = (Severity.ERROR, Severity.WARNING, Severity.INFO)
    statements = {V5: {"MQTT-6.0.0-4": ""}, V3_1_1: {"MQTT-6.0.0-4": ""}}

    good = examples("""
        mqtt is selected
            upgraded; > frame connect; < frame connack
        mqtt is selected from several
            upgraded offered="mqttv3.1, mqtt"; > frame connect; < frame connack
        without WebSocket
            opened
    """)
    bad = examples("""
        nothing is selected
            upgraded selected=none; > frame connect !
        the old name is selected
            version 3.1.1; upgraded offered="mqtt, mqttv3.1" selected=mqttv3.1; > frame connect !
        the client closes because of it
            upgraded selected=none; > fin !
        nothing suitable is offered and the server does not refuse: a warning
            upgraded offered=none selected=none; > frame connect !
        the old name in MQTT 3.1: info
            version 3.1; upgraded offered=mqttv3.1 selected=mqttv3.1; > frame connect !
    """)

    def judge(self, connection: Connection, at: RuleContext, confidence: Confidence | None) -> Findings:
        """Check the answer."""
        details = connection.websocket or {}
        if "subprotocol" not in details or problem(connection, "response_not_seen") is not None:
            return None
        if details.get("status", SWITCHES) != SWITCHES:
            return None  # a refused upgrade selects nothing
        selected = details["subprotocol"]
        if selected == SUBPROTOCOL or connection.transport != "websocket":
            return None
        severity = None
        # The value may be a token that the client offered as a subprotocol.
        shown = public_details({"subprotocol": selected})["subprotocol"]
        answer = "no subprotocol" if selected is None else f"subprotocol {shown!r}"
        message = f"the WebSocket upgrade was answered with {answer}, but must be answered with 'mqtt'"
        if at.version == V3_1 and selected == OLD_SUBPROTOCOL:
            severity = Severity.INFO
        elif problem(connection, *NOT_OFFERED) is not None:
            severity = Severity.WARNING
            message += "; since the client did not offer it, the upgrade should have been refused"
        return self.report("", message, severity=severity, confidence=confidence, sender=Direction.SERVER_TO_CLIENT)
