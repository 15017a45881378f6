from mqttscope.lint.rules import V3_1_1, Findings, Rule, RuleContext, Severity, examples
from mqttscope.mqtt.constants import Direction
from mqttscope.mqtt.packets import LEVELS_3_1_1, Connect


class EmptyClientIdWithoutCleanSession(Rule):
    """A client sends an empty Client Identifier and asks to keep its session.

    In MQTT 3.1.1 the client never learns the identifier that the server generates, so it could never resume the
    session; the server refuses with 0x02 and closes.

    Instead, set CleanSession to 1 with an empty Client Identifier, or choose a permanent identifier.
    """

    code = "CON106"
    severity = Severity.ERROR
    versions = (V3_1_1,)
    statements = {V3_1_1: {"MQTT-3.1.3-7": ""}}
    signs = ("odd_connect",)
    sender = Direction.CLIENT_TO_SERVER

    good = examples("""
        empty with CleanSession 1
            opened 3.1.1 client=-
        a kept session with an identifier
            opened 3.1.1 resume
    """)
    bad = examples("""
        empty with CleanSession 0
            > connect 3.1.1 client=- resume !client_identifier
    """)

    def check(self, packet: Connect, at: RuleContext) -> Findings:
        if not keeps_nameless_session(packet):
            return None
        return self.report("client_identifier", "CONNECT: empty Client Identifier with CleanSession 0")


def keeps_nameless_session(packet: Connect) -> bool:
    """Whether a CONNECT of 3.1.1 has an empty Client Identifier and CleanSession 0."""
    return packet.client_identifier == "" and not packet.clean_start and packet.protocol_level in LEVELS_3_1_1
