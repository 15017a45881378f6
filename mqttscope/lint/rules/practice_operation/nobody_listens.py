"""OPS428."""

from dataclasses import dataclass, field

from mqttscope.lint.context import RuleContext
from mqttscope.lint.examples import Step, client, conversation, examples, opened, server
from mqttscope.lint.finding import Severity
from mqttscope.lint.rule import V5, Findings, Rule
from mqttscope.lint.strings import shown
from mqttscope.mqtt.constants import Direction
from mqttscope.mqtt.packets import Puback, Publish, Pubrec

MAX_TOPICS = 10_000
"""Topics of a server that are counted; the oldest is forgotten first."""
NO_MATCHING_SUBSCRIBERS = 0x10


@dataclass(slots=True)
class Unheard:
    """Messages without subscribers, by topic; -1 once that was reported."""

    topics: dict[str, int] = field(default_factory=dict)


def _published(number: int, code: int = NO_MATCHING_SUBSCRIBERS, *, topic: str = "a") -> tuple[Step, Step]:
    packet = Publish(qos=1, topic_name=topic, packet_identifier=number, payload=b"21")
    return client(packet), server(Puback(number, reason_code=code))


class NobodyListens(Rule):
    """Messages of a topic have no subscriber, as the server says with Reason Code 0x10.

    They cost power and bandwidth for nothing; often the topic is misspelt on one of the two sides.  Each topic is
    reported once, when it was so often; a message that somebody gets begins the count again.

    Instead, publish what somebody needs, and compare the topics of publishers and subscribers.
    """

    code = "OPS428"
    severity = Severity.INFO
    versions = (V5,)
    looks_at = (Puback, Pubrec)
    sender = Direction.SERVER_TO_CLIENT
    settings = {"messages": 10}
    Memory = Unheard

    good = examples(
        lambda: [
            conversation(
                "some are heard",
                *opened(),
                *(step for number in range(1, 10) for step in _published(number)),
                *_published(10, 0),
                *(step for number in range(11, 20) for step in _published(number)),
            ),
            conversation(
                "different topics",
                *opened(),
                *(step for number in range(1, 12) for step in _published(number, topic=f"a/{number}")),
            ),
        ]
    )
    bad = examples(
        lambda: [
            conversation(
                "ten of a topic, reported once",
                *opened(),
                *(step for number in range(1, 10) for step in _published(number)),
                _published(10)[0],
                _published(10)[1].marked("reason_code"),
                *(step for number in range(11, 22) for step in _published(number)),
            ),
            conversation(
                "fewer, where that is the limit",
                *opened(),
                *_published(1),
                client(Publish(qos=2, topic_name="a", packet_identifier=2)),
                server(Pubrec(2, reason_code=NO_MATCHING_SUBSCRIBERS)).marked("reason_code"),
                settings={"messages": 2},
            ),
        ]
    )

    def check(self, packet: Puback | Pubrec, at: RuleContext) -> Findings:
        """Count the answers of each topic."""
        topics: dict[str, int] = at.memory(self).topics
        unheard = packet.reason_code == NO_MATCHING_SUBSCRIBERS
        if not unheard and not topics:
            return None
        exchange = at.client.exchanges.get(packet.packet_identifier)
        topic = None if exchange is None else exchange.topic
        if topic is None:
            return None
        number = topics.get(topic, 0)
        if not unheard:
            if number > 0 and not packet.reason_code:
                del topics[topic]
            return None
        if number < 0:
            return None
        topics[topic] = number + 1
        if len(topics) > MAX_TOPICS:
            del topics[next(iter(topics))]
        if number + 1 < float(self.set["messages"]):
            return None
        topics[topic] = -1
        return self.report("reason_code", f"{number + 1:,} messages on {shown(topic)} have had no subscriber (0x10)")
