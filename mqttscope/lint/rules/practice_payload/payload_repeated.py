from dataclasses import dataclass, field
from zlib import crc32

from mqttscope.lint.rules import Findings, Rule, RuleContext, Severity, examples, forget_oldest, shown
from mqttscope.lint.shared_checks import duration
from mqttscope.mqtt import Direction, Publish

MAX_TOPICS = 1_000
"""Maximum number of topics tracked per connection; the oldest is dropped first."""


@dataclass(slots=True)
class Repetition:
    """A run of equal payloads on one topic."""

    checksum: int
    number: int
    began_ns: int
    reported: bool = False


@dataclass(slots=True)
class Runs:
    """Runs of equal payloads, by topic."""

    topics: dict[str, Repetition] = field(default_factory=dict)


class PayloadRepeated(Rule):
    """A client publishes the same payload on the same topic over and over.

    Each message costs data volume and wakes every subscriber, without new information.  Each topic is reported once per
    connection, when the limit is reached.

    Instead, publish only when the value changes, as a retained message, so that new subscribers get it too.
    """

    code = "PAY204"
    severity = Severity.INFO
    sender = Direction.CLIENT_TO_SERVER
    settings = {
        # Minimum number of identical messages in a row on one topic.
        "messages": 100,
        # Period for these messages, in seconds; slower heartbeats are not reported.
        "seconds": 600,
    }
    Memory = Runs

    good = examples("""
        once, retained
            opened; > publish a 21.5 retain
        99 times, and then another value
            opened; > for 1..99: publish a 21.5; > publish a 21.6 & publish a 21.5
        a slow heartbeat
            settings messages=3 seconds=15; opened keep_alive=0; +8 > publish a on; +8 > publish a on; +8 > publish a on
            +8 > publish a on
        a resent message counts once
            settings messages=3; opened 3.1.1; > publish a on qos=1 id=1; +20 > publish a on dup qos=1 id=1
            +20 > publish a on dup qos=1 id=1; < puback 1
    """)
    bad = examples("""
        100 times in a minute, reported once
            opened
            for 1..99: +0.6 > publish a 21.5
            > publish a 21.5 !payload
            for 1..110: +0.6 > publish a 21.5
        a lower limit, after a pause
            settings messages=3 seconds=10; opened 3.1.1 keep_alive=0; > publish a 1; +100 > publish a 1; > publish a 1
            > publish a 1 !payload
    """)

    def check(self, packet: Publish, at: RuleContext) -> Findings:
        """Compare with the previous message on the topic."""
        topic = at.topic
        if topic is None or not packet.payload or packet.dup:
            return None
        topics: dict[str, Repetition] = at.memory(self).topics
        checksum = crc32(packet.payload)
        run = topics.get(topic)
        if run is None:
            topics[topic] = Repetition(checksum, 1, at.timestamp_ns)
            forget_oldest(topics, MAX_TOPICS)
            return None
        if run.reported:
            return None
        if run.checksum != checksum or at.timestamp_ns - run.began_ns > self.set["seconds"] * 1_000_000_000:
            run.checksum, run.number, run.began_ns = checksum, 1, at.timestamp_ns
            return None
        run.number += 1
        if run.number < self.set["messages"]:
            return None
        run.reported = True
        took = duration(at.timestamp_ns - run.began_ns)
        return self.report("payload", f"{run.number:,} identical messages on {shown(topic)} in {took}")
