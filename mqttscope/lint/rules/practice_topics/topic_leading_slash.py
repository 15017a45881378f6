"""TOP101."""

from collections.abc import Iterator

from mqttscope.lint.context import RuleContext
from mqttscope.lint.examples import client, conversation, examples, opened, server
from mqttscope.lint.finding import Report, Severity
from mqttscope.lint.rule import Findings, Rule, packet_name
from mqttscope.lint.strings import shown
from mqttscope.lint.topics import NAMING, Seen, named_topics, plain
from mqttscope.mqtt.declare import ControlPacket
from mqttscope.mqtt.packets import Publish, Suback, Subscribe
from mqttscope.mqtt.parts import Subscription, Will
from mqttscope.mqtt.properties import Properties


class TopicLeadingSlash(Rule):
    """A topic or topic filter begins with a slash.

    That is legal, but the slash does not mean a root: it makes an empty first level.  Filters that others write
    without it do not match, and the name is a byte longer for nothing.  Each topic is reported once per connection.

    Instead, begin with the first level that has a name.
    """

    code = "TOP101"
    severity = Severity.INFO
    looks_at = NAMING
    Memory = Seen

    good = examples(
        lambda: [
            conversation(
                "no slash at the beginning",
                *opened(),
                client(Publish(topic_name="home/floor1/security/camera2", payload=b"hi")),
            ),
            conversation(
                "a shared subscription without one",
                *opened(),
                client(Subscribe(1, None, [Subscription("$share/g/home/#")])),
                server(Suback(1, None, [0])),
            ),
        ]
    )
    bad = examples(
        lambda: [
            conversation(
                "written like a path",
                *opened(),
                client(Publish(topic_name="/home/floor1/security/camera2", payload=b"hi")).marked("topic_name"),
                client(Publish(topic_name="/home/floor1/security/camera2", payload=b"ho")),
            ),
            conversation(
                "in a filter, after the name of a share, and where answers are wanted",
                *opened(),
                client(Subscribe(1, None, [Subscription("a"), Subscription("/b/#")])).marked(
                    "subscriptions[1].topic_filter"
                ),
                server(Suback(1, None, [0, 0])),
                client(Subscribe(2, None, [Subscription("$share/g//c")])).marked("subscriptions[0].topic_filter"),
                server(Suback(2, None, [0])),
                client(Publish(topic_name="a", properties=Properties(response_topic="/r"))).marked(
                    "properties.response_topic"
                ),
            ),
            conversation(
                "in a will",
                opened(will=Will("/state/c1", b"offline"))[0].marked("will.will_topic"),
                opened()[1],
            ),
            conversation(
                "delivered by the server",
                *opened(),
                server(Publish(topic_name="/a", payload=b"1")).marked("topic_name"),
            ),
        ]
    )

    def check(self, packet: ControlPacket, at: RuleContext) -> Findings:
        """One look at the first character clears nearly all topics."""
        if type(packet) is Publish and packet.topic_name[:1] != "/" and not packet.properties:
            return None
        return self._found(packet, at)

    def _found(self, packet: ControlPacket, at: RuleContext) -> Iterator[Report]:
        for named in named_topics(packet):
            text = plain(named.text) if named.is_filter else named.text
            if text.startswith("/") and at.memory(self).first(named.text):
                yield self.report(
                    named.field, f"{packet_name(packet)}: {shown(named.text)} begins with '/' (empty first level)"
                )
