"""PRP102 to PRP104: malformed property blocks."""

from mqttscope.lint.rules import V5, Findings, RuleContext, examples
from mqttscope.lint.shared_checks import MalformedRule
from mqttscope.mqtt.constants import MalformedReason
from mqttscope.mqtt.declare import FaultReport
from mqttscope.mqtt.properties import BY_NAME


class MalformedPropertiesRule(MalformedRule):
    """A rule about a fault in a property block."""

    versions = (V5,)


class PropertyLengthOverrun(MalformedPropertiesRule):
    """A Property Length does not match the end of a property.

    The property block is longer than the rest of the packet, or its last property extends past the end of the block.
    The receiver cannot separate the properties from the rest, so it treats the packet as malformed.

    Instead, compute the Property Length from the encoded bytes of all properties, including identifiers.
    """

    code = "PRP102"
    statements = {V5: {"V5-PROP-wrong-type": ""}}
    malformed = (MalformedReason.PROPERTY_LENGTH_OVERRUN,)

    good = examples("""
        a block that ends with its property
            opened; > raw 30 0a 0003 "a/b" 0201016869
    """)
    bad = examples("""
        Property Length 2 for a property of three bytes
            opened; > raw 30 0b 0003 "a/b" 0223 0001 "h" 69 !properties.topic_alias
        a block longer than the packet
            opened; > raw 30 09 0003 "a/b" 0a010102 !properties
        a string that extends past the end of the block
            opened; > raw 30 0c 0003 "a/b" 04030005616263 !properties.content_type
        in the Will Properties
            > raw 10 1a 0004 "MQTT" 0506003c00 0002 "c1" 0218000000 0001 "a" 0001 "b"
                !will.properties.will_delay_interval
    """)


class PropertyUnknown(MalformedPropertiesRule):
    """A property has an identifier that MQTT 5.0 does not define.

    MQTT 5.0 defines 27 properties.  A receiver cannot skip others, since the length of an unknown property is unknown
    too, so it treats the packet as malformed.

    Instead, use a User Property for your own data.
    """

    code = "PRP103"
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
        a two-byte identifier
            opened; > raw 30 0b 0003 "a/b" 038001006869 !properties.unknown_0x80
    """)


class PropertyNotAllowed(MalformedPropertiesRule):
    """A property is in a packet type that does not allow it.

    Each property is allowed in certain packet types only.  The Will Properties have their own list: only they may
    contain the Will Delay Interval, and they may not contain Topic Alias or Subscription Identifier.  The receiver
    treats the packet as malformed.

    Instead, send the property in a packet that allows it, or use a User Property.
    """

    code = "PRP104"
    statements = {V5: {"V5-PROP-not-allowed": ""}}
    malformed = (MalformedReason.PROPERTY_NOT_ALLOWED,)

    good = examples("""
        a Topic Alias in a PUBLISH
            opened < topic_alias_maximum=10; > publish a/b hi topic_alias=1
        a Will Delay Interval in the Will Properties
            opened will=a/b will_payload=gone will.will_delay_interval=5
    """)
    bad = examples("""
        a Topic Alias in a SUBSCRIBE
            opened < topic_alias_maximum=10; > raw 82 0c 000a03230001 0003 "a/b" 01 !properties.topic_alias
        a Subscription Identifier in a SUBACK
            opened; < suback 10 0 subscription_identifier=1 !properties.subscription_identifier
        a Will Delay Interval in the CONNECT itself
            > connect will_delay_interval=5 !properties.will_delay_interval
        a Topic Alias in the Will Properties
            > connect will=a/b will_payload=gone will.topic_alias=1 !will.properties.topic_alias
    """)

    def check_malformed(self, fault: FaultReport, at: RuleContext) -> Findings:
        """Name the property and its identifier."""
        kind = (at.event.type or "packet").upper()  # type: ignore[union-attr]
        name = fault.field.rpartition(".")[2]
        number = BY_NAME[name].identifier
        place = "the Will Properties" if fault.field.startswith("will.") else kind
        return self.report(fault.field, f"{kind}: property {name} (0x{number:02x}) is not allowed in {place}")
