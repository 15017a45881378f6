"""ENC106."""

from mqttscope.lint.examples import client, conversation, examples, hexadecimal, opened
from mqttscope.lint.finding import Severity
from mqttscope.lint.rule import V3_1, V3_1_1, V5, Rule
from mqttscope.mqtt.constants import MalformedReason
from mqttscope.mqtt.packets import Publish


class VarintTooLong(Rule):
    """A Variable Byte Integer runs past four bytes.

    The fourth byte announces a fifth, which no version allows.  As the Remaining Length it makes all that follows
    unreadable: nobody can tell where the next packet begins, and the receiver closes the connection.  It is also what
    a receiver sees when the length of an earlier packet was wrong.

    Instead, keep packets to 268,435,455 bytes after the fixed header, and check what goes before this packet.
    """

    code = "ENC106"
    severity = Severity.ERROR
    reason_code = 0x81
    statements = {
        V5: {"V5-VBI-four-bytes": ""},
        V3_1_1: {"V311-VBI-four-bytes": ""},
        V3_1: {"V31-HEADER-remaining-length": ""},
    }
    malformed = (MalformedReason.REMAINING_LENGTH_TOO_LONG, MalformedReason.VARIABLE_BYTE_INTEGER_TOO_LONG)

    good = examples(
        lambda: [
            conversation("one byte", *opened(), client(Publish(topic_name="a/b", payload=b"hi"))),
            conversation("three bytes", *opened(), client(Publish(topic_name="a/b", payload=bytes(16_384)))),
        ]
    )
    bad = examples(
        lambda: [
            conversation(
                "a Remaining Length of five bytes",
                *opened(),
                client(hexadecimal("30 80 80 80 80 01")).marked("remaining_length"),
            ),
            conversation(
                "in MQTT 3.1.1", *opened(V3_1_1), client(hexadecimal("30 80 80 80 80 01")).marked("remaining_length")
            ),
            conversation(
                "in MQTT 3.1", *opened(V3_1), client(hexadecimal("30 80 80 80 80 01")).marked("remaining_length")
            ),
            conversation(
                "a Subscription Identifier of five bytes",
                *opened(),
                client(hexadecimal("82 0f 00 0a 06 0b 80 80 80 80 01 00 03 61 2f 62 01")).marked(
                    "properties.subscription_identifier"
                ),
            ),
        ]
    )
