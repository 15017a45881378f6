from dataclasses import dataclass, field

from mqttscope.lint.rules import V5, Findings, Rule, RuleContext, Severity, examples, forget_oldest, shown
from mqttscope.mqtt import Direction, Puback, Pubrec

MAX_TOPICS = 10_000
"""Maximum number of topics counted per server; the oldest is dropped first."""
NO_MATCHING_SUBSCRIBERS = 0x10


@dataclass(slots=True)
class UnheardTopics:
    """Number of messages without subscribers, by topic; -1 if already reported."""

    topics: dict[str, int] = field(default_factory=dict)


class NobodyListens(Rule):
    """Messages on a topic have no subscriber, according to Reason Code 0x10.

    They waste power and bandwidth; often one side has misspelt the topic.  Reported once for each topic, after
    ``messages`` such messages in a row; a message with a subscriber restarts the count.

    Instead, publish only messages that are needed, and compare the topics of publishers and subscribers.
    """

    code = "OPS428"
    severity = Severity.INFO
    versions = (V5,)
    sender = Direction.SERVER_TO_CLIENT
    settings = {"messages": 10}
    Memory = UnheardTopics

    good = examples("""
        some have a subscriber
            opened
            for 1..9: > publish a 21 qos=1 id={n}; < puback {n} code=0x10
            > publish a 21 qos=1 id=10; < puback 10 code=0
            for 11..19: > publish a 21 qos=1 id={n}; < puback {n} code=0x10
        different topics
            opened
            for 1..11: > publish a/{n} 21 qos=1 id={n}; < puback {n} code=0x10
    """)
    bad = examples("""
        ten on one topic, reported once
            opened
            for 1..9: > publish a 21 qos=1 id={n}; < puback {n} code=0x10
            > publish a 21 qos=1 id=10; < puback 10 code=0x10 !reason_code
            for 11..21: > publish a 21 qos=1 id={n}; < puback {n} code=0x10
        fewer, with a lower limit
            settings messages=2; opened; > publish a 21 qos=1 id=1; < puback 1 code=0x10; > publish a qos=2 id=2
            < pubrec 2 code=0x10 !reason_code
    """)

    def check(self, packet: Puback | Pubrec, at: RuleContext) -> Findings:
        """Count the answers for each topic."""
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
        forget_oldest(topics, MAX_TOPICS)
        if number + 1 < float(self.set["messages"]):
            return None
        topics[topic] = -1
        return self.report("reason_code", f"{number + 1:,} messages on {shown(topic)} had no subscriber (0x10)")
