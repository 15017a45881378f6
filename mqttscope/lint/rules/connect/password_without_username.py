from mqttscope.lint.rules import V3_1, V3_1_1, V5, Findings, Rule, RuleContext, Severity, examples
from mqttscope.mqtt import Connect, Direction
from mqttscope.session.connection import KNOWN_LEVELS


class PasswordWithoutUsername(Rule):
    """A client sends a password without a user name before MQTT 5.0.

    Versions 3.1 and 3.1.1 allow a password only together with a user name.  Servers reject the CONNECT, or read the
    password as the user name.  MQTT 5.0 allows a password alone.

    Instead, send a user name too (it may be empty), or use MQTT 5.0.
    """

    code = "CON105"
    severity = Severity.ERROR
    versions = (V3_1, V3_1_1)
    statements = {V3_1_1: {"MQTT-3.1.2-22": ""}, V3_1: {"V31-CONNECT-password-without-username": ""}}
    signs = ("odd_connect",)
    sender = Direction.CLIENT_TO_SERVER

    good = examples("""
        both
            opened 3.1.1 user_name=u password=p
        an empty user name is enough
            opened 3.1.1 user_name=- password=p
        a user name alone
            opened 3.1.1 user_name=u
        MQTT 5.0 allows a password alone
            opened password=p
        3.1: both flags set, both fields omitted
            version 3.1; > raw 10 10 0006 "MQIsdp" 03c2003c 0002 "c1"; < connack
    """)
    bad = examples("""
        a password alone
            > connect 3.1.1 password=secret !password
        a password alone in 3.1
            > connect 3.1 password=secret !password
    """)

    def check(self, packet: Connect, at: RuleContext) -> Findings:
        """Check the flags."""
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
