"""TOP104."""

from collections.abc import Iterator

from mqttscope.lint.context import RuleContext
from mqttscope.lint.examples import client, conversation, examples, opened, server
from mqttscope.lint.finding import Report, Severity
from mqttscope.lint.rule import V3_1, Findings, Rule, packet_name
from mqttscope.lint.strings import shown
from mqttscope.lint.topics import NAMING, Seen, named_topics, plain
from mqttscope.mqtt.declare import ControlPacket
from mqttscope.mqtt.packets import Publish, Suback, Subscribe
from mqttscope.mqtt.parts import Subscription
from mqttscope.mqtt.topics import utf8_length

_LIMIT_3_1 = 32_767
"""Most characters of a topic name in MQTT 3.1."""


class TopicOversize(Rule):
    """A topic or topic filter has very many levels or very many bytes.

    The name travels in every message and is matched against every subscription.  Managed brokers refuse it beyond
    limits of their own.  MQTT 3.1 ends at 32,767 characters, half of what later versions allow.  Each topic is
    reported once per connection.

    Instead, keep names short and put what describes a message into its payload.
    """

    code = "TOP104"
    severity = Severity.INFO
    severities = (Severity.WARNING, Severity.INFO)
    statements = {V3_1: {"V31-PUBLISH-topic-length": "publish.topic_name"}}
    looks_at = NAMING
    settings = {
        # Levels, the most that are not reported; AWS IoT Core takes seven slashes.
        "levels": 8,
        # Bytes of UTF-8, the most that are not reported; AWS IoT Core takes 256.
        "bytes": 256,
    }
    Memory = Seen

    good = examples(
        lambda: [
            conversation("eight levels", *opened(), client(Publish(topic_name="a/b/c/d/e/f/g/h", payload=b"hi"))),
            conversation("256 bytes", *opened(), client(Publish(topic_name="a" * 254 + "\u00fc"))),
            conversation(
                "the name of a share is no level",
                *opened(),
                client(Subscribe(1, None, [Subscription("$share/g/a/b/c/d/e/f/g/#")])),
                server(Suback(1, None, [0])),
            ),
            conversation(
                "levels as configured",
                *opened(),
                client(Publish(topic_name="a/b/c/d/e/f/g/h/i")),
                settings={"levels": 9},
            ),
        ]
    )
    bad = examples(
        lambda: [
            conversation(
                "nine levels, reported once",
                *opened(),
                client(Publish(topic_name="a/b/c/d/e/f/g/h/i", payload=b"hi")).marked("topic_name"),
                client(Publish(topic_name="a/b/c/d/e/f/g/h/i", payload=b"ho")),
            ),
            conversation(
                "257 bytes in 256 characters",
                *opened(),
                client(Publish(topic_name="a" * 255 + "\u00fc")).marked("topic_name"),
            ),
            conversation(
                "a filter of nine levels",
                *opened(),
                client(Subscribe(1, None, [Subscription("a/b/c/d/e/f/g/h/#")])).marked("subscriptions[0].topic_filter"),
                server(Suback(1, None, [0])),
            ),
            conversation(
                "more than MQTT 3.1 has", *opened(V3_1), client(Publish(topic_name="a" * 32_768)).marked("topic_name")
            ),
        ]
    )

    def check(self, packet: ControlPacket, at: RuleContext) -> Findings:
        """Two comparisons clear nearly all topics."""
        if type(packet) is Publish and not packet.properties:
            topic = packet.topic_name
            if len(topic) * 4 <= self.set["bytes"] and topic.count("/") < self.set["levels"]:
                return None
        return self._found(packet, at)

    def _found(self, packet: ControlPacket, at: RuleContext) -> Iterator[Report]:
        for named in named_topics(packet):
            text = plain(named.text) if named.is_filter else named.text
            levels, length = text.count("/") + 1, utf8_length(text)
            if (levels > self.set["levels"] or length > self.set["bytes"]) and at.memory(self).first(named.text):
                beyond = at.version is V3_1 and len(text) > _LIMIT_3_1 and named.field == "topic_name"
                limit = f", MQTT 3.1 allows {_LIMIT_3_1:,} characters" if beyond else ""
                yield self.report(
                    named.field,
                    f"{packet_name(packet)}: {shown(named.text)} has {levels} levels / {length} bytes{limit}",
                    severity=Severity.WARNING if beyond else None,
                    statements=None if beyond else (),
                )
