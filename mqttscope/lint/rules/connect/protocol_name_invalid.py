from mqttscope.lint.rules import V3_1, V3_1_1, V5, Findings, Rule, RuleContext, Severity, examples
from mqttscope.lint.signs import PROTOCOL_NAMES
from mqttscope.mqtt import Connect, Direction, MalformedReason


class ProtocolNameInvalid(Rule):
    """A CONNECT does not have the protocol name of its version.

    The first bytes of a CONNECT distinguish MQTT from other protocols on the port.  Servers compare them exactly,
    including case, and close a connection that starts differently.

    Instead, send MQTT with protocol levels 4 and 5, and MQIsdp with level 3.
    """

    code = "CON101"
    severity = Severity.ERROR
    reason_code = 0x84
    statements = {
        V5: {"MQTT-3.1.2-1": ""},
        V3_1_1: {"V311-CONNECT-protocol-name": ""},
        V3_1: {"V31-CONNECT-protocol-name": ""},
    }
    also = {V3_1_1: ("MQTT-3.1.2-1",)}
    malformed = (MalformedReason.PROTOCOL_NAME_INVALID,)
    signs = ("odd_connect",)
    sender = Direction.CLIENT_TO_SERVER

    good = examples("""
        MQTT with level 5
            opened
        MQTT with level 4
            opened 3.1.1
        MQIsdp with level 3
            opened 3.1
        bridge mark of 3.1.1
            opened 3.1.1 client=bridge protocol_level=0x84
    """)
    bad = examples("""
        lower case
            > raw 10 0f 0004 "mqtt" 0502003c00 0002 "c1" !protocol_name
        lower case in 3.1.1
            > raw 10 0e 0004 "mqtt" 0402003c 0002 "c1" !protocol_name
        the name of 3.1 with the level of 3.1.1
            > connect 3.1.1 protocol_name=MQIsdp !protocol_name
        the name of 3.1.1 with the level of 3.1
            > connect 3.1 protocol_name=MQTT !protocol_name
        an invented name
            opened; > connect 3.1.1 protocol_name=MQTX !protocol_name
    """)

    def check(self, packet: Connect, at: RuleContext) -> Findings:
        """Report a known name with the wrong level; the decoder reports unknown names."""
        name, wanted = packet.protocol_name, PROTOCOL_NAMES.get(packet.protocol_level)
        if wanted is None or name == wanted or name not in PROTOCOL_NAMES.values():
            return None
        return self.report(
            "protocol_name",
            f"CONNECT: protocol name is {name!r}, must be {wanted!r} with protocol level {packet.protocol_level}",
        )
