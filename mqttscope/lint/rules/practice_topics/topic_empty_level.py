"""TOP102."""

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


class TopicEmptyLevel(Rule):
    """A topic or topic filter has an empty level inside or at its end.

    That is legal, and nearly always a slip: a variable that was empty when the topic was put together, or a slash too
    many.  The topic is another one than without the level, so that subscribers miss it.  Each topic is reported once
    per connection.

    Instead, put one slash between levels and none after the last.
    """

    code = "TOP102"
    severity = Severity.INFO
    looks_at = NAMING
    Memory = Seen

    good = examples(
        lambda: [
            conversation("each level has a name", *opened(), client(Publish(topic_name="a/b", payload=b"hi"))),
            conversation(
                "a slash at the beginning is another rule's matter",
                *opened(),
                client(Publish(topic_name="/a/b", payload=b"hi")),
            ),
        ]
    )
    bad = examples(
        lambda: [
            conversation("inside", *opened(), client(Publish(topic_name="a//b", payload=b"hi")).marked("topic_name")),
            conversation(
                "at the end, in a filter too, reported once each",
                *opened(),
                client(Publish(topic_name="a/b/", payload=b"hi")).marked("topic_name"),
                client(Publish(topic_name="a/b/", payload=b"hi")),
                client(Subscribe(1, None, [Subscription("c/")])).marked("subscriptions[0].topic_filter"),
                server(Suback(1, None, [0])),
            ),
            conversation(
                "a single slash has two empty levels", *opened(), client(Publish(topic_name="/")).marked("topic_name")
            ),
            conversation("two at the beginning", *opened(), client(Publish(topic_name="//a")).marked("topic_name")),
            conversation("in a will", opened(will=Will("state/", b"x"))[0].marked("will.will_topic"), opened()[1]),
        ]
    )

    def check(self, packet: ControlPacket, at: RuleContext) -> Findings:
        """One search for two slashes clears nearly all topics."""
        if type(packet) is Publish and not packet.properties:
            topic = packet.topic_name
            if "//" not in topic and topic[-1:] != "/":
                return None
        return self._found(packet, at)

    def _found(self, packet: ControlPacket, at: RuleContext) -> Iterator[Report]:
        for named in named_topics(packet):
            text = plain(named.text) if named.is_filter else named.text
            places = ["inside"] if "//" in text else []
            if text.endswith("/"):
                places.append("at the end")
            if places and at.memory(self).first(named.text):
                where = " and ".join(places)
                yield self.report(
                    named.field, f"{packet_name(packet)}: {shown(named.text)} has an empty level ({where})"
                )
