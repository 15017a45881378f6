from mqttscope.events import PacketEvent
from mqttscope.lint.rule import V3_1_1, V5, Findings, Needs, Rule, packet_name
from mqttscope.lint.rules import C2S, S2C, Confidence, Connection, Related, Report, RuleContext, Severity, examples
from mqttscope.lint.waiting import has_arrived, has_closed
from mqttscope.mqtt.packets import Connack, Disconnect


class UnexpectedSessionPresentTolerated(Rule):
    """A client continues although the server says to have a session that the client has just asked to be deleted.

    Server and client do not agree about what is in the session: messages of somebody else may come, and those of the
    client itself may get lost.  The client asked for a clean start, so it knows better.  The finding comes with its
    first packet after that CONNACK, or when it has not closed for ``timeout`` seconds.  In MQTT 3.1.1 the client may
    decide.

    Instead, close the connection when Session Present is 1 and no session is known.
    """

    code = "SES510"
    severities = (Severity.ERROR, Severity.INFO)
    confidence = Confidence.LIKELY
    versions = (V3_1_1, V5)
    statements = {V5: {"MQTT-3.2.2-4": ""}}
    sender = S2C
    when = "session_present"
    settled = False
    needs = Needs.OPENING | Needs.WHOLE
    settings = {"timeout": 30}

    # What provokes it is an error of the server in every example, so that none of them is without one.
    good = examples("""
        the session was wanted
            opened resume < present; > subscribe 1 a:0
        there is none
            opened keep_alive=0; @1 opened client=c2 keep_alive=0; +90 @1 > fin
    """)
    bad = examples("""
        it subscribes
            opened < present; > subscribe 1 a:0 !!
        what was on its way does not count, what comes then does
            opened < present; crossing > publish a; > pingreq !!; > pingreq
        it stays and says nothing
            opened < present; > ack; @1 opened client=c2; +60 @1 > fin !
        in 3.1.1
            opened 3.1.1 < present; > pingreq !!
    """)

    def check(self, packet: Connack, at: RuleContext) -> Findings:
        """Wait for what the client does."""
        connect = at.history.connect
        if packet.reason_code or at.history.connack is not None or connect is None or not connect.clean_start:
            return None
        at.ask(self, at.timestamp_ns + self.nanoseconds("timeout"))
        at.ask(self, at.timestamp_ns)
        return None

    def check_due(self, connection: Connection, at: RuleContext) -> Findings:
        """Look whether the client does anything but close."""
        sent = at.history.connack_sent
        if sent is None or has_closed(at, C2S) or has_closed(at, S2C) or at.history.client.disconnect is not None:
            return None
        due_ns = sent.timestamp_ns + self.nanoseconds("timeout")
        event = at.event
        if isinstance(event, PacketEvent):
            if at.from_client and isinstance(event.packet, Disconnect):
                return None
            if at.from_client and at.knew(sent):
                return self._told(f"sends {packet_name(event.packet)}", at)
        elif at.timestamp_ns >= due_ns:
            if not has_arrived(at.history.server, sent.position):
                return None
            return self._told(f"has not closed for {self.set['timeout']} s", at)
        if due_ns > at.timestamp_ns:
            at.ask(self, due_ns)
        at.ask(self, at.timestamp_ns)
        return None

    def _told(self, what: str, at: RuleContext) -> Report:
        sent = at.history.connack_sent
        assert sent is not None
        return self.report(
            "",
            f"client {what} after CONNACK with Session Present 1, though it asked for a clean start",
            severity=None if at.version is V5 else Severity.INFO,
            sender=C2S,
            related=(Related.to("the CONNACK", sent),),
            overdue=True,
        )
