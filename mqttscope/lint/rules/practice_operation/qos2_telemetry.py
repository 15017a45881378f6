"""OPS223."""

from dataclasses import dataclass, field

from mqttscope.lint.context import RuleContext
from mqttscope.lint.examples import Step, client, conversation, examples, opened, server
from mqttscope.lint.finding import Confidence, Severity
from mqttscope.lint.rule import V3_1_1, Findings, Rule
from mqttscope.lint.shared_checks import duration
from mqttscope.lint.strings import shown
from mqttscope.mqtt.constants import Direction
from mqttscope.mqtt.packets import Puback, Pubcomp, Publish, Pubrec, Pubrel

MAX_TOPICS = 1_000
"""Topics that are followed on a connection; the oldest is forgotten first."""
MINUTE_NS = 60_000_000_000
HANDSHAKE_BYTES = 12
"""PUBREC, PUBREL and PUBCOMP in their shortest form."""


def _exchange(number: int, after: float) -> tuple[Step, ...]:
    return (
        client(Publish(qos=2, topic_name="a", packet_identifier=number, payload=b"21.5"), after=after),
        server(Pubrec(number), after=0.001),
        client(Pubrel(number), after=0.001),
        server(Pubcomp(number), after=0.001),
    )


@dataclass(slots=True)
class Minute:
    """QoS 2 messages on one topic."""

    number: int
    began_ns: int
    bytes: int
    reported: bool = False


@dataclass(slots=True)
class Minutes:
    """By topic."""

    topics: dict[str, Minute] = field(default_factory=dict)


class Qos2Telemetry(Rule):
    """A client publishes at a high rate with QoS 2.

    Each message takes four packets and two round trips, and both sides have to keep state for it.  Values that are
    replaced by the next one a moment later are rarely worth that.  Each topic is reported once per connection, when
    the rate is reached.

    Instead, use QoS 1 and make the receiver indifferent to duplicates, or QoS 0 for values that come all the time.
    """

    code = "OPS223"
    severity = Severity.INFO
    confidence = Confidence.HEURISTIC
    looks_at = Publish
    sender = Direction.CLIENT_TO_SERVER
    when = "qos"
    settings = {
        # QoS 2 messages on one topic within a minute, the fewest that are reported.
        "per_minute": 60,
    }
    Memory = Minutes

    good = examples(
        lambda: [
            conversation(
                "QoS 1",
                *opened(),
                *(
                    step
                    for number in range(1, 70)
                    for step in (
                        client(Publish(qos=1, topic_name="a", packet_identifier=number), after=0.1),
                        server(Puback(number)),
                    )
                ),
            ),
            conversation(
                "a message a second and a half",
                *opened(),
                *_exchange(1, 0.1),
                *(step for number in range(2, 50) for step in _exchange(number, 1.5)),
            ),
            conversation(
                "59 at once", *opened(), *(step for number in range(1, 60) for step in _exchange(number, 0.1))
            ),
        ]
    )
    bad = examples(
        lambda: [
            conversation(
                "600 a minute, reported once",
                *opened(V3_1_1),
                *(step for number in range(1, 60) for step in _exchange(number, 0.1)),
                _exchange(60, 0.1)[0].marked("qos"),
                *_exchange(60, 0.1)[1:],
                *(step for number in range(61, 70) for step in _exchange(number, 0.1)),
            ),
        ]
    )

    def check(self, packet: Publish, at: RuleContext) -> Findings:
        """Count in spans of a minute, which begin again when they are over."""
        topic = at.topic
        if packet.qos != 2 or topic is None or packet.dup:
            return None
        topics: dict[str, Minute] = at.memory(self).topics
        length = len(packet.raw) + packet.missing
        minute = topics.get(topic)
        if minute is None:
            minute = topics[topic] = Minute(0, at.timestamp_ns, 0)
            if len(topics) > MAX_TOPICS:
                del topics[next(iter(topics))]
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
