from collections.abc import Iterator
from dataclasses import dataclass, field

from mqttscope.lint.rules import Confidence, Findings, Report, Rule, RuleContext, Severity, examples, forget_oldest
from mqttscope.lint.strings import shown
from mqttscope.lint.topics import NAMING, difference, fold, named_topics, plain
from mqttscope.mqtt import ControlPacket, Publish

MAX_TOPICS = 1_000


@dataclass(slots=True)
class Spellings:
    """Topics and filters of a connection."""

    known: dict[str, bool] = field(default_factory=dict)
    """Topics and filters in their original spelling."""
    folded: dict[str, str] = field(default_factory=dict)
    """First spelling of each name, by its normalised form."""


class TopicNearMiss(Rule):
    """Two topics or filters on a connection differ only in case, in outer slashes or in spaces.

    Brokers compare topics character by character, so ``Home/Temp`` and ``home/temp`` are unrelated.  Usually it is a
    typing error, and the message reaches no subscriber.  Each spelling is reported once.

    Instead, agree on one spelling, preferably in lower case.
    """

    code = "TOP211"
    severity = Severity.INFO
    confidence = Confidence.HEURISTIC
    looks_at = NAMING
    Memory = Spellings

    good = examples("""
        one spelling
            opened; > publish home/temp & publish home/temp & publish home/temp1
        an empty level inside makes another topic
            opened; > publish a/b & publish a//b
        a Shared Subscription with the same filter
            opened; > subscribe 1 a:0 $share/g/a:0; < suback 1 0 0
    """)
    bad = examples("""
        upper and lower case, reported once
            opened; > publish Home/Temp; > publish home/temp !topic_name; > publish home/temp
        slashes and spaces
            opened; > subscribe 1 a/b:0 a/b/:0 "a /b":0 !subscriptions[1].topic_filter !subscriptions[2].topic_filter
            < suback 1 0 0 0
        UNSUBSCRIBE with another spelling than SUBSCRIBE
            opened; > subscribe 1 A/b:0; < suback 1 0; > unsubscribe 2 a/b !topic_filters[0]; < unsuback 2 0x11
    """)

    def check(self, packet: ControlPacket, at: RuleContext) -> Findings:
        """Check the names in the packet unless its topic is already known."""
        memory: Spellings = at.memory(self)
        if type(packet) is Publish and not packet.properties and packet.topic_name in memory.known:
            return None
        return self._near_misses(packet, memory)

    def _near_misses(self, packet: ControlPacket, memory: Spellings) -> Iterator[Report]:
        for named in named_topics(packet):
            text = plain(named.text) if named.is_filter else named.text
            if text in memory.known:
                continue
            memory.known[text] = True
            forget_oldest(memory.known, MAX_TOPICS)
            key = fold(text)
            first = memory.folded.setdefault(key, text)
            forget_oldest(memory.folded, MAX_TOPICS)
            if key and first != text:
                yield self.report(
                    named.field, f"topic {shown(text)} differs from {shown(first)} only in {difference(text, first)}"
                )
