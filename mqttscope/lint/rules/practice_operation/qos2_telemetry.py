from dataclasses import dataclass, field

from mqttscope.lint.rules import Confidence, Findings, Rule, RuleContext, Severity, examples, forget_oldest, shown
from mqttscope.lint.shared_checks import duration
from mqttscope.mqtt import Direction, Publish

MAX_TOPICS = 1_000
"""Maximum number of topics tracked per connection; the oldest is dropped first."""
MINUTE_NS = 60_000_000_000
HANDSHAKE_BYTES = 12
"""Size of PUBREC, PUBREL and PUBCOMP in their shortest form."""


@dataclass(slots=True)
class Qos2Count:
    """QoS 2 messages on one topic within a minute."""

    number: int
    began_ns: int
    bytes: int
    reported: bool = False


@dataclass(slots=True)
class Qos2Counts:
    """QoS 2 messages within a minute, by topic."""

    topics: dict[str, Qos2Count] = field(default_factory=dict)


class Qos2Telemetry(Rule):
    """A client publishes at a high rate with QoS 2.

    Each message takes four packets and two round trips, and both sides have to keep state for it.  That is rarely
    worthwhile for values that are soon replaced by the next one.  Each topic is reported once per connection, when the
    rate is reached.

    Instead, use QoS 1 and make the receiver tolerate duplicates, or QoS 0 for values that are sent continuously.
    """

    code = "OPS223"
    severity = Severity.INFO
    confidence = Confidence.HEURISTIC
    sender = Direction.CLIENT_TO_SERVER
    when = "qos"
    settings = {
        # Minimum number of QoS 2 messages on one topic within a minute.
        "per_minute": 60,
    }
    Memory = Qos2Counts

    good = examples("""
        QoS 1
            opened
            for 1..69: +0.1 > publish a qos=1 id={n}; < puback {n}
        one message every one and a half seconds
            opened; +0.1 > publish a 21.5 qos=2 id=1; +0.001 < pubrec 1; +0.001 > pubrel 1; +0.001 < pubcomp 1
            for 2..49: +1.5 > publish a 21.5 qos=2 id={n}; +0.001 < pubrec {n}; +0.001 > pubrel {n};
                +0.001 < pubcomp {n}
        59 at once
            opened
            for 1..59: +0.1 > publish a 21.5 qos=2 id={n}; +0.001 < pubrec {n}; +0.001 > pubrel {n};
                +0.001 < pubcomp {n}
    """)
    bad = examples("""
        600 per minute, reported once
            opened 3.1.1
            for 1..59: +0.1 > publish a 21.5 qos=2 id={n}; +0.001 < pubrec {n}; +0.001 > pubrel {n};
                +0.001 < pubcomp {n}
            +0.1 > publish a 21.5 qos=2 id=60 !qos; +0.001 < pubrec 60; +0.001 > pubrel 60; +0.001 < pubcomp 60
            for 61..69: +0.1 > publish a 21.5 qos=2 id={n}; +0.001 < pubrec {n}; +0.001 > pubrel {n};
                +0.001 < pubcomp {n}
    """)

    def check(self, packet: Publish, at: RuleContext) -> Findings:
        """Count messages in windows of one minute."""
        topic = at.topic
        if packet.qos != 2 or topic is None or packet.dup:
            return None
        topics: dict[str, Qos2Count] = at.memory(self).topics
        length = len(packet.raw) + packet.missing
        minute = topics.get(topic)
        if minute is None:
            minute = topics[topic] = Qos2Count(0, at.timestamp_ns, 0)
            forget_oldest(topics, MAX_TOPICS)
        if minute.reported:
            return None
        if at.timestamp_ns - minute.began_ns > MINUTE_NS:
            minute.number, minute.began_ns, minute.bytes = 0, at.timestamp_ns, 0
        minute.number += 1
        minute.bytes += length
        if minute.number < self.set["per_minute"]:
            return None
        minute.reported = True
        each = minute.bytes // minute.number + HANDSHAKE_BYTES
        took = duration(at.timestamp_ns - minute.began_ns)
        return self.report(
            "qos",
            f"{minute.number:,} QoS 2 messages in {took} on {shown(topic)}: four packets and about {each:,} bytes each",
        )
