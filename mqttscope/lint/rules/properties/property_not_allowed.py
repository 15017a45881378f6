"""PRP104."""

from mqttscope.lint.context import RuleContext
from mqttscope.lint.examples import examples
from mqttscope.lint.finding import Severity
from mqttscope.lint.rule import V5, Findings, Rule
from mqttscope.mqtt.constants import MalformedReason
from mqttscope.mqtt.declare import FaultReport
from mqttscope.mqtt.properties import BY_NAME


class PropertyNotAllowed(Rule):
    """A property stands in a packet type that does not have it.

    Each property belongs to certain packet types, and the Will Properties are a place of their own: the Will Delay
    Interval goes nowhere else, Topic Alias and Subscription Identifier do not go there.  The receiver treats the packet
    as malformed.

    Instead, send the property in a packet that has it, or as a User Property.
    """

    code = "PRP104"
    severity = Severity.ERROR
    reason_code = 0x81
    versions = (V5,)
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
        """Name the property by its number too."""
        kind = (at.event.type or "packet").upper()  # type: ignore[union-attr]
        name = fault.field.rpartition(".")[2]
        number = BY_NAME[name].identifier
        place = "the Will Properties" if fault.field.startswith("will.") else kind
        return self.report(fault.field, f"{kind}: property {name} (0x{number:02x}) is not allowed in {place}")
