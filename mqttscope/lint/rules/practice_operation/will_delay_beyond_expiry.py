"""OPS107."""

from mqttscope.lint.context import RuleContext
from mqttscope.lint.examples import conversation, examples, opened
from mqttscope.lint.finding import Severity
from mqttscope.lint.rule import V5, Findings, Rule
from mqttscope.mqtt.constants import Direction
from mqttscope.mqtt.packets import Connect
from mqttscope.mqtt.parts import Will
from mqttscope.mqtt.properties import Properties


def _will(delay: int) -> Will:
    return Will("w", b"x", properties=Properties(will_delay_interval=delay))


class WillDelayBeyondExpiry(Rule):
    """A client delays its will beyond the end of its session.

    The will is published when the delay is over or when the session ends, whichever is first, so the delay has no
    effect beyond the Session Expiry Interval.  It may be meant: then the will says that the session is gone.

    Instead, let the session live longer than the delay.
    """

    code = "OPS107"
    severity = Severity.INFO
    versions = (V5,)
    looks_at = Connect
    sender = Direction.CLIENT_TO_SERVER

    good = examples(
        lambda: [
            conversation(
                "the delay is shorter", *opened(will=_will(10), connect=Properties(session_expiry_interval=60))
            ),
            conversation("as long", *opened(will=_will(60), connect=Properties(session_expiry_interval=60))),
            conversation(
                "the session never ends",
                *opened(will=_will(0xFFFFFFFF), connect=Properties(session_expiry_interval=0xFFFFFFFF)),
            ),
            conversation("no delay and no expiry", *opened(will=_will(0))),
        ]
    )
    bad = examples(
        lambda: [
            conversation(
                "a second longer",
                opened(will=_will(61), connect=Properties(session_expiry_interval=60))[0].marked(
                    "will.properties.will_delay_interval"
                ),
                opened()[1],
            ),
            conversation(
                "the session ends with the connection",
                opened(will=_will(60))[0].marked("will.properties.will_delay_interval"),
                opened()[1],
            ),
        ]
    )

    def check(self, packet: Connect, at: RuleContext) -> Findings:
        """What is left out counts as 0."""
        if packet.will is None or packet.will.properties is None or packet.properties is None:
            return None
        delay = packet.will.properties.will_delay_interval or 0
        expiry = packet.properties.session_expiry_interval or 0
        if delay <= expiry:
            return None
        return self.report(
            "will.properties.will_delay_interval",
            f"CONNECT of {at.client_name!r}: Will Delay Interval {delay} s exceeds Session Expiry Interval {expiry} s",
        )
