"""TOP104."""

from collections.abc import Iterator

from mqttscope.lint.context import RuleContext
from mqttscope.lint.examples import examples
from mqttscope.lint.finding import Report, Severity
from mqttscope.lint.rule import V3_1, Findings, Rule, packet_name
from mqttscope.lint.strings import shown
from mqttscope.lint.topics import NAMING, Seen, named_topics, plain
from mqttscope.mqtt.declare import ControlPacket
from mqttscope.mqtt.packets import Publish
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

    good = examples("""
        eight levels
            opened; > publish a/b/c/d/e/f/g/h hi
        256 bytes
            opened; > publish "a"*254"ü"
        the name of a share is no level
            opened; > subscribe 1 $share/g/a/b/c/d/e/f/g/#:0; < suback 1 0
        levels as configured
            settings levels=9; opened; > publish a/b/c/d/e/f/g/h/i
    """)
    bad = examples("""
        nine levels, reported once
            opened; > publish a/b/c/d/e/f/g/h/i hi !topic_name; > publish a/b/c/d/e/f/g/h/i ho
        257 bytes in 256 characters
            opened; > publish "a"*255"ü" !topic_name
        a filter of nine levels
            opened; > subscribe 1 a/b/c/d/e/f/g/h/#:0 !subscriptions[0].topic_filter; < suback 1 0
        more than MQTT 3.1 has
            opened 3.1; > publish "a"*32768 !topic_name
    """)

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
