"""TOP412."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import zip_longest

from mqttscope.lint.context import RuleContext
from mqttscope.lint.examples import client, conversation, examples, on, opened
from mqttscope.lint.finding import Severity
from mqttscope.lint.rule import ALL_VERSIONS, V3_1_1, Findings, Rule
from mqttscope.lint.shared_checks import duration
from mqttscope.mqtt.constants import Direction
from mqttscope.mqtt.packets import Publish

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


_FEW = {"topics": 3}


class TopicCardinality(Rule):
    """A client publishes on very many different topics.

    Servers keep retained messages, statistics and routes by topic, and some of that is never given back.  Mostly the
    cause is one level with a number that is new for each message, which then says nothing to a subscriber either.  Each
    client is reported once.

    Instead, put what changes from message to message into the payload or into User Properties.
    """

    code = "TOP412"
    severity = Severity.INFO
    versions = ALL_VERSIONS
    looks_at = Publish
    sender = Direction.CLIENT_TO_SERVER
    settings = {"topics": 1_000}
    Memory = Clients

    good = examples(
        lambda: [
            conversation(
                "the same topics again and again",
                *opened(),
                *(client(Publish(topic_name=f"dev/{number % 3}")) for number in range(12)),
                settings=_FEW,
            ),
            conversation(
                "several clients together",
                *opened(),
                client(Publish(topic_name="a/1"), Publish(topic_name="a/2")),
                *on(1, *opened(client_identifier="c2"), client(Publish(topic_name="a/3"), Publish(topic_name="a/4"))),
                settings=_FEW,
            ),
        ]
    )
    bad = examples(
        lambda: [
            conversation(
                "a number in the second level, reported once",
                *opened(),
                *(client(Publish(topic_name=f"dev/{number}/temp")) for number in range(3)),
                client(Publish(topic_name="dev/3/temp")).marked("topic_name"),
                *(client(Publish(topic_name=f"dev/{number}/temp")) for number in range(4, 12)),
                settings=_FEW,
            ),
            conversation(
                "over two connections, in 3.1.1",
                *opened(V3_1_1),
                *(client(Publish(topic_name=f"{number}")) for number in range(2)),
                *on(1, *opened(V3_1_1), client(Publish(topic_name="2"), Publish(topic_name="3")).marked("topic_name")),
                settings=_FEW,
            ),
        ]
    )

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
