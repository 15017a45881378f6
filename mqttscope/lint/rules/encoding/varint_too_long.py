"""ENC106."""

from mqttscope.lint.examples import examples
from mqttscope.lint.finding import Severity
from mqttscope.lint.rule import V3_1, V3_1_1, V5, Rule
from mqttscope.mqtt.constants import MalformedReason


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

    good = examples("""
        one byte
            opened; > publish a/b hi
        three bytes
            opened; > publish a/b 0x00*16384
    """)
    bad = examples("""
        a Remaining Length of five bytes
            opened; > raw 30 8080808001 !remaining_length
        in MQTT 3.1.1
            opened 3.1.1; > raw 30 8080808001 !remaining_length
        in MQTT 3.1
            opened 3.1; > raw 30 8080808001 !remaining_length
        a Subscription Identifier of five bytes
            opened; > raw 82 0f 000a060b8080808001 0003 "a/b" 01 !properties.subscription_identifier
    """)
