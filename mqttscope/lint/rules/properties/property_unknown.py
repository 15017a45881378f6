"""PRP103."""

from mqttscope.lint.examples import client, conversation, examples, hexadecimal, opened
from mqttscope.lint.finding import Severity
from mqttscope.lint.rule import V5, Rule
from mqttscope.mqtt.constants import MalformedReason


class PropertyUnknown(Rule):
    """A property has an identifier that MQTT 5.0 does not know.

    The table has 27 of them, and none can be skipped: the length of an unknown property is unknown too, so the
    receiver treats the packet as malformed.

    Instead, put what has no property of its own into a User Property.
    """

    code = "PRP103"
    severity = Severity.ERROR
    reason_code = 0x81
    versions = (V5,)
    statements = {V5: {"V5-PROP-unknown": ""}}
    malformed = (MalformedReason.PROPERTY_UNKNOWN,)

    good = examples(
        lambda: [
            conversation("a known property", *opened(), client(hexadecimal("30 0a 00 03 61 2f 62 02 01 01 68 69"))),
        ]
    )
    bad = examples(
        lambda: [
            conversation(
                "identifier 0x7f",
                *opened(),
                client(hexadecimal("30 0a 00 03 61 2f 62 02 7f 00 68 69")).marked("properties.unknown_0x7f"),
            ),
            conversation(
                "identifier 0x00 after a known property",
                *opened(),
                client(hexadecimal("30 0c 00 03 61 2f 62 04 01 01 00 00 68 69")).marked("properties.unknown_0x00"),
            ),
            conversation(
                "an identifier of two bytes",
                *opened(),
                client(hexadecimal("30 0b 00 03 61 2f 62 03 80 01 00 68 69")).marked("properties.unknown_0x80"),
            ),
        ]
    )
