from dataclasses import dataclass, field

from mqttscope.lint.rules import Findings, Rule, RuleContext, Severity, examples, forget_oldest, shown
from mqttscope.lint.shared_checks import duration
from mqttscope.mqtt import Direction, Publish

MAX_TOPICS = 10_000
"""Topics that are followed on a server; the one whose minute began first is forgotten first."""
MINUTE_NS = 60_000_000_000


@dataclass(slots=True)
class Minute:
    """Retained messages on one topic in at most a minute."""

    began_ns: int
    number: int = 0
    reported: bool = False


@dataclass(slots=True)
class Rates:
    """By topic."""

    topics: dict[str, Minute] = field(default_factory=dict)


class RetainedHighRate(Rule):
    """Retained messages to one topic come so often that the server keeps rewriting its store.

    Each message with RETAIN 1 replaces the one before in the server's store, on disk with many servers and on all
    nodes of a cluster.  Only the last one before somebody subscribes is ever of use.  Each topic is reported once,
    when the number is reached within a minute, whoever publishes them.

    Instead, publish values with RETAIN 0, and the state on its own topic with RETAIN 1 when it changes.
    """

    code = "OPS426"
    severity = Severity.WARNING
    sender = Direction.CLIENT_TO_SERVER
    when = "retain"
    version_matters = False
    settings = {
        # Retained messages on one topic in a minute, the most that are not reported.
        "per_minute": 60
    }
    Memory = Rates

    good = examples("""
        once a second
            opened
            for 1..70: +1 > publish a 21.5 retain
        RETAIN 0
            opened; > for 1..90: publish a 21.5
        many topics
            opened; > for 0..89: publish a/{n} 21.5 retain
        one message that is sent again
            settings per_minute=3; opened 3.1.1; > publish a on qos=1 retain id=1
            for 1..5: +1 > publish a on dup qos=1 retain id=1
            < puback 1
    """)
    bad = examples("""
        ten a second, reported once
            opened
            for 1..60: +0.1 > publish a 21.5 retain
            +0.1 > publish a 21.5 retain !retain
            for 1..90: +0.1 > publish a 21.5 retain
        of two clients, and as few as configured
            settings per_minute=2; opened 3.1.1; > publish a 21.5 retain; +100 > publish a 21.5 retain
            @1 opened client=c2; +20 @1 > publish a 21.5 retain; +20 > publish a 21.5 retain !retain
    """)

    def check(self, packet: Publish, at: RuleContext) -> Findings:
        """Count the messages of the topic."""
        topic = at.topic
        if topic is None or packet.dup:
            return None
        topics: dict[str, Minute] = at.memory(self).topics
        minute = topics.get(topic)
        if minute is None:
            minute = topics[topic] = Minute(at.timestamp_ns)
            forget_oldest(topics, MAX_TOPICS)
        if minute.reported:
            return None
        passed_ns = at.timestamp_ns - minute.began_ns
        if not 0 <= passed_ns < MINUTE_NS:
            del topics[topic]
            topics[topic] = Minute(at.timestamp_ns, 1)
            return None
        minute.number += 1
        if minute.number <= self.set["per_minute"]:
            return None
        minute.reported = True
        return self.report(
            "retain", f"{minute.number:,} retained messages on {shown(topic)} in {duration(max(passed_ns, 1))}"
        )
