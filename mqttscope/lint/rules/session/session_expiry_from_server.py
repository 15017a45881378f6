"""SES109."""

from mqttscope.lint.context import RuleContext
from mqttscope.lint.examples import client, conversation, examples, opened, server
from mqttscope.lint.finding import Severity
from mqttscope.lint.rule import V5, Findings, Rule
from mqttscope.lint.rules import sides_guessed
from mqttscope.mqtt.constants import Direction
from mqttscope.mqtt.packets import Disconnect
from mqttscope.mqtt.properties import Properties


class SessionExpiryFromServer(Rule):
    """A server sends a Session Expiry Interval in DISCONNECT.

    Only the client may change how long its session is kept when the connection ends.  A client takes the property for
    a protocol error, or believes in a lifetime that the server does not keep to.

    Instead, announce another Session Expiry Interval in CONNACK.
    """

    code = "SES109"
    severity = Severity.ERROR
    versions = (V5,)
    statements = {V5: {"MQTT-3.14.2-2": ""}}
    looks_at = Disconnect
    sender = Direction.SERVER_TO_CLIENT
    when = "properties"

    good = examples(
        lambda: [
            conversation(
                "a reason only",
                *opened(),
                server(Disconnect(reason_code=0x8B, properties=Properties(reason_string="update"))),
            ),
            conversation(
                "from the client it is right",
                *opened(connect=Properties(session_expiry_interval=60)),
                client(Disconnect(reason_code=0, properties=Properties(session_expiry_interval=0))),
            ),
        ]
    )
    bad = examples(
        lambda: [
            conversation(
                "even 0",
                *opened(),
                server(Disconnect(reason_code=0x8B, properties=Properties(session_expiry_interval=0))).marked(
                    "properties.session_expiry_interval"
                ),
            ),
        ]
    )

    def check(self, packet: Disconnect, at: RuleContext) -> Findings:
        """The property must not be there."""
        interval = packet.properties.session_expiry_interval if packet.properties is not None else None
        if interval is None or sides_guessed(at):
            return None
        told = f"DISCONNECT from the server has Session Expiry Interval {interval:,}"
        return self.report("properties.session_expiry_interval", told)
