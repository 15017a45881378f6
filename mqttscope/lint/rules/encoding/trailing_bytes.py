"""ENC108."""

from mqttscope.lint.examples import client, conversation, examples, hexadecimal, opened, server
from mqttscope.lint.finding import Severity
from mqttscope.lint.rule import V3_1_1, V5, Rule
from mqttscope.mqtt.constants import MalformedReason
from mqttscope.mqtt.packets import Puback, Publish


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

    good = examples(
        lambda: [
            conversation(
                "a PUBACK of two bytes",
                *opened(),
                server(Publish(qos=1, topic_name="a", packet_identifier=10)),
                client(Puback(10)),
            ),
        ]
    )
    bad = examples(
        lambda: [
            conversation(
                "bytes after the properties of a PUBACK",
                *opened(),
                server(Publish(qos=1, topic_name="a", packet_identifier=10)),
                client(hexadecimal("40 06 00 0a 00 00 de ad")).marked(""),
            ),
            conversation(
                "bytes after the properties of a CONNACK",
                opened()[0],
                server(hexadecimal("20 04 00 00 00 2a")).marked(""),
            ),
            conversation(
                "bytes after the properties of a DISCONNECT",
                *opened(),
                client(hexadecimal("e0 03 00 00 00")).marked(""),
            ),
        ]
    )
