"""OPS106."""

from mqttscope.lint.context import RuleContext
from mqttscope.lint.examples import conversation, examples, opened
from mqttscope.lint.finding import Severity
from mqttscope.lint.rule import V3_1_1, V5, Findings, Rule
from mqttscope.mqtt.constants import Direction
from mqttscope.mqtt.packets import Connect
from mqttscope.mqtt.properties import Properties


class CleanStart0WithoutExpiry(Rule):
    """A client wants to resume its session but lets it end with the connection.

    In MQTT 5.0 Clean Start says only how a session begins.  How long it lives is the Session Expiry Interval, and one
    that is left out is 0.  It is the usual slip when a client with CleanSession 0 is moved from 3.1.1: everything
    works until the first reconnect, when subscriptions and queued messages are gone.

    Instead, set a Session Expiry Interval, or Clean Start 1 where nothing has to survive.
    """

    code = "OPS106"
    severity = Severity.WARNING
    versions = (V5,)
    looks_at = Connect
    sender = Direction.CLIENT_TO_SERVER

    good = examples(
        lambda: [
            conversation("an hour", *opened(clean_start=False, connect=Properties(session_expiry_interval=3600))),
            conversation("a second", *opened(clean_start=False, connect=Properties(session_expiry_interval=1))),
            conversation("Clean Start 1", *opened()),
            conversation("MQTT 3.1.1", *opened(V3_1_1, clean_start=False)),
        ]
    )
    bad = examples(
        lambda: [
            conversation("no expiry", opened(clean_start=False)[0].marked("clean_start"), opened()[1]),
            conversation(
                "an expiry of 0",
                opened(clean_start=False, connect=Properties(session_expiry_interval=0))[0].marked("clean_start"),
                opened()[1],
            ),
        ]
    )

    def check(self, packet: Connect, at: RuleContext) -> Findings:
        """What is left out counts as 0."""
        if packet.clean_start is not False or packet.properties is None or packet.properties.session_expiry_interval:
            return None
        return self.report(
            "clean_start",
            f"CONNECT of {at.client_name!r}: Clean Start 0 but Session Expiry Interval 0, the session ends with the "
            "connection anyway",
        )
