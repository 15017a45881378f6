"""PRP104."""

from mqttscope.lint.context import RuleContext
from mqttscope.lint.examples import client, conversation, examples, hexadecimal, make_connect, opened, server
from mqttscope.lint.finding import Severity
from mqttscope.lint.rule import V5, Findings, Rule
from mqttscope.mqtt.constants import MalformedReason
from mqttscope.mqtt.declare import FaultReport
from mqttscope.mqtt.packets import Publish, Suback
from mqttscope.mqtt.parts import Will
from mqttscope.mqtt.properties import BY_NAME, Properties


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

    good = examples(
        lambda: [
            conversation(
                "a Topic Alias in a PUBLISH",
                *opened(connack=Properties(topic_alias_maximum=10)),
                client(Publish(topic_name="a/b", properties=Properties(topic_alias=1), payload=b"hi")),
            ),
            conversation(
                "a Will Delay Interval in the Will Properties",
                *opened(will=Will("a/b", b"gone", properties=Properties(will_delay_interval=5))),
            ),
        ]
    )
    bad = examples(
        lambda: [
            conversation(
                "a Topic Alias in a SUBSCRIBE",
                *opened(connack=Properties(topic_alias_maximum=10)),
                client(hexadecimal("82 0c 00 0a 03 23 00 01 00 03 61 2f 62 01")).marked("properties.topic_alias"),
            ),
            conversation(
                "a Subscription Identifier in a SUBACK",
                *opened(),
                server(Suback(10, Properties(subscription_identifier=1), [0])).marked(
                    "properties.subscription_identifier"
                ),
            ),
            conversation(
                "a Will Delay Interval in the CONNECT itself",
                client(make_connect(properties=Properties(will_delay_interval=5))).marked(
                    "properties.will_delay_interval"
                ),
            ),
            conversation(
                "a Topic Alias in the Will Properties",
                client(make_connect(will=Will("a/b", b"gone", properties=Properties(topic_alias=1)))).marked(
                    "will.properties.topic_alias"
                ),
            ),
        ]
    )

    def check_malformed(self, fault: FaultReport, at: RuleContext) -> Findings:
        """Name the property by its number too."""
        kind = (at.event.type or "packet").upper()  # type: ignore[union-attr]
        name = fault.field.rpartition(".")[2]
        number = BY_NAME[name].identifier
        place = "the Will Properties" if fault.field.startswith("will.") else kind
        return self.report(fault.field, f"{kind}: property {name} (0x{number:02x}) is not allowed in {place}")
