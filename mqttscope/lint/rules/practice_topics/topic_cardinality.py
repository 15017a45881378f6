from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import zip_longest

from mqttscope.lint.rules import Findings, Rule, RuleContext, Severity, examples
from mqttscope.lint.shared_checks import duration
from mqttscope.mqtt import Direction, Publish

MAX_TOPICS = 200_000
"""Topics of all clients of a server together; the client that came first makes room."""
MAX_CLIENTS = 20_000
"""Clients of a server that are followed; the one that came first makes room."""


@dataclass(slots=True)
class Topics:
    """What one client has published on."""

    since_ns: int
    names: dict[str, bool] = field(default_factory=dict)
    told: bool = False


@dataclass(slots=True)
class Clients:
    """By Client Identifier."""

    topics: dict[str, Topics] = field(default_factory=dict)
    number: int = 0
    """Of all topics."""


class TopicCardinality(Rule):
    """A client publishes on very many different topics.

    Servers keep retained messages, statistics and routes by topic, and some of that is never given back.  Mostly the
    cause is one level with a number that is new for each message, which then says nothing to a subscriber either.  Each
    client is reported once.

    Instead, put what changes from message to message into the payload or into User Properties.
    """

    code = "TOP412"
    severity = Severity.INFO
    sender = Direction.CLIENT_TO_SERVER
    settings = {"topics": 1_000}
    Memory = Clients

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
        """Note a topic that is new for the client."""
        topic = at.topic
        clients: Clients = at.memory(self)
        known = clients.topics.get(at.client_name)
        if topic is None or (known is not None and (known.told or topic in known.names)):
            return None
        if known is None:
            known = clients.topics[at.client_name] = Topics(at.timestamp_ns)
        known.names[topic] = True
        clients.number += 1
        if clients.number > MAX_TOPICS or len(clients.topics) > MAX_CLIENTS:
            first = next(iter(clients.topics))
            clients.number -= len(clients.topics.pop(first).names)
            if first == at.client_name:
                return None
        if len(known.names) <= float(self.set["topics"]):
            return None
        names, known.names, known.told = known.names, {}, True
        clients.number -= len(names)
        level, values = _busiest(names)
        took = duration(at.timestamp_ns - known.since_ns)
        return self.report(
            "topic_name",
            f"{at.client_name!r} has used {len(names):,} different topics in {took}; level {level} has {values:,} "
            "different values",
        )


def _busiest(names: Iterable[str]) -> tuple[int, int]:
    """The level that differs most, counted from 1, and how many values it has."""
    levels = [len({*column} - {None}) for column in zip_longest(*(name.split("/") for name in names))]
    most = max(levels)
    return levels.index(most) + 1, most
