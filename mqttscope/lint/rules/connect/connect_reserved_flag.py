"""CON103."""

from mqttscope.events import MalformedEvent
from mqttscope.lint.context import RuleContext
from mqttscope.lint.examples import examples
from mqttscope.lint.finding import Severity
from mqttscope.lint.rule import V3_1, V3_1_1, V5, Findings, Rule
from mqttscope.mqtt.constants import Direction, MalformedReason
from mqttscope.mqtt.declare import FaultReport
from mqttscope.mqtt.packets import Connect


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

    good = examples("""
        bit 0 is 0
            opened
        all other bits may be set
            opened user_name=u password=p will=w will_payload=x will_qos=1 will_retain
        also in 3.1
            opened 3.1
    """)
    bad = examples("""
        bit 0 is 1
            > raw 10 0f 0004 "MQTT" 0503003c00 0002 "c1" !connect_flags
        bit 0 is 1 in 3.1.1
            > raw 10 0e 0004 "MQTT" 0403003c 0002 "c1" !connect_flags
        a note in 3.1
            > raw 10 10 0006 "MQIsdp" 0303003c 0002 "c1" !connect_flags
    """)

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
