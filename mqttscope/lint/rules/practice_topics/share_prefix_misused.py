import re
from collections.abc import Iterator

from mqttscope.lint.rules import V5, Confidence, Findings, Report, Rule, RuleContext, Severity, examples, packet_name
from mqttscope.lint.strings import shown
from mqttscope.lint.topics import NAMING, ReportedTexts, named_topics
from mqttscope.mqtt import ControlPacket, Publish

_BARE = re.compile(r"share/[^/]+/.")


class SharePrefixMisused(Rule):
    """A topic or topic filter looks like a shared subscription but is not one.

    Only a filter of MQTT 5.0 that begins with exactly ``$share/`` is shared.  Anything else is an ordinary name: a
    message published to it does not reach the members of the share, and a subscription to it receives nothing.  Some
    brokers also support ``$share/`` and ``$queue/`` in MQTT 3.1.1, but others do not.  Each name is reported once per
    connection.

    Instead, publish to the plain topic and subscribe with ``$share/name/filter`` over MQTT 5.0.
    """

    code = "TOP107"
    severity = Severity.WARNING
    looks_at = NAMING
    Memory = ReportedTexts

    good = examples("""
        a plain topic
            opened; > publish a hi
        a shared subscription
            opened; > subscribe 1 $share/g/a:0; < suback 1 0
        a first level with a similar start
            opened 3.1.1; > subscribe 1 share/prices:0 shares/a/b:0; < suback 1 0 0; > publish share/g/a
    """)
    bad = examples("""
        used in a PUBLISH, reported once
            opened; > publish $share/g/a hi !topic_name; > publish $share/g/a ho
        other spellings
            opened
            > subscribe 1 $SHARE/g/a:0 share/g/a:0 $queue/a:0 !subscriptions[0].topic_filter
                !subscriptions[1].topic_filter !subscriptions[2].topic_filter
            < suback 1 0 0 0
        in a version without Shared Subscriptions
            opened 3.1.1; > subscribe 1 $share/g/a:0 !subscriptions[0].topic_filter; < suback 1 0
    """)

    def check(self, packet: ControlPacket, at: RuleContext) -> Findings:
        """Check the first characters of each name."""
        if type(packet) is Publish and not packet.properties and packet.topic_name[:1] != "$":
            return None
        return self._misused(packet, at)

    def _misused(self, packet: ControlPacket, at: RuleContext) -> Iterator[Report]:
        for named in named_topics(packet):
            start = named.text[:7]
            why, confidence = "", None
            if not named.is_filter:
                if start == "$share/":
                    why = "a topic name is never shared"
            elif start == "$share/":
                if at.version is not V5:
                    why = f"MQTT {at.version.text} has no shared subscriptions; they are an extension of some brokers"
            elif start.lower() == "$share/":
                why = "the prefix is '$share/', in lower case"
            elif start == "$queue/":
                why = "the prefix is an extension of some brokers"
            elif _BARE.match(named.text):
                why, confidence = "the prefix is '$share/'", Confidence.HEURISTIC
            if why and at.memory(self).first(named.text):
                yield self.report(
                    named.field,
                    f"{packet_name(packet)}: {shown(named.text)} looks like a shared subscription but is not one: "
                    f"{why}",
                    confidence=confidence,
                )
