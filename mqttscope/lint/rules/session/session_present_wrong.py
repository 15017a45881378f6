from mqttscope.lint.examples import examples
from mqttscope.lint.rules import SECOND_NS, V3_1_1, V5, Confidence, Findings, Needs, Report, Rule, RuleContext, Severity
from mqttscope.lint.session_model import SessionModel
from mqttscope.mqtt import Connack, Direction


class SessionPresentWrong(Rule):
    """CONNACK reports a session that must have ended, or no session although one should continue.

    The client relies on Session Present: with 1 it does not subscribe again and waits for messages that never arrive,
    with 0 it discards its own state.  A session ends with its connection (Session Expiry Interval 0, CleanSession 1 in
    3.1.1) or when its interval has run out.  The loss of a kept session is only info, since a restart or an operator
    may have ended it.  It is an error if the server has just taken the session over from another connection.  Sessions
    older than the capture are not checked.  If the two connections are in different captures, it is at most a heuristic
    warning: they may belong to different servers with the same address.

    Instead, keep the state of a session exactly as long as its interval, and report it truthfully.
    """

    code = "SES303"
    severities = (Severity.ERROR, Severity.WARNING, Severity.INFO)
    confidence = Confidence.LIKELY
    versions = (V3_1_1, V5)
    statements = {
        V5: {"MQTT-3.1.2-6": "", "MQTT-3.1.3-2": "", "MQTT-3.2.2-3": ""},
        V3_1_1: {"MQTT-3.1.3-2": "", "MQTT-3.2.2-3": ""},
    }
    also = {V3_1_1: ("MQTT-3.1.2-4", "MQTT-3.2.2-2")}
    sender = Direction.SERVER_TO_CLIENT
    needs = Needs.OPENING | Needs.WHOLE
    settings = {
        # Seconds during which a server may still have an ended session.
        "tolerance": 60,
    }
    models = (SessionModel,)

    good = examples("""
        a session older than the capture
            opened resume < present
        resumed before the interval has run out, and new after it
            opened session_expiry_interval=60; > disconnect; > fin
            @1 opened resume session_expiry_interval=60 < present; @1 > disconnect; @1 > fin; +300 > nothing
            @2 opened resume session_expiry_interval=60
        DISCONNECT changed the interval
            opened session_expiry_interval=60; > disconnect code=0 session_expiry_interval=3600; > fin; +600 > nothing
            @1 opened resume < present
        CONNACK changed the interval
            opened session_expiry_interval=60 < session_expiry_interval=3600; > disconnect; > fin; +600 > nothing
            @1 opened resume < present
        the server may not have noticed yet that the client is gone
            opened; > reset; @1 opened resume < present
        taken over while the connection was open: both answers are valid
            opened; @1 opened resume < present
        a client with the same identifier but another user name
            opened user_name=alice; > disconnect; > fin; +300 > nothing; @1 opened resume user_name=bob < present
        the interval may have been in lost bytes
            opened session_expiry_interval=60; lost > disconnect code=0 session_expiry_interval=3600; > fin
            +600 > nothing; @1 opened resume < present
    """)
    bad = examples("""
        the session ended with its connection
            opened; > disconnect; > fin; +5 > nothing; @1 opened resume < present !session_present
        CleanSession 1 in 3.1.1
            opened 3.1.1; > disconnect; > fin; +5 > nothing; @1 opened resume < present !session_present
        the interval has run out
            opened session_expiry_interval=60; > disconnect; > fin; +300 > nothing
            @1 opened resume < present !session_present
        lost during a takeover
            opened session_expiry_interval=3600; @1 > connect resume session_expiry_interval=3600
            < disconnect code=0x8e; @1 < connack !session_present; < fin
        info: lost before its expiry
            opened session_expiry_interval=3600; > disconnect; > fin; @1 opened resume < !session_present
    """)

    def check(self, packet: Connack, at: RuleContext) -> Findings:
        """Compare CONNACK with the known state of the client's session."""
        connect, sent = at.history.connect, at.history.connect_sent
        if packet.reason_code or at.history.connack is not None or packet.session_present is None:
            return None
        if connect is None or sent is None or connect.clean_start or not connect.client_identifier:
            return None
        model = at.model(SessionModel)
        if not model.is_of(connect):
            return None
        return self._compare(model, packet.session_present, sent.timestamp_ns, at)

    def _compare(self, model: SessionModel, present: bool, asked_ns: int, at: RuleContext) -> Report | None:
        """Report a wrong Session Present flag."""
        now_ns = at.timestamp_ns
        if model.live:
            if not present and model.lasting and asked_ns <= model.told_ns <= now_ns:
                return self._report(model, present, "taken over from another connection", at)
            return None
        until = model.kept_until(float(self.set["tolerance"]))
        if until is None:
            return None
        until_ns, slack_ns = until
        if present and now_ns > until_ns + slack_ns:
            gone = (now_ns - until_ns) / SECOND_NS
            how = "had run out" if model.kept_seconds else "ended with its connection"
            return self._report(model, present, f"its session {how} {gone:,.0f} s ago", at)
        if not present and model.kept_seconds and now_ns + slack_ns < until_ns:
            why = "its session should still exist, but a restart or an operator may have ended it"
            return self._report(model, present, why, at, severity=Severity.INFO, confidence=Confidence.HEURISTIC)
        return None

    def _report(
        self,
        model: SessionModel,
        present: bool,
        why: str,
        at: RuleContext,
        severity: Severity | None = None,
        confidence: Confidence | None = None,
    ) -> Report:
        if at.is_apart(model.capture) and severity is None:
            # The captures may be of different servers with the same address.
            severity, confidence = Severity.WARNING, Confidence.HEURISTIC
        statements = None if present or at.version is V5 else ("MQTT-3.2.2-2", "MQTT-3.1.2-4")
        return self.report(
            "session_present",
            f"CONNACK for {at.client_name!r}: Session Present {present:d}, expected {not present:d} ({why})",
            severity=severity,
            confidence=confidence,
            statements=statements,
            related=() if model.connack is None else (model.connack,),
        )
