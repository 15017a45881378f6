"""TOP211."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from mqttscope.lint.context import RuleContext
from mqttscope.lint.examples import client, conversation, examples, opened, server
from mqttscope.lint.finding import Confidence, Report, Severity
from mqttscope.lint.rule import Findings, Rule
from mqttscope.lint.strings import shown
from mqttscope.lint.topics import NAMING, difference, fold, named_topics, plain
from mqttscope.mqtt.declare import ControlPacket
from mqttscope.mqtt.packets import Publish, Suback, Subscribe, Unsuback, Unsubscribe
from mqttscope.mqtt.parts import Subscription

MAX_TOPICS = 1_000
"""Topics that are remembered of a connection."""


@dataclass(slots=True)
class Spellings:
    """Topics and filters of a connection."""

    known: dict[str, bool] = field(default_factory=dict)
    """Each as it is spelled."""
    folded: dict[str, str] = field(default_factory=dict)
    """The first spelling by what near misses have in common."""


class TopicNearMiss(Rule):
    """Two topics or filters on a connection differ only by case, by slashes at their ends or by spaces.

    Brokers compare topics character by character, so ``Home/Temp`` and ``home/temp`` have nothing to do with each
    other.  It is usually a typing error, and the message goes where nobody listens.  Each spelling is reported once.

    Instead, agree on one spelling, best in lower case.
    """

    code = "TOP211"
    severity = Severity.INFO
    confidence = Confidence.HEURISTIC
    looks_at = NAMING
    Memory = Spellings

    good = examples(
        lambda: [
            conversation(
                "one spelling",
                *opened(),
                client(
                    Publish(topic_name="home/temp"), Publish(topic_name="home/temp"), Publish(topic_name="home/temp1")
                ),
            ),
            conversation(
                "an empty level inside makes another topic",
                *opened(),
                client(Publish(topic_name="a/b"), Publish(topic_name="a//b")),
            ),
            conversation(
                "a share of the same filter",
                *opened(),
                client(Subscribe(1, None, [Subscription("a"), Subscription("$share/g/a")])),
                server(Suback(1, None, [0, 0])),
            ),
        ]
    )
    bad = examples(
        lambda: [
            conversation(
                "upper and lower case, reported once",
                *opened(),
                client(Publish(topic_name="Home/Temp")),
                client(Publish(topic_name="home/temp")).marked("topic_name"),
                client(Publish(topic_name="home/temp")),
            ),
            conversation(
                "slashes and spaces",
                *opened(),
                client(Subscribe(1, None, [Subscription("a/b"), Subscription("a/b/"), Subscription("a /b")])).marked(
                    "subscriptions[1].topic_filter", "subscriptions[2].topic_filter"
                ),
                server(Suback(1, None, [0, 0, 0])),
            ),
            conversation(
                "what is unsubscribed is not what was subscribed",
                *opened(),
                client(Subscribe(1, None, [Subscription("A/b")])),
                server(Suback(1, None, [0])),
                client(Unsubscribe(2, None, ["a/b"])).marked("topic_filters[0]"),
                server(Unsuback(2, None, [0x11])),
            ),
        ]
    )

    def check(self, packet: ControlPacket, at: RuleContext) -> Findings:
        """A topic that came before is cleared at once."""
        memory: Spellings = at.memory(self)
        if type(packet) is Publish and not packet.properties and packet.topic_name in memory.known:
            return None
        return self._found(packet, memory)

    def _found(self, packet: ControlPacket, memory: Spellings) -> Iterator[Report]:
        for named in named_topics(packet):
            text = plain(named.text) if named.is_filter else named.text
            if text in memory.known:
                continue
            memory.known[text] = True
            if len(memory.known) > MAX_TOPICS:
                del memory.known[next(iter(memory.known))]
            key = fold(text)
            first = memory.folded.setdefault(key, text)
            if len(memory.folded) > MAX_TOPICS:
                del memory.folded[next(iter(memory.folded))]
            if key and first != text:
                yield self.report(
                    named.field, f"topic {shown(text)} differs from {shown(first)} only by {difference(text, first)}"
                )
