from dataclasses import dataclass, field

from mqttscope.lint.rules import Findings, Rule, RuleContext, Severity, examples, forget_oldest, shown
from mqttscope.lint.shared_checks import duration
from mqttscope.mqtt import Direction, Publish

MAX_TOPICS = 10_000
"""Maximum number of topics tracked per server; the topic with the oldest minute is dropped first."""
MINUTE_NS = 60_000_000_000


@dataclass(slots=True)
class RetainedCount:
    """Retained messages on one topic within a minute."""

    began_ns: int
    number: int = 0
    reported: bool = False


@dataclass(slots=True)
class RetainedCounts:
    """Retained messages within a minute, by topic."""

    topics: dict[str, RetainedCount] = field(default_factory=dict)


class RetainedHighRate(Rule):
    """Retained messages on one topic are so frequent that the server keeps rewriting its store.

    Each message with RETAIN 1 replaces the previous one in the server's store: on many servers on disk, in a cluster on
    all nodes.  Only the last one before a new subscription is ever used.  Each topic is reported once, when the
    messages of all publishers reach the limit within a minute.

    Instead, publish values with RETAIN 0, and the state on its own topic with RETAIN 1 when it changes.
    """

    code = "OPS426"
    severity = Severity.WARNING
    sender = Direction.CLIENT_TO_SERVER
    when = "retain"
    version_matters = False
    settings = {
        # Maximum number of retained messages on one topic within a minute that is not reported.
        "per_minute": 60
    }
    Memory = RetainedCounts

    good = examples("""
        once a second
            opened
            for 1..70: +1 > publish a 21.5 retain
        RETAIN 0
            opened; > for 1..90: publish a 21.5
        many topics
            opened; > for 0..89: publish a/{n} 21.5 retain
        one resent message
            settings per_minute=3; opened 3.1.1; > publish a on qos=1 retain id=1
            for 1..5: +1 > publish a on dup qos=1 retain id=1
            < puback 1
    """)
    bad = examples("""
        ten per second, reported once
            opened
            for 1..60: +0.1 > publish a 21.5 retain
            +0.1 > publish a 21.5 retain !retain
            for 1..90: +0.1 > publish a 21.5 retain
        two clients, with a lower limit
            settings per_minute=2; opened 3.1.1; > publish a 21.5 retain; +100 > publish a 21.5 retain
            @1 opened client=c2; +20 @1 > publish a 21.5 retain; +20 > publish a 21.5 retain !retain
    """)

    def check(self, packet: Publish, at: RuleContext) -> Findings:
        """Count the retained messages on the topic."""
        topic = at.topic
        if topic is None or packet.dup:
            return None
        topics: dict[str, RetainedCount] = at.memory(self).topics
        minute = topics.get(topic)
        if minute is None:
            minute = topics[topic] = RetainedCount(at.timestamp_ns)
            forget_oldest(topics, MAX_TOPICS)
        if minute.reported:
            return None
        passed_ns = at.timestamp_ns - minute.began_ns
        if not 0 <= passed_ns < MINUTE_NS:
            del topics[topic]
            topics[topic] = RetainedCount(at.timestamp_ns, 1)
            return None
        minute.number += 1
        if minute.number <= self.set["per_minute"]:
            return None
        minute.reported = True
        return self.report(
            "retain", f"{minute.number:,} retained messages on {shown(topic)} in {duration(max(passed_ns, 1))}"
        )
