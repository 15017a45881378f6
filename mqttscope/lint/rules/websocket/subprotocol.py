"""WSK202, WSK203: the subprotocol of a WebSocket."""

from mqttscope.lint.rules import V3_1, V3_1_1, V5, Confidence, Findings, Rule, RuleContext, Severity, examples
from mqttscope.lint.shared_checks import NOT_OFFERED, problem
from mqttscope.mqtt import Connect, Direction
from mqttscope.net.http_upgrade import OLD_SUBPROTOCOL, SUBPROTOCOL
from mqttscope.secrets.addresses import public_details
from mqttscope.session.connection import Connection

SWITCHES = 101
"""Status of an answer that takes the upgrade."""


class SubprotocolRule(Rule):
    """The subprotocol, judged at the first CONNECT or at an end without any."""

    severity = Severity.ERROR
    signs = ("websocket",)
    sender = Direction.CLIENT_TO_SERVER

    def check(self, packet: Connect, at: RuleContext) -> Findings:
        """The first CONNECT shows the version."""
        return self.judge(at.connection, at, None) if at.history.connect_sent is None else None

    def check_close(self, connection: Connection, at: RuleContext) -> Findings:
        """A side may have closed because of the subprotocol."""
        return self.judge(connection, at, Confidence.LIKELY) if at.history.connect_sent is None else None

    def judge(self, connection: Connection, at: RuleContext, confidence: Confidence | None) -> Findings:
        raise NotImplementedError


class WebsocketSubprotocolMissing(SubprotocolRule):
    """A client asks for a WebSocket without offering the subprotocol 'mqtt'.

    A server that carries several protocols on one port cannot know what is meant, and strict ones refuse.  The name is
    compared as it is written.  'mqttv3.1' is what clients of MQTT 3.1 used before there was a standard, so of those it
    is told as information.

    Instead, put 'mqtt' into the header Sec-WebSocket-Protocol of the request.
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
        the old name in MQTT 3.1: information
            version 3.1; upgraded offered=mqttv3.1 selected=mqttv3.1; > frame connect !
        no MQTT follows
            upgraded offered=none selected=none; < fin !
    """)

    def judge(self, connection: Connection, at: RuleContext, confidence: Confidence | None) -> Findings:
        """Look at the offers."""
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
    """A server answers a WebSocket upgrade with another subprotocol than 'mqtt', or with none.

    Browsers close a connection whose server does not confirm what they offered, and clients of MQTT check the name.  A
    client that did not offer 'mqtt' leaves the server no right answer but to refuse, so then it is a warning; the old
    name 'mqttv3.1' on a connection of MQTT 3.1 is information.

    Instead, answer with 'mqtt' when it is among the offers, and refuse the upgrade when it is not.
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
        nothing fits and the server does not refuse: a warning
            upgraded offered=none selected=none; > frame connect !
        the old name in MQTT 3.1: information
            version 3.1; upgraded offered=mqttv3.1 selected=mqttv3.1; > frame connect !
    """)

    def judge(self, connection: Connection, at: RuleContext, confidence: Confidence | None) -> Findings:
        """Look at the answer."""
        details = connection.websocket or {}
        if "subprotocol" not in details or problem(connection, "response_not_seen") is not None:
            return None
        if details.get("status", SWITCHES) != SWITCHES:
            return None  # an upgrade that is refused selects nothing
        selected = details["subprotocol"]
        if selected == SUBPROTOCOL or connection.transport != "websocket":
            return None
        severity = None
        # It may be a token that the client had offered beside it.
        shown = public_details({"subprotocol": selected})["subprotocol"]
        answer = "no subprotocol" if selected is None else f"subprotocol {shown!r}"
        message = f"the WebSocket upgrade was answered with {answer}, must be 'mqtt'"
        if at.version == V3_1 and selected == OLD_SUBPROTOCOL:
            severity = Severity.INFO
        elif problem(connection, *NOT_OFFERED) is not None:
            severity = Severity.WARNING
            message += "; since the client did not offer it, the upgrade should have been refused"
        return self.report("", message, severity=severity, confidence=confidence, sender=Direction.SERVER_TO_CLIENT)
