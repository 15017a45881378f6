"""ENC108."""

from mqttscope.lint.examples import examples
from mqttscope.lint.finding import Severity
from mqttscope.lint.rule import V3_1_1, V5, Rule
from mqttscope.mqtt.constants import MalformedReason


class TrailingBytes(Rule):
    """A packet has bytes left over after its last field.

    The receiver has no place for them and treats the packet as malformed.  Mostly the sender writes an acknowledgement
    in another layout than its peer expects, or computes the Remaining Length from a buffer that holds more than the
    packet.  A PUBLISH cannot have them, since its payload takes all that is left.

    Instead, let the packet end with its last field.
    """

    code = "ENC108"
    severity = Severity.ERROR
    reason_code = 0x81
    statements = {V5: {"V5-LENGTH-trailing": ""}}
    also = {
        V5: ("MQTT-3.1.2-16", "MQTT-3.1.2-18"),
        V3_1_1: ("MQTT-3.1.2-11", "MQTT-3.1.2-18", "MQTT-3.1.2-20", "V311-LENGTH-overrun"),
    }
    malformed = (MalformedReason.TRAILING_BYTES,)

    good = examples("""
        a PUBACK of two bytes
            opened; < publish a qos=1 id=10; > puback 10
    """)
    bad = examples("""
        bytes after the properties of a PUBACK
            opened; < publish a qos=1 id=10; > raw 40 06 000a0000dead !
        bytes after the properties of a CONNACK
            > connect; < raw 20 04 0000002a !
        bytes after the properties of a DISCONNECT
            opened; > raw e0 03 000000 !
    """)
