"""AUT101."""

from mqttscope.lint.context import RuleContext
from mqttscope.lint.examples import client, conversation, examples, hexadecimal, make_connect, opened, server
from mqttscope.lint.finding import Severity
from mqttscope.lint.rule import V5, Findings, Rule, packet_name
from mqttscope.mqtt.packets import Connack, Connect
from mqttscope.mqtt.properties import Properties


class AuthDataWithoutMethod(Rule):
    """A CONNECT or CONNACK has Authentication Data without an Authentication Method.

    Only the method says what the data mean.  The specification calls it a protocol error in CONNECT; a CONNACK is
    judged alike, since its data answer a method too.

    Instead, send Authentication Method together with Authentication Data.
    """

    code = "AUT101"
    severity = Severity.ERROR
    reason_code = 0x82
    versions = (V5,)
    statements = {V5: {"V5-CONNECT-auth-data-alone": ""}}
    looks_at = (Connect, Connack)
    when = "properties"

    good = examples(
        lambda: [
            conversation(
                "both",
                *opened(
                    connect=Properties(authentication_method="A", authentication_data=b"x"),
                    connack=Properties(authentication_method="A", authentication_data=b"y"),
                ),
            ),
            conversation(
                "a method without data",
                *opened(
                    connect=Properties(authentication_method="A"),
                    connack=Properties(authentication_method="A"),
                ),
            ),
        ]
    )
    bad = examples(
        lambda: [
            conversation(
                "in CONNECT",
                client(hexadecimal("10 13 00 04 4d 51 54 54 05 02 00 3c 04 16 00 01 78 00 02 63 31")).marked(
                    "properties.authentication_data"
                ),
            ),
            conversation(
                "in CONNACK",
                client(make_connect()),
                server(Connack(properties=Properties(authentication_data=b"y"))).marked(
                    "properties.authentication_data"
                ),
            ),
        ]
    )

    def check(self, packet: Connect | Connack, at: RuleContext) -> Findings:
        """Look for both properties."""
        block = packet.properties
        if block is None or block.authentication_data is None or block.authentication_method is not None:
            return None
        return self.report(
            "properties.authentication_data",
            f"{packet_name(packet)} has Authentication Data without Authentication Method",
        )
