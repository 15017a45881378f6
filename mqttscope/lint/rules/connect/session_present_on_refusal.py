"""CON110."""

from mqttscope.lint.context import RuleContext
from mqttscope.lint.examples import client, closes, conversation, examples, hexadecimal, make_connect, opened, server
from mqttscope.lint.finding import Severity
from mqttscope.lint.rule import V3_1_1, V5, Findings, Rule
from mqttscope.lint.rules import may_be_3_1
from mqttscope.mqtt.constants import Direction, PacketType, reason_name
from mqttscope.mqtt.packets import Connack


class SessionPresentOnRefusal(Rule):
    """A server refuses a connection and says at the same time that it has a session.

    Session Present belongs to an accepted connection; a client that trusts it keeps state for a session that it is not
    connected to.

    Instead, send Session Present 0 with every code other than 0x00.
    """

    code = "CON110"
    severity = Severity.ERROR
    versions = (V3_1_1, V5)
    statements = {V5: {"MQTT-3.2.2-6": ""}, V3_1_1: {"MQTT-3.2.2-4": ""}}
    looks_at = Connack
    when = "session_present"
    sender = Direction.SERVER_TO_CLIENT

    good = examples(
        lambda: [
            conversation("a refusal", client(make_connect()), server(Connack(reason_code=0x87)), closes("server")),
            conversation("a session", *opened(clean_start=False, session_present=True)),
        ]
    )
    bad = examples(
        lambda: [
            conversation(
                "0x87", client(make_connect()), server(hexadecimal("20 03 01 87 00")).marked("session_present")
            ),
            conversation(
                "0x05 in 3.1.1",
                client(make_connect(V3_1_1)),
                server(hexadecimal("20 02 01 05")).marked("session_present"),
            ),
        ]
    )

    def check(self, packet: Connack, at: RuleContext) -> Findings:
        """Compare flag and code."""
        code = packet.reason_code
        if not packet.session_present or not code or may_be_3_1(at):
            return None
        name = reason_name(PacketType.CONNACK, code, at.version)
        return self.report("session_present", f"CONNACK: Session Present 1 with refusal 0x{code:02x} ({name})")
