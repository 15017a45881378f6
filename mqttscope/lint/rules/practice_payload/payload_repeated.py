"""PAY204."""

from dataclasses import dataclass, field
from zlib import crc32

from mqttscope.lint.context import RuleContext
from mqttscope.lint.examples import client, conversation, examples, opened, server
from mqttscope.lint.finding import Severity
from mqttscope.lint.rule import V3_1_1, Findings, Rule
from mqttscope.lint.shared_checks import duration
from mqttscope.lint.strings import shown
from mqttscope.mqtt.constants import Direction
from mqttscope.mqtt.packets import Puback, Publish

MAX_TOPICS = 1_000
"""Topics that are followed on a connection; the oldest is forgotten first."""


@dataclass(slots=True)
class Repetition:
    """The same payload on one topic, again and again."""

    checksum: int
    number: int
    began_ns: int
    reported: bool = False


@dataclass(slots=True)
class Runs:
    """By topic."""

    topics: dict[str, Repetition] = field(default_factory=dict)


class PayloadRepeated(Rule):
    """A client publishes the same payload on the same topic over and over.

    Each message costs data volume and wakes every subscriber, and says nothing new.  Each topic is reported once per
    connection, when the number is reached.

    Instead, publish when the value changes, as a retained message, so that new subscribers get it too.
    """

    code = "PAY204"
    severity = Severity.INFO
    looks_at = Publish
    sender = Direction.CLIENT_TO_SERVER
    settings = {
        # Identical messages in a row on one topic, the fewest that are reported.
        "messages": 100,
        # Seconds in which that many have to come; a slow heartbeat is no waste.
        "seconds": 600,
    }
    Memory = Runs

    good = examples(
        lambda: [
            conversation("once, retained", *opened(), client(Publish(retain=True, topic_name="a", payload=b"21.5"))),
            conversation(
                "99 times, and then another value",
                *opened(),
                client(*(Publish(topic_name="a", payload=b"21.5") for _ in range(99))),
                client(Publish(topic_name="a", payload=b"21.6"), Publish(topic_name="a", payload=b"21.5")),
            ),
            conversation(
                "a slow heartbeat",
                *opened(keep_alive=0),
                *(client(Publish(topic_name="a", payload=b"on"), after=8.0) for _ in range(4)),
                settings={"messages": 3, "seconds": 15},
            ),
            conversation(
                "a message that is sent again is the same message",
                *opened(V3_1_1),
                client(Publish(qos=1, topic_name="a", packet_identifier=1, payload=b"on")),
                *(client(Publish(True, 1, False, "a", 1, payload=b"on"), after=20) for _ in range(2)),
                server(Puback(1)),
                settings={"messages": 3},
            ),
        ]
    )
    bad = examples(
        lambda: [
            conversation(
                "100 times in a minute, reported once",
                *opened(),
                *(client(Publish(topic_name="a", payload=b"21.5"), after=0.6) for _ in range(99)),
                client(Publish(topic_name="a", payload=b"21.5")).marked("payload"),
                *(client(Publish(topic_name="a", payload=b"21.5"), after=0.6) for _ in range(110)),
            ),
            conversation(
                "as often as configured, after a pause",
                *opened(V3_1_1, keep_alive=0),
                client(Publish(topic_name="a", payload=b"1")),
                client(Publish(topic_name="a", payload=b"1"), after=100),
                client(Publish(topic_name="a", payload=b"1")),
                client(Publish(topic_name="a", payload=b"1")).marked("payload"),
                settings={"messages": 3, "seconds": 10},
            ),
        ]
    )

    def check(self, packet: Publish, at: RuleContext) -> Findings:
        """Compare with the message before on the same topic."""
        topic = at.topic
        if topic is None or not packet.payload or packet.dup:
            return None
        topics: dict[str, Repetition] = at.memory(self).topics
        checksum = crc32(packet.payload)
        run = topics.get(topic)
        if run is None:
            topics[topic] = Repetition(checksum, 1, at.timestamp_ns)
            if len(topics) > MAX_TOPICS:
                del topics[next(iter(topics))]
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
