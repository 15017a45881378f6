"""SES305."""

from mqttscope.lint.context import RuleContext
from mqttscope.lint.examples import client, closes, conversation, examples, on, opened, server
from mqttscope.lint.finding import Confidence, Severity
from mqttscope.lint.rule import V3_1_1, V5, Findings, Needs, Rule
from mqttscope.lint.session_model import SECOND_NS, TOLERANCE_SECONDS, SessionModel, doubted
from mqttscope.mqtt.constants import Direction
from mqttscope.mqtt.packets import Connack, Disconnect
from mqttscope.mqtt.properties import Properties

_SHORT = Properties(session_expiry_interval=10)
_LONG = Properties(session_expiry_interval=10_000)
_LEAVES = (client(Disconnect()), closes("client"))
_PRESENT = server(Connack(session_present=True))


class SessionOutlivedExpiry(Rule):
    """A server resumes a session after its end.

    The client said how long its state is of use.  What comes back later are commands and readings that nobody expects
    any more, and subscriptions of another life; and a server that never deletes sessions fills up.  A session ends with
    its connection where its interval is 0 (CleanSession 1 in 3.1.1), else when the interval has run out after that.
    Servers may look late: a tenth of the interval, at least ``tolerance`` seconds, is not reported.  Where the two
    connections are in different captures it is a heuristic warning.  SES303 is about the same CONNACK, as what the
    client is told.

    Instead, discard the state of a session when it ends, and look at the time when a client comes back.
    """

    code = "SES305"
    severity = Severity.ERROR
    severities = (Severity.ERROR, Severity.WARNING)
    confidence = Confidence.LIKELY
    versions = (V3_1_1, V5)
    statements = {V5: {"MQTT-4.1.0-2": ""}}
    also = {V3_1_1: ("MQTT-3.1.2-6",)}
    looks_at = Connack
    when = "session_present"
    sender = Direction.SERVER_TO_CLIENT
    needs = Needs.OPENING | Needs.WHOLE
    models = (SessionModel,)
    settings = {
        # Seconds for which a server may still have a session that has ended.
        "tolerance": TOLERANCE_SECONDS,
    }

    good = examples(
        lambda: [
            conversation(
                "resumed in time",
                *opened(connect=_LONG),
                *_LEAVES,
                client(after=9_000),
                *on(1, *opened(clean_start=False, session_present=True)),
            ),
            conversation(
                "a new one after its end",
                *opened(connect=_SHORT),
                *_LEAVES,
                client(after=300),
                *on(1, *opened(clean_start=False)),
            ),
            conversation(
                "a server that looks once a minute",
                *opened(connect=_SHORT),
                *_LEAVES,
                client(after=60),
                *on(1, *opened(clean_start=False, session_present=True)),
            ),
            conversation(
                "DISCONNECT made it longer",
                *opened(connect=_SHORT),
                client(Disconnect(reason_code=0, properties=_LONG)),
                closes("client"),
                client(after=300),
                *on(1, *opened(clean_start=False, session_present=True)),
            ),
            conversation(
                "the old connection is still open",
                *opened(),
                client(after=300),
                *on(1, *opened(clean_start=False, session_present=True)),
            ),
            conversation(
                "another user's client of the same name",
                *opened(user_name="alice", connect=_SHORT),
                *_LEAVES,
                client(after=300),
                *on(1, *opened(user_name="bob", clean_start=False, session_present=True)),
            ),
        ]
    )
    bad = examples(
        lambda: [
            conversation(
                "the interval has run out",
                *opened(connect=_SHORT),
                *_LEAVES,
                client(after=300),
                *on(1, *opened(clean_start=False)[:1], _PRESENT.marked("session_present")),
            ),
            conversation(
                "the server's own interval has run out",
                *opened(connect=_LONG, connack=_SHORT),
                *_LEAVES,
                client(after=300),
                *on(1, *opened(clean_start=False)[:1], _PRESENT.marked("session_present")),
            ),
            conversation(
                "CleanSession 1 in 3.1.1",
                *opened(V3_1_1),
                *_LEAVES,
                client(after=5),
                *on(1, *opened(V3_1_1, clean_start=False)[:1], _PRESENT.marked("session_present")),
            ),
        ]
    )

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
        how = (
            f"expired {since:,.0f} s before"
            if model.kept_seconds
            else f"ended with its connection {since:,.0f} s before"
        )
        return self.report(
            "session_present",
            f"session of {at.client_name!r} {how}, and is resumed",
            related=() if model.connack is None else (model.connack,),
            **doubted(apart=at.is_apart(model.capture)),
        )
