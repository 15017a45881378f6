"""CON102."""

from mqttscope.lint.context import RuleContext
from mqttscope.lint.examples import examples
from mqttscope.lint.finding import Severity
from mqttscope.lint.rule import V5, Findings, Rule
from mqttscope.mqtt.constants import MalformedReason
from mqttscope.mqtt.declare import FaultReport
from mqttscope.mqtt.packets import Connect


class ProtocolVersionUnknown(Rule):
    """A CONNECT names a protocol level that no version of MQTT has.

    A server that does not know the level cannot know the layout of what follows either; it refuses the connection with
    0x01 (3.1.1) or 0x84 (5.0), or closes it without a word.  The fields after the level are shown here in the layout
    of 3.1.1, which is a guess.

    Instead, use MQIsdp with level 3, MQTT with level 4, or MQTT with level 5.
    """

    code = "CON102"
    severity = Severity.ERROR
    version_matters = False
    reason_code = 0x84
    also = {V5: ("MQTT-3.1.2-2",)}
    malformed = (MalformedReason.PROTOCOL_VERSION_UNKNOWN,)

    good = examples("""
        level 5
            opened
        level 4
            opened 3.1.1
        level 3
            opened 3.1
        the mark of bridges on level 3
            opened 3.1 client=bridge protocol_level=0x83
        the mark of bridges on level 4
            opened 3.1.1 client=bridge protocol_level=0x84
    """)
    bad = examples("""
        level 6
            > raw 10 0e 0004 "MQTT" 0602003c 0002 "c1" !protocol_level
        bit 7 means nothing on level 5
            > connect 3.1.1 protocol_level=0x85 !protocol_level
        a level with the name of another version
            > connect protocol_name=MQIsdp !protocol_level
        level 3 has the name MQIsdp
            > connect 3.1 protocol_name=MQTT !protocol_level
    """)

    def check_malformed(self, fault: FaultReport, at: RuleContext) -> Findings:
        """The decoder's words, with the level in hexadecimal too."""
        packet = getattr(getattr(at.event, "malformed", None), "packet", None)
        if not isinstance(packet, Connect):
            return self.report(fault.field, f"CONNECT: {fault.detail}")
        level, name = packet.protocol_level, packet.protocol_name
        return self.report(
            fault.field,
            f"CONNECT: protocol level {level} (0x{level:02x}) with name {name!r} is no known MQTT version",
        )
