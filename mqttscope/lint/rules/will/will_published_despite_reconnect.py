"""WIL406."""

from mqttscope.lint.broker_watch import SECOND_NS, doubt
from mqttscope.lint.context import RuleContext
from mqttscope.lint.examples import examples
from mqttscope.lint.finding import Confidence, Severity
from mqttscope.lint.rule import V5, Findings, Rule
from mqttscope.lint.rules.delivery import ALL_SUBSCRIPTIONS
from mqttscope.lint.rules.will import was_there, will_in
from mqttscope.lint.wills import TAKEN_BACK, Wills
from mqttscope.mqtt.constants import Direction
from mqttscope.mqtt.packets import Publish

CLOSE_NS = 2 * SECOND_NS
"""How much of Will Delay has to be left when the client is back: who was first need not be as the capture has it."""
LATE_NS = 60 * SECOND_NS
"""How long after the end of Will Delay a message is taken for the will."""


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

    good = examples("""
        back in time
            @1 opened client=c2; @1 > subscribe 1 dead/#:0; @1 < suback 1 0
            opened will=dead/c1 will_payload=gone will.will_delay_interval=30 session_expiry_interval=300; > reset
            +5 @2 > nothing; @2 opened resume session_expiry_interval=300 < present
        back with a new session
            @1 opened client=c2; @1 > subscribe 1 dead/#:0; @1 < suback 1 0
            opened will=dead/c1 will_payload=gone will.will_delay_interval=30 session_expiry_interval=300; > reset
            +5 @2 > nothing; @2 opened session_expiry_interval=300; @1 < publish dead/c1 gone
        back too late
            @1 opened client=c2; @1 > subscribe 1 dead/#:0; @1 < suback 1 0
            opened will=dead/c1 will_payload=gone will.will_delay_interval=30 session_expiry_interval=300; > reset
            +31 @2 > nothing; @2 opened resume session_expiry_interval=300 < present; @1 < publish dead/c1 gone
        back at the last moment
            @1 opened client=c2; @1 > subscribe 1 dead/#:0; @1 < suback 1 0
            opened will=dead/c1 will_payload=gone will.will_delay_interval=30 session_expiry_interval=300; > reset
            +29 @2 > nothing; @2 opened resume session_expiry_interval=300 < present; @1 < publish dead/c1 gone
        gone again, with the same will
            @1 opened client=c2; @1 > subscribe 1 dead/#:0; @1 < suback 1 0
            opened will=dead/c1 will_payload=gone will.will_delay_interval=30 session_expiry_interval=300; > reset
            +5 @2 > nothing; @2 opened resume will=dead/c1 will_payload=gone session_expiry_interval=300 < present
            @2 > reset; @1 < publish dead/c1 gone
        somebody says the same
            @1 opened client=c2; @1 > subscribe 1 dead/#:0; @1 < suback 1 0
            opened will=dead/c1 will_payload=gone will.will_delay_interval=30 session_expiry_interval=300; > reset
            +5 @2 > nothing; @2 opened resume session_expiry_interval=300 < present; @2 > publish dead/c1 gone
            @1 < publish dead/c1 gone
    """)
    bad = examples("""
        published when the client is back
            @1 opened client=c2; @1 > subscribe 1 dead/#:0; @1 < suback 1 0
            opened will=dead/c1 will_payload=gone will.will_delay_interval=30 session_expiry_interval=300; > reset
            +5 @2 > nothing; @2 opened resume session_expiry_interval=300 < present; @1 < publish dead/c1 gone !payload
        published when Will Delay is over, though the client has it again
            @1 opened client=c2; @1 > subscribe 1 dead/#:0; @1 < suback 1 0
            opened will=dead/c1 will_payload=gone will.will_delay_interval=30 session_expiry_interval=300; > reset
            +5 @2 > nothing
            @2 opened resume will=dead/c1 will_payload=gone will.will_delay_interval=30 session_expiry_interval=300 <
                present
            +25 @1 > nothing; @1 < publish dead/c1 gone !payload
    """)

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
