from dataclasses import dataclass

from mqttscope.events import PacketEvent
from mqttscope.lint.context import SECOND_NS, ConnectionKey
from mqttscope.lint.finding import Scope
from mqttscope.lint.rule import V3_1_1, V5, Findings, Needs, Rule, packet_name
from mqttscope.lint.rules import C2S, S2C, Confidence, Connection, Related, Report, RuleContext, Severity, examples
from mqttscope.lint.session_model import TOLERANCE_SECONDS, SessionModel, doubted
from mqttscope.lint.waiting import has_arrived, has_closed
from mqttscope.mqtt.packets import Connack, Disconnect
from mqttscope.session.connection import host_of


@dataclass(slots=True)
class EndedSession:
    """A connection that resumed a session although the client's own session had ended."""

    key: ConnectionKey | None = None
    how: str = ""
    """How and when the client's session ended."""
    is_other_host: bool = False
    """Whether the client had another address before."""


class UnexpectedSessionPresentTolerated(Rule):
    """A client continues although the server reports a session that the client cannot have.

    Server and client disagree about the session: messages for another client may arrive, and the client's own may be
    lost.  The client can detect this: it asked for a clean start, or its session ended with the previous connection or
    has expired since.  (SES303 reports the server's mistake.)  Reported with the client's first packet after that
    CONNACK, or if it has not closed for ``timeout`` seconds.  A client at a new address may be another client with a
    session of its own: a heuristic warning.  In MQTT 3.1.1 the client may continue.

    Instead, close the connection if Session Present is 1 and you have no session.
    """

    code = "SES510"
    scope = Scope.SESSION
    severities = (Severity.ERROR, Severity.WARNING, Severity.INFO)
    confidence = Confidence.LIKELY
    versions = (V3_1_1, V5)
    statements = {V5: {"MQTT-3.2.2-4": ""}}
    sender = S2C
    when = "session_present"
    settled = False
    needs = Needs.OPENING | Needs.WHOLE
    settings = {
        "timeout": 30,
        # Seconds during which a client may still have an ended session.
        "tolerance": TOLERANCE_SECONDS,
    }
    models = (SessionModel,)
    Memory = EndedSession

    # In every example a server error provokes the finding, so good cases are few.
    good = examples("""
        the client has a session
            opened resume < present; > subscribe 1 a:0
        Session Present 0
            opened keep_alive=0; @1 opened client=c2 keep_alive=0; +90 @1 > fin
        reconnected before the interval has run out
            opened session_expiry_interval=60; > disconnect; > fin; +30 > nothing
            @1 opened resume session_expiry_interval=60 < present; @1 > pingreq
        the client may not have noticed yet that its connection had ended
            opened; > reset; @1 opened resume < present; @1 > pingreq
        the interval may have been in lost bytes
            opened session_expiry_interval=60; lost > disconnect code=0 session_expiry_interval=3600; > fin
            +600 > nothing; @1 opened resume < present; @1 > pingreq
        the previous session is older than the capture
            midstream; > pingreq; < pingresp; > disconnect; > fin; +5 > nothing; @1 opened resume < present
            @1 > pingreq
    """)
    bad = examples("""
        the client subscribes
            opened < present; > subscribe 1 a:0 !!
        packets in flight are ignored, the next one is reported
            opened < present; crossing > publish a; > pingreq !!; > pingreq
        the client stays connected and sends nothing
            opened < present; > ack; @1 opened client=c2; +60 @1 > fin !
        in 3.1.1
            opened 3.1.1 < present; > pingreq !!
        its session ended with its connection
            opened; > disconnect; > fin; +5 > nothing; @1 opened resume < present; @1 > subscribe 1 a:0 !!
        its session has run out
            opened session_expiry_interval=60; > disconnect; > fin; +300 > nothing; @1 opened resume < present
            @1 > pingreq !!
        CleanSession 1 in 3.1.1
            opened 3.1.1; > disconnect; > fin; +5 > nothing; @1 opened resume < present; @1 > pingreq !!
    """)

    def check(self, packet: Connack, at: RuleContext) -> Findings:
        """Wait for the client's reaction."""
        connect = at.history.connect
        if packet.reason_code or at.history.connack is not None or connect is None:
            return None
        if not connect.clean_start:
            how = self._ended(at)
            if not how or not connect.client_identifier:
                return None
            memory: EndedSession = at.memory(self)
            memory.key, memory.how = at.key, how
            host = host_of(at.model(SessionModel).client)
            memory.is_other_host = host != host_of(at.connection.client)
        at.ask(self, at.timestamp_ns + self.nanoseconds("timeout"))
        at.ask(self, at.timestamp_ns)
        return None

    def _ended(self, at: RuleContext) -> str:
        """How the client's previous session ended, or an empty string if it may continue."""
        model, connect = at.model(SessionModel), at.history.connect
        until = model.kept_until(float(self.set["tolerance"]))
        if connect is None or until is None or not model.is_of(connect) or at.is_apart(model.capture):
            return ""
        if at.timestamp_ns <= sum(until):
            return ""
        how = "had run out" if model.kept_seconds else "ended with its connection"
        return f"its session {how} {(at.timestamp_ns - until[0]) / SECOND_NS:,.0f} s before"

    def check_due(self, connection: Connection, at: RuleContext) -> Findings:
        """Check whether the client does anything but close."""
        sent, memory = at.history.connack_sent, at.memory(self)
        if not at.connection.clean_start and memory.key != at.key:
            return None  # another connection has the session
        if sent is None or has_closed(at, C2S) or has_closed(at, S2C) or at.history.client.disconnect is not None:
            return None
        due_ns = sent.timestamp_ns + self.nanoseconds("timeout")
        event = at.event
        if isinstance(event, PacketEvent):
            if at.from_client and isinstance(event.packet, Disconnect):
                return None
            if at.from_client and at.knew(sent):
                return self._report(f"sends {packet_name(event.packet)}", at)
        elif at.timestamp_ns >= due_ns:
            if not has_arrived(at.history.server, sent.position):
                return None
            return self._report(f"has not closed for {self.set['timeout']} s", at)
        if due_ns > at.timestamp_ns:
            at.ask(self, due_ns)
        at.ask(self, at.timestamp_ns)
        return None

    def _report(self, reaction: str, at: RuleContext) -> Report:
        sent, memory = at.history.connack_sent, at.memory(self)
        assert sent is not None
        is_clean = bool(at.connection.clean_start)
        why = "it asked for a clean start" if is_clean else memory.how
        doubt = doubted(apart=not is_clean and memory.is_other_host)
        if at.version is not V5:
            doubt["severity"] = Severity.INFO
        return self.report(
            "",
            f"client {reaction} after CONNACK with Session Present 1, although {why}",
            sender=C2S,
            related=(Related.to("the CONNACK", sent),),
            overdue=True,
            **doubt,
        )
