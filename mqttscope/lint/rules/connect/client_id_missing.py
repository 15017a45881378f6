"""CON107."""

from mqttscope.lint.examples import examples
from mqttscope.lint.finding import Severity
from mqttscope.lint.rule import V3_1_1, V5, Rule
from mqttscope.mqtt.constants import MalformedReason


class ClientIdMissing(Rule):
    """A CONNECT ends before its Client Identifier.

    The identifier is the one field that every CONNECT has in its payload; without it the packet is malformed and the
    server closes the connection.  An empty identifier is two bytes of zero, which is something else.

    Instead, always write the Client Identifier, with length 0 where the server is to choose.
    """

    code = "CON107"
    severity = Severity.ERROR
    reason_code = 0x81
    statements = {V5: {"MQTT-3.1.3-3": ""}, V3_1_1: {"MQTT-3.1.3-3": ""}}
    malformed = (MalformedReason.CLIENT_IDENTIFIER_MISSING,)

    good = examples("""
        there
            opened 3.1.1
        empty, but there
            opened 3.1.1 client=-
        empty, but there, in 5.0
            > raw 10 0d 0004 "MQTT" 0502003c000000; < raw 20 08 00000512 0002 "a1"
        empty, with its two bytes last
            version 3.1.1; > raw 10 0c 0004 "MQTT" 0402003c0000; < connack
    """)
    bad = examples("""
        nothing after Keep Alive
            > raw 10 0a 0004 "MQTT" 0402003c !client_identifier
        half a length
            > raw 10 0b 0004 "MQTT" 0402003c00 !client_identifier
        nothing after the properties
            > raw 10 0b 0004 "MQTT" 0502003c00 !client_identifier
        nothing after Keep Alive in 3.1
            > raw 10 0c 0006 "MQIsdp" 0302003c !client_identifier
    """)
