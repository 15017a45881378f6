from mqttscope.lint.rules import V3_1_1, V5, Findings, Rule, RuleContext, Severity, examples, may_be_3_1
from mqttscope.mqtt.constants import Direction, PacketType, reason_name
from mqttscope.mqtt.packets import Connack


class SessionPresentOnRefusal(Rule):
    """A server refuses a connection and sets Session Present in the same CONNACK.

    Session Present belongs to an accepted connection; a client that trusts it keeps the state of a session that it is
    not connected to.

    Instead, send Session Present 0 with every code other than 0x00.
    """

    code = "CON110"
    severity = Severity.ERROR
    versions = (V3_1_1, V5)
    statements = {V5: {"MQTT-3.2.2-6": ""}, V3_1_1: {"MQTT-3.2.2-4": ""}}
    when = "session_present"
    sender = Direction.SERVER_TO_CLIENT

    good = examples("""
        a refusal
            opened < code=0x87; < fin
        a session
            opened resume < present
    """)
    bad = examples("""
        0x87
            > connect; < raw 20 03 018700 !session_present
        0x05 in 3.1.1
            > connect 3.1.1; < raw 20 02 0105 !session_present
    """)

    def check(self, packet: Connack, at: RuleContext) -> Findings:
        """Compare the flag with the code."""
        code = packet.reason_code
        if not packet.session_present or not code or may_be_3_1(at):
            return None
        name = reason_name(PacketType.CONNACK, code, at.version)
        return self.report("session_present", f"CONNACK: Session Present 1 with refusal 0x{code:02x} ({name})")
