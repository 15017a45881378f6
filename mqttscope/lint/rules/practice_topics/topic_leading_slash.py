"""TOP101."""

from collections.abc import Iterator

from mqttscope.lint.context import RuleContext
from mqttscope.lint.examples import examples
from mqttscope.lint.finding import Report, Severity
from mqttscope.lint.rule import Findings, Rule, packet_name
from mqttscope.lint.strings import shown
from mqttscope.lint.topics import NAMING, Seen, named_topics, plain
from mqttscope.mqtt.declare import ControlPacket
from mqttscope.mqtt.packets import Publish


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

    good = examples("""
        no slash at the beginning
            opened; > publish home/floor1/security/camera2 hi
        a shared subscription without one
            opened; > subscribe 1 $share/g/home/#:0; < suback 1 0
    """)
    bad = examples("""
        written like a path
            opened; > publish /home/floor1/security/camera2 hi !topic_name; > publish /home/floor1/security/camera2 ho
        in a filter, after the name of a share, and where answers are wanted
            opened; > subscribe 1 a:0 /b/#:0 !subscriptions[1].topic_filter; < suback 1 0 0
            > subscribe 2 $share/g//c:0 !subscriptions[0].topic_filter; < suback 2 0
            > publish a response_topic=/r !properties.response_topic
        in a will
            opened will=/state/c1 will_payload=offline !will.will_topic
        delivered by the server
            opened; < publish /a 1 !topic_name
    """)

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
