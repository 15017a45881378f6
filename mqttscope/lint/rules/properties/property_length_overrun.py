"""PRP102."""

from mqttscope.lint.examples import examples
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

    good = examples("""
        a block that ends with its property
            opened; > raw 30 0a 0003 "a/b" 0201016869
    """)
    bad = examples("""
        two bytes for a property of three
            opened; > raw 30 0b 0003 "a/b" 0223 0001 "h" 69 !properties.topic_alias
        a block that is longer than the packet
            opened; > raw 30 09 0003 "a/b" 0a010102 !properties
        a string that crosses the end of the block
            opened; > raw 30 0c 0003 "a/b" 04030005616263 !properties.content_type
        in the Will Properties
            > raw 10 1a 0004 "MQTT" 0506003c00 0002 "c1" 0218000000 0001 "a" 0001 "b"
                !will.properties.will_delay_interval
    """)
