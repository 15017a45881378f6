"""PRP102."""

from mqttscope.lint.examples import client, conversation, examples, hexadecimal, opened
from mqttscope.lint.finding import Severity
from mqttscope.lint.rule import V5, Rule
from mqttscope.mqtt.constants import MalformedReason


class PropertyLengthOverrun(Rule):
    """A Property Length does not end where a property ends.

    The block of properties is longer than the rest of the packet, or its last property crosses its end.  Nobody can
    tell what belongs to the properties and what comes after them, so the receiver treats the packet as malformed.

    Instead, compute the Property Length from the encoded bytes of all properties, identifiers included.
    """

    code = "PRP102"
    severity = Severity.ERROR
    reason_code = 0x81
    versions = (V5,)
    statements = {V5: {"V5-PROP-wrong-type": ""}}
    malformed = (MalformedReason.PROPERTY_LENGTH_OVERRUN,)

    good = examples(
        lambda: [
            conversation(
                "a block that ends with its property",
                *opened(connack=None),
                client(hexadecimal("30 0a 00 03 61 2f 62 02 01 01 68 69")),
            ),
        ]
    )
    bad = examples(
        lambda: [
            conversation(
                "two bytes for a property of three",
                *opened(),
                client(hexadecimal("30 0b 00 03 61 2f 62 02 23 00 01 68 69")).marked("properties.topic_alias"),
            ),
            conversation(
                "a block that is longer than the packet",
                *opened(),
                client(hexadecimal("30 09 00 03 61 2f 62 0a 01 01 02")).marked("properties"),
            ),
            conversation(
                "a string that crosses the end of the block",
                *opened(),
                client(hexadecimal("30 0c 00 03 61 2f 62 04 03 00 05 61 62 63")).marked("properties.content_type"),
            ),
            conversation(
                "in the Will Properties",
                client(
                    hexadecimal("10 1a 00 04 4d 51 54 54 05 06 00 3c 00 00 02 63 31 02 18 00 00 00 00 01 61 00 01 62")
                ).marked("will.properties.will_delay_interval"),
            ),
        ]
    )
