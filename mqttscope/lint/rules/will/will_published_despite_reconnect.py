"""WIL406."""

from mqttscope.lint.broker_watch import SECOND_NS, doubt
from mqttscope.lint.context import RuleContext
from mqttscope.lint.examples import Step, client, closes, conversation, examples, on, opened, server
from mqttscope.lint.finding import Confidence, Severity
from mqttscope.lint.rule import V5, Findings, Rule
from mqttscope.lint.rules.delivery import ALL_SUBSCRIPTIONS
from mqttscope.lint.rules.will import was_there, will_in
from mqttscope.lint.wills import TAKEN_BACK, Wills
from mqttscope.mqtt.constants import Direction
from mqttscope.mqtt.packets import Publish, Suback, Subscribe
from mqttscope.mqtt.parts import Subscription, Will
from mqttscope.mqtt.properties import Properties

CLOSE_NS = 2 * SECOND_NS
"""How much of Will Delay has to be left when the client is back: who was first need not be as the capture has it."""
LATE_NS = 60 * SECOND_NS
"""How long after the end of Will Delay a message is taken for the will."""

_WILL = Will("dead/c1", b"gone", properties=Properties(will_delay_interval=30))
_LASTS = Properties(session_expiry_interval=300)
_GETS = server(Publish(topic_name="dead/c1", payload=b"gone"))
_GONE = closes("client", "reset")


def _asks() -> tuple[Step, Step]:
    return client(Subscribe(1, subscriptions=[Subscription("dead/#", 0)])), server(Suback(1, reason_codes=[0]))


_READER = on(1, *opened(client_identifier="c2"), *_asks())


def _back(after: float, *, resumed: bool = True, will: Will | None = None) -> tuple[Step, ...]:
    first, second = opened(clean_start=not resumed, session_present=resumed, will=will, connect=_LASTS)
    return on(2, client(after=after), first, second)


class WillPublishedDespiteReconnect(Rule):
    """A server publishes a delayed will although its client has come back in time.

    Will Delay is there so that a short loss of the network is no alarm: a client that takes its session up again
    within the interval was never gone.  It is the old will that is reported; where the client comes with a new session
    (Clean Start 1), the end of the old one may make its will due.

    Instead, forget the delayed will when the client takes up its session.
    """

    code = "WIL406"
    severity = Severity.ERROR
    severities = (Severity.ERROR, Severity.WARNING)
    confidence = Confidence.LIKELY
    versions = (V5,)
    statements = {V5: {"MQTT-3.1.3-9": ""}}
    also = {V5: ("MQTT-3.1.2-8",)}
    looks_at = Publish
    sender = Direction.SERVER_TO_CLIENT
    needs = ALL_SUBSCRIPTIONS
    models = (Wills,)
    about = Wills, "topics"

    good = examples(
        lambda: [
            conversation("back in time", *_READER, *opened(will=_WILL, connect=_LASTS), _GONE, *_back(5)),
            conversation(
                "back with a new session",
                *_READER,
                *opened(will=_WILL, connect=_LASTS),
                _GONE,
                *_back(5, resumed=False),
                *on(1, _GETS),
            ),
            conversation(
                "back too late", *_READER, *opened(will=_WILL, connect=_LASTS), _GONE, *_back(31), *on(1, _GETS)
            ),
            conversation(
                "back at the last moment",
                *_READER,
                *opened(will=_WILL, connect=_LASTS),
                _GONE,
                *_back(29),
                *on(1, _GETS),
            ),
            conversation(
                "gone again, with the same will",
                *_READER,
                *opened(will=_WILL, connect=_LASTS),
                _GONE,
                *_back(5, will=Will("dead/c1", b"gone")),
                *on(2, _GONE),
                *on(1, _GETS),
            ),
            conversation(
                "somebody says the same",
                *_READER,
                *opened(will=_WILL, connect=_LASTS),
                _GONE,
                *_back(5),
                *on(2, client(Publish(topic_name="dead/c1", payload=b"gone"))),
                *on(1, _GETS),
            ),
        ]
    )
    bad = examples(
        lambda: [
            conversation(
                "published when the client is back",
                *_READER,
                *opened(will=_WILL, connect=_LASTS),
                _GONE,
                *_back(5),
                *on(1, _GETS.marked("payload")),
            ),
            conversation(
                "published when Will Delay is over, though the client has it again",
                *_READER,
                *opened(will=_WILL, connect=_LASTS),
                _GONE,
                *_back(5, will=_WILL),
                *on(1, client(after=25), _GETS.marked("payload")),
            ),
        ]
    )

    def check(self, packet: Publish, at: RuleContext) -> Findings:
        """Look whether the message can be nothing else than a will that was taken back."""
        found = will_in(packet, at)
        if found is None:
            return None
        _, will, _ = found
        now = at.timestamp_ns
        if will.phase != TAKEN_BACK or now < will.back_ns or now > will.due_ns + LATE_NS:
            return None
        if will.due_ns - will.back_ns < CLOSE_NS or not was_there(will.ended_ns, at):
            return None
        apart = max(0, will.back_ns - will.ended_ns) / SECOND_NS
        return self.report(
            "payload",
            f"will of {will.client!r} published to {at.client_name!r} although it was back {apart:,.1f} s later, "
            f"within Will Delay {will.delay_s} s",
            related=(will.connect,) if will.back is None else (will.connect, will.back),
            **doubt(at, doubtful=at.model(Wills).is_torn(at)),
        )
