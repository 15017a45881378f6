from mqttscope.lint.examples import examples
from mqttscope.lint.rules import SECOND_NS, V3_1_1, V5, Confidence, Findings, Needs, Rule, RuleContext, Severity
from mqttscope.lint.session_model import TOLERANCE_SECONDS, SessionModel, doubted
from mqttscope.mqtt import Connack, Direction


class SessionOutlivedExpiry(Rule):
    """A server resumes a session that should have ended.

    The client decides how long its state is useful.  After that, old commands, readings and subscriptions are unwanted,
    and a server that never deletes sessions fills up.  A session ends with its connection if its interval is 0
    (CleanSession 1 in 3.1.1), otherwise when the interval after the connection has run out.  Servers may check late: a
    tenth of the interval, at least ``tolerance`` seconds, is not reported.  If the two connections are in different
    captures, it is a heuristic warning.  SES303 reports the Session Present flag of the same CONNACK.

    Instead, discard the state of a session when it ends, and check the time when a client reconnects.
    """

    code = "SES305"
    severities = (Severity.ERROR, Severity.WARNING)
    confidence = Confidence.LIKELY
    versions = (V3_1_1, V5)
    statements = {V5: {"MQTT-4.1.0-2": ""}}
    also = {V3_1_1: ("MQTT-3.1.2-6",)}
    when = "session_present"
    sender = Direction.SERVER_TO_CLIENT
    needs = Needs.OPENING | Needs.WHOLE
    models = (SessionModel,)
    settings = {
        # Seconds during which a server may still have an ended session.
        "tolerance": TOLERANCE_SECONDS,
    }

    good = examples("""
        resumed in time
            opened session_expiry_interval=10000; > disconnect; > fin; +9000 > nothing; @1 opened resume < present
        a new session after its end
            opened session_expiry_interval=10; > disconnect; > fin; +300 > nothing; @1 opened resume
        a server that checks once a minute
            opened session_expiry_interval=10; > disconnect; > fin; +60 > nothing; @1 opened resume < present
        DISCONNECT extended the session
            opened session_expiry_interval=10; > disconnect code=0 session_expiry_interval=10000; > fin; +300 > nothing
            @1 opened resume < present
        the old connection is still open
            opened; +300 > nothing; @1 opened resume < present
        a client with the same identifier but another user name
            opened user_name=alice session_expiry_interval=10; > disconnect; > fin; +300 > nothing
            @1 opened resume user_name=bob < present
    """)
    bad = examples("""
        the interval has run out
            opened session_expiry_interval=10; > disconnect; > fin; +300 > nothing
            @1 opened resume < present !session_present
        the interval set by the server has run out
            opened session_expiry_interval=10000 < session_expiry_interval=10; > disconnect; > fin; +300 > nothing
            @1 opened resume < present !session_present
        CleanSession 1 in 3.1.1
            opened 3.1.1; > disconnect; > fin; +5 > nothing; @1 opened resume < present !session_present
    """)

    def check(self, packet: Connack, at: RuleContext) -> Findings:
        """Compare the time with the end of the session."""
        connect = at.history.connect
        if packet.reason_code or at.history.connack is not None or not packet.session_present:
            return None
        if connect is None or connect.clean_start or not connect.client_identifier:
            return None
        model = at.model(SessionModel)
        until = model.kept_until(float(self.set["tolerance"]))
        if not model.is_of(connect) or until is None or at.timestamp_ns <= sum(until):
            return None
        since = (at.timestamp_ns - until[0]) / SECOND_NS
        how = f"expired {since:,.0f} s ago" if model.kept_seconds else f"ended with its connection {since:,.0f} s ago"
        return self.report(
            "session_present",
            f"session of {at.client_name!r} {how} but was resumed",
            related=() if model.connack is None else (model.connack,),
            **doubted(apart=at.is_apart(model.capture)),
        )
