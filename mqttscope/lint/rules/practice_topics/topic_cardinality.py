from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import zip_longest

from mqttscope.lint.rules import Findings, Rule, RuleContext, Severity, examples
from mqttscope.lint.shared_checks import duration
from mqttscope.mqtt import Direction, Publish

MAX_TOPICS = 200_000
"""Maximum number of topics kept per server; the oldest client is dropped first."""
MAX_CLIENTS = 20_000
"""Maximum number of clients tracked per server; the oldest is dropped first."""


@dataclass(slots=True)
class ClientTopics:
    """The topics that one client has published to."""

    since_ns: int
    names: dict[str, bool] = field(default_factory=dict)
    is_reported: bool = False


@dataclass(slots=True)
class TopicsByClient:
    """Topics by Client Identifier."""

    topics: dict[str, ClientTopics] = field(default_factory=dict)
    number: int = 0
    """Total number of topics."""


class TopicCardinality(Rule):
    """A client publishes to very many different topics.

    Servers store retained messages, statistics and routes by topic, and some of this memory is never released.  Usually
    one level contains a number that is new in each message, which is useless to subscribers.  Each client is reported
    once.

    Instead, put values that change with every message into the payload or into User Properties.
    """

    code = "TOP412"
    severity = Severity.INFO
    sender = Direction.CLIENT_TO_SERVER
    settings = {"topics": 1_000}
    Memory = TopicsByClient

    good = examples("""
        the same topics again and again
            settings topics=3; opened
            for 1..4: > publish dev/0; > publish dev/1; > publish dev/2
        several clients together
            settings topics=3; opened; > publish a/1 & publish a/2; @1 opened client=c2; @1 > publish a/3 & publish a/4
    """)
    bad = examples("""
        a number in the second level, reported once
            settings topics=3; opened; > publish dev/0/temp; > publish dev/1/temp; > publish dev/2/temp
            > publish dev/3/temp !topic_name
            for 4..11: > publish dev/{n}/temp
        over two connections, in 3.1.1
            settings topics=3; opened 3.1.1; > publish 0; > publish 1; @1 opened; @1 > publish 2 & publish 3 !topic_name
    """)

    def check(self, packet: Publish, at: RuleContext) -> Findings:
        """Store a topic that is new for the client."""
        topic = at.topic
        clients: TopicsByClient = at.memory(self)
        known = clients.topics.get(at.client_name)
        if topic is None or (known is not None and (known.is_reported or topic in known.names)):
            return None
        if known is None:
            known = clients.topics[at.client_name] = ClientTopics(at.timestamp_ns)
        known.names[topic] = True
        clients.number += 1
        if clients.number > MAX_TOPICS or len(clients.topics) > MAX_CLIENTS:
            first = next(iter(clients.topics))
            clients.number -= len(clients.topics.pop(first).names)
            if first == at.client_name:
                return None
        if len(known.names) <= float(self.set["topics"]):
            return None
        names, known.names, known.is_reported = known.names, {}, True
        clients.number -= len(names)
        level, values = _busiest(names)
        took = duration(at.timestamp_ns - known.since_ns)
        return self.report(
            "topic_name",
            f"{at.client_name!r} has used {len(names):,} different topics in {took}; level {level} has {values:,} "
            "different values",
        )


def _busiest(names: Iterable[str]) -> tuple[int, int]:
    """The level with the most different values, counted from 1, and the number of its values."""
    levels = [len({*column} - {None}) for column in zip_longest(*(name.split("/") for name in names))]
    most = max(levels)
    return levels.index(most) + 1, most
