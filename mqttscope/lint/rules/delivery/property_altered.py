"""DLV413."""

from mqttscope.lint.context import RuleContext
from mqttscope.lint.examples import client, conversation, examples, on, opened, server
from mqttscope.lint.finding import Confidence, Related, Severity
from mqttscope.lint.message_model import Messages
from mqttscope.lint.properties_passed_on import altered, doubt_of
from mqttscope.lint.rule import V3_1_1, V5, Findings, Needs, Rule
from mqttscope.lint.rules.delivery import message, publishes, subscriber
from mqttscope.mqtt.constants import Direction
from mqttscope.mqtt.packets import Puback, Publish

_TEXT = {"content_type": "text/plain"}
_ALL = {"payload_format_indicator": 1, **_TEXT, "response_topic": "r/1", "correlation_data": b"\x00\x01"}


class PropertyAltered(Rule):
    """A server changes what a message was published with: content type, response topic, correlation data, format.

    These are for the receiver alone.  A response that goes to another topic, or without its Correlation Data, never
    finds who has asked.  It is an error where the payload tells the message from all others of its topic; a retained
    copy, one that may be of another message, and a property that only the server has put there are warnings.

    Instead, send Payload Format Indicator, Content Type, Response Topic and Correlation Data as they came.
    """

    code = "DLV413"
    severity = Severity.ERROR
    severities = (Severity.ERROR, Severity.WARNING)
    confidence = Confidence.LIKELY
    versions = (V5,)
    statements = {
        V5: {
            "MQTT-3.3.2-4": "publish.properties.payload_format_indicator",
            "MQTT-3.3.2-15": "publish.properties.response_topic",
            "MQTT-3.3.2-16": "publish.properties.correlation_data",
            "MQTT-3.3.2-20": "publish.properties.content_type",
        }
    }
    looks_at = Publish
    sender = Direction.SERVER_TO_CLIENT
    needs = Needs.OPENING | Needs.WHOLE_SENDER
    models = (Messages,)
    about = (Messages, "topics")

    good = examples(
        lambda: [
            conversation(
                "as they came, in another order",
                *subscriber(),
                *opened(),
                *publishes(message(properties=_ALL)),
                *on(1, server(message(properties=dict(reversed(_ALL.items())))), client(Puback(1))),
            ),
            conversation(
                "no Payload Format Indicator is the same as 0",
                *subscriber(),
                *opened(),
                *publishes(message(properties={"payload_format_indicator": 0})),
                *on(1, server(message()), client(Puback(1))),
            ),
            conversation(
                "a subscriber of 3.1.1 gets none",
                *subscriber(V3_1_1),
                *opened(),
                *publishes(message(properties=_ALL)),
                *on(1, server(message()), client(Puback(1))),
            ),
            conversation(
                "a publisher of 3.1.1 sends none",
                *subscriber(),
                *opened(V3_1_1),
                *publishes(message()),
                *on(1, server(message(properties=_TEXT)), client(Puback(1))),
            ),
            conversation(
                "the same payload with and without",
                *subscriber(),
                *opened(),
                *publishes(message(properties=_TEXT), message(packet_identifier=2)),
                *on(1, server(message()), client(Puback(1))),
            ),
            conversation(
                "it comes again from elsewhere",
                *subscriber(),
                *opened(),
                *publishes(message(properties=_TEXT)),
                *on(1, server(message(properties=_TEXT)), client(Puback(1)), server(message()), client(Puback(1))),
            ),
            conversation(
                "a message that nobody was seen to publish",
                *subscriber(),
                *opened(),
                *publishes(message(properties=_TEXT)),
                *on(1, server(message(b"other")), client(Puback(1))),
            ),
        ]
    )
    bad = examples(
        lambda: [
            conversation(
                "the content type is lost",
                *subscriber(),
                *opened(),
                *publishes(message(properties=_TEXT)),
                *on(1, server(message()).marked("properties.content_type"), client(Puback(1))),
            ),
            conversation(
                "several are changed",
                *subscriber(),
                *opened(),
                *publishes(message(properties=_ALL)),
                *on(
                    1,
                    server(message(properties={"correlation_data": b"\x00", "response_topic": "r/2", **_TEXT})).marked(
                        "properties.payload_format_indicator",
                        "properties.response_topic",
                        "properties.correlation_data",
                    ),
                    client(Puback(1)),
                ),
            ),
            conversation(
                "one is put there, and a retained copy: only warnings",
                *opened(),
                *publishes(message(retain=True, properties=_TEXT)),
                *subscriber(),
                *on(1, server(message(retain=True)).marked("properties.content_type"), client(Puback(1))),
                *publishes(message(b"other")),
                *on(
                    1,
                    server(message(b"other", properties=_TEXT)).marked("properties.content_type"),
                    client(Puback(1)),
                ),
            ),
        ]
    )

    def check(self, packet: Publish, at: RuleContext) -> Findings:
        """Compare the properties of a delivery with those of the messages that it may be of."""
        difference = altered(packet, at)
        if difference is None:
            return None
        sent = difference.sent
        related = (Related("the message as published", sent.packet, sent.frame, sent.timestamp_ns),)
        return [
            self.report(
                f"properties.{name}",
                f"{name.replace('_', ' ')} of a message on {sent.topic!r} of {sent.publisher!r} is {what}",
                related=related,
                **doubt_of(difference, added=what == "added"),
            )
            for name, what in difference.changes()
        ]
