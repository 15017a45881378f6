"""CON103."""

from mqttscope.events import MalformedEvent
from mqttscope.lint.context import RuleContext
from mqttscope.lint.examples import client, conversation, examples, hexadecimal, opened
from mqttscope.lint.finding import Severity
from mqttscope.lint.rule import V3_1, V3_1_1, V5, Findings, Rule
from mqttscope.mqtt.constants import Direction, MalformedReason
from mqttscope.mqtt.declare import FaultReport
from mqttscope.mqtt.packets import Connect
from mqttscope.mqtt.parts import Will


class ConnectReservedFlag(Rule):
    """A CONNECT sets the reserved bit 0 of its connect flags.

    Servers have to check the bit and close the connection when it is set.  MQTT 3.1 leaves the bit unused and checks
    nothing, so there it is worth a note only.

    Instead, leave bit 0 of the connect flags 0.
    """

    code = "CON103"
    severity = Severity.ERROR
    severities = (Severity.ERROR, Severity.INFO)
    reason_code = 0x81
    statements = {V5: {"MQTT-3.1.2-3": ""}, V3_1_1: {"MQTT-3.1.2-3": ""}}
    malformed = (MalformedReason.CONNECT_FLAGS_RESERVED,)
    looks_at = Connect
    signs = ("odd_connect",)
    sender = Direction.CLIENT_TO_SERVER

    good = examples(
        lambda: [
            conversation("bit 0 is 0", *opened()),
            conversation(
                "all other bits may be set",
                *opened(will=Will("w", b"x", will_qos=1, will_retain=True), user_name="u", password=b"p"),
            ),
            conversation("also in 3.1", *opened(V3_1)),
        ]
    )
    bad = examples(
        lambda: [
            conversation(
                "bit 0 is 1",
                client(hexadecimal("10 0f 00 04 4d 51 54 54 05 03 00 3c 00 00 02 63 31")).marked("connect_flags"),
            ),
            conversation(
                "bit 0 is 1 in 3.1.1",
                client(hexadecimal("10 0e 00 04 4d 51 54 54 04 03 00 3c 00 02 63 31")).marked("connect_flags"),
            ),
            conversation(
                "a note in 3.1",
                client(hexadecimal("10 10 00 06 4d 51 49 73 64 70 03 03 00 3c 00 02 63 31")).marked("connect_flags"),
            ),
        ]
    )

    def check_malformed(self, fault: FaultReport, at: RuleContext) -> Findings:
        """Show the flags."""
        packet = at.event.malformed.packet if isinstance(at.event, MalformedEvent) else None
        return self.report(fault.field, _sentence(packet if isinstance(packet, Connect) else Connect()))

    def check(self, packet: Connect, at: RuleContext) -> Findings:
        """In 3.1 no fault of the packet, and only a note."""
        if at.version is not V3_1 or not (packet.connect_flags or 0) & 1:
            return None
        return self.report("connect_flags", f"{_sentence(packet)}; MQTT 3.1 does not use it", severity=Severity.INFO)


def _sentence(packet: Connect) -> str:
    flags = packet.derived_flags() | 1 if packet.connect_flags is None else packet.connect_flags
    return f"CONNECT: reserved bit 0 of the connect flags 0x{flags:02x} is set"
