"""PRP103."""

from mqttscope.lint.examples import examples
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

    good = examples("""
        a known property
            opened; > raw 30 0a 0003 "a/b" 0201016869
    """)
    bad = examples("""
        identifier 0x7f
            opened; > raw 30 0a 0003 "a/b" 027f006869 !properties.unknown_0x7f
        identifier 0x00 after a known property
            opened; > raw 30 0c 0003 "a/b" 04010100006869 !properties.unknown_0x00
        an identifier of two bytes
            opened; > raw 30 0b 0003 "a/b" 038001006869 !properties.unknown_0x80
    """)
