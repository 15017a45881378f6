"""CON105."""

from mqttscope.lint.context import RuleContext
from mqttscope.lint.examples import client, conversation, examples, hexadecimal, make_connect, opened, server
from mqttscope.lint.finding import Severity
from mqttscope.lint.rule import V3_1, V3_1_1, V5, Findings, Rule
from mqttscope.mqtt.constants import Direction
from mqttscope.mqtt.packets import Connack, Connect
from mqttscope.session.connection import KNOWN_LEVELS


class PasswordWithoutUsername(Rule):
    """A client sends a password without a user name before MQTT 5.0.

    Versions 3.1 and 3.1.1 know a password only together with a user name; servers reject the CONNECT, or look for the
    user name where the password stands.  MQTT 5.0 allows a password alone.

    Instead, send a user name too (it may be empty), or speak MQTT 5.0.
    """

    code = "CON105"
    severity = Severity.ERROR
    versions = (V3_1, V3_1_1)
    statements = {V3_1_1: {"MQTT-3.1.2-22": ""}, V3_1: {"V31-CONNECT-password-without-username": ""}}
    looks_at = Connect
    signs = ("odd_connect",)
    sender = Direction.CLIENT_TO_SERVER

    good = examples(
        lambda: [
            conversation("both", *opened(V3_1_1, user_name="u", password=b"p")),
            conversation("an empty user name counts", *opened(V3_1_1, user_name="", password=b"p")),
            conversation("a user name alone", *opened(V3_1_1, user_name="u")),
            conversation("MQTT 5.0 allows a password alone", *opened(password=b"p")),
            conversation(
                "3.1: both flags, both fields left out",
                client(hexadecimal("10 10 00 06 4d 51 49 73 64 70 03 c2 00 3c 00 02 63 31")),
                server(Connack()),
                version=V3_1,
            ),
        ]
    )
    bad = examples(
        lambda: [
            conversation("a password alone", client(make_connect(V3_1_1, password=b"secret")).marked("password")),
            conversation("a password alone in 3.1", client(make_connect(V3_1, password=b"secret")).marked("password")),
        ]
    )

    def check(self, packet: Connect, at: RuleContext) -> Findings:
        """Look at the flags."""
        if not lacks_user_name(packet):
            return None
        return self.report(
            "password", "CONNECT: Password Flag is 1 while User Name Flag is 0, which only MQTT 5.0 allows"
        )


def lacks_user_name(packet: Connect) -> bool:
    """Whether a CONNECT of 3.1 or 3.1.1 has the Password Flag without the User Name Flag."""
    if packet.protocol_level == V5 or packet.protocol_level not in KNOWN_LEVELS:
        return False
    flags = packet.derived_flags() if packet.connect_flags is None else packet.connect_flags
    return flags & 0xC0 == 0x40
