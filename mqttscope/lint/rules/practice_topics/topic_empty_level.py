"""TOP102."""

from collections.abc import Iterator

from mqttscope.lint.context import RuleContext
from mqttscope.lint.examples import examples
from mqttscope.lint.finding import Report, Severity
from mqttscope.lint.rule import Findings, Rule, packet_name
from mqttscope.lint.strings import shown
from mqttscope.lint.topics import NAMING, Seen, named_topics, plain
from mqttscope.mqtt.declare import ControlPacket
from mqttscope.mqtt.packets import Publish


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

    good = examples("""
        each level has a name
            opened; > publish a/b hi
        a slash at the beginning is another rule's matter
            opened; > publish /a/b hi
    """)
    bad = examples("""
        inside
            opened; > publish a//b hi !topic_name
        at the end, in a filter too, reported once each
            opened; > publish a/b/ hi !topic_name; > publish a/b/ hi; > subscribe 1 c/:0 !subscriptions[0].topic_filter
            < suback 1 0
        a single slash has two empty levels
            opened; > publish / !topic_name
        two at the beginning
            opened; > publish //a !topic_name
        in a will
            opened will=state/ will_payload=x !will.will_topic
    """)

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
