"""ENC411."""

from mqttscope.lint.broker_watch import SECOND_NS
from mqttscope.lint.context import RuleContext
from mqttscope.lint.examples import client, conversation, examples, on, opened, server
from mqttscope.lint.finding import Confidence, Related, Report, Severity
from mqttscope.lint.message_model import Messages, Sent
from mqttscope.lint.properties_passed_on import altered
from mqttscope.lint.rule import ALL_VERSIONS, V3_1_1, V5, Findings, Needs, Rule
from mqttscope.lint.rules.delivery import message, publishes, subscriber
from mqttscope.mqtt.constants import Direction
from mqttscope.mqtt.packets import Puback, Publish

RECENT_NS = 30 * SECOND_NS
"""How long ago a message was published whose topic the server may have changed."""
_MARKED = "\ufeffa/b"
_ACKED = client(Puback(1))


class BomStripped(Rule):
    """A server drops the character U+FEFF from a string that a publisher sent.

    Some decoders take these three bytes for a byte order mark.  In MQTT they are a character like any other, the zero
    width no-break space, so that a topic without it is another topic, and its subscribers get what is not for them.

    Instead, decode strings without looking for a byte order mark, and pass on all of their bytes.
    """

    code = "ENC411"
    severity = Severity.ERROR
    confidence = Confidence.LIKELY
    versions = ALL_VERSIONS
    statements = {V5: {"MQTT-1.5.4-3": ""}, V3_1_1: {"MQTT-1.5.3-3": ""}}
    looks_at = Publish
    sender = Direction.SERVER_TO_CLIENT
    needs = Needs.OPENING | Needs.WHOLE_SENDER
    models = (Messages,)
    about = (Messages, "topics", "marked")

    good = examples(
        lambda: [
            conversation(
                "it is passed on",
                *subscriber(V5, "#"),
                *opened(),
                *publishes(message(topic_name=_MARKED, properties={"content_type": "\ufefft"})),
                *on(1, server(message(topic_name=_MARKED, properties={"content_type": "\ufefft"})), _ACKED),
            ),
            conversation(
                "another message with the same payload has the topic without it",
                *subscriber(V5, "#"),
                *opened(),
                *publishes(message(topic_name=_MARKED), message(topic_name="a/b", packet_identifier=2)),
                *on(1, server(message(topic_name="a/b")), _ACKED, server(message(topic_name=_MARKED)), _ACKED),
            ),
            conversation(
                "a message that nobody was seen to publish",
                *subscriber(V5, "#"),
                *opened(),
                *publishes(message(topic_name=_MARKED)),
                *on(1, server(message(b"other", topic_name="a/b")), _ACKED),
            ),
        ]
    )
    bad = examples(
        lambda: [
            conversation(
                "from the topic",
                *subscriber(V5, "#"),
                *opened(),
                *publishes(message(topic_name=_MARKED)),
                *on(1, server(message(topic_name="a/b")).marked("topic_name"), _ACKED),
            ),
            conversation(
                "from the topic, in 3.1.1",
                *subscriber(V3_1_1, "#"),
                *opened(V3_1_1),
                *publishes(message(topic_name=_MARKED)),
                *on(1, server(message(topic_name="a/b")).marked("topic_name"), _ACKED),
            ),
            conversation(
                "from properties",
                *subscriber(),
                *opened(),
                *publishes(message(properties={"content_type": "\ufefft", "user_property": [("k", "\ufeffv")]})),
                *on(
                    1,
                    server(message(properties={"content_type": "t", "user_property": [("k", "v")]})).marked(
                        "properties.content_type", "properties.user_property"
                    ),
                    _ACKED,
                ),
            ),
        ]
    )

    def check(self, packet: Publish, at: RuleContext) -> Findings:
        """Look for the message under the topic with the character, and compare properties."""
        model, name = at.model(Messages), at.topic
        if model.marked and name in model.marked and not packet.dup:
            sent = model.topic_with_mark(packet, name, at)
            if sent is not None and at.timestamp_ns - sent.timestamp_ns <= RECENT_NS:
                return self._report("topic_name", sent)
        if at.version is not V5 or packet.dup:
            return None
        difference = altered(packet, at)
        if difference is None:
            return None
        return [self._report(f"properties.{name}", difference.sent) for name in difference.unmarked()]

    def _report(self, field: str, sent: Sent) -> Report:
        what = field.rpartition(".")[2].replace("_", " ")
        return self.report(
            field,
            f"U+FEFF in the {what} of a message on {sent.topic!r} of {sent.publisher!r} is lost",
            related=(Related("the message as published", sent.packet, sent.frame, sent.timestamp_ns),),
        )
