"""OPS429."""

from dataclasses import dataclass, field

from mqttscope.lint.context import ConnectionKey, RuleContext
from mqttscope.lint.examples import Step, client, conversation, examples, on, opened, server
from mqttscope.lint.finding import Related, Severity
from mqttscope.lint.message_model import Messages
from mqttscope.lint.rule import ALL_VERSIONS, V3_1_1, Findings, Needs, Rule
from mqttscope.lint.rules.delivery import ALL_SUBSCRIPTIONS, message, publishes, subscriber
from mqttscope.lint.strings import shown
from mqttscope.mqtt.constants import Direction
from mqttscope.mqtt.packets import Puback, Publish, Suback
from mqttscope.session.connection import Connection

MAX_CLIENTS = 10_000
"""Connections whose deliveries are counted; later ones are not."""


@dataclass(slots=True)
class Share:
    """Deliveries by one subscription."""

    published: int
    """Messages that the server had received when the client had subscribed; in a session that continues, before the
    first one that it got."""
    filters: dict[str, int] = field(default_factory=dict)
    number: int = 0
    told: bool = False


@dataclass(slots=True)
class Shares:
    """By connection."""

    clients: dict[ConnectionKey, Share] = field(default_factory=dict)


def _traffic(number: int, topic: str = "a") -> tuple[Step, ...]:
    payload = b"%d" % number
    return (
        *publishes(message(payload, topic_name=topic), after=0.1),
        *on(1, server(message(payload, topic_name=topic)), client(Puback(1))),
    )


_FIVE = {"messages": 5}


class WildcardFanOut(Rule):
    """One subscription with a wildcard draws most of the messages of a server.

    Such a client has to keep up with all others together, and with QoS 1 and 2 the server keeps for it whatever it is
    slow to take.  It is reported once for each connection, from so many messages on, where it gets at least half of
    what captured clients have published since.

    Instead, subscribe to what is needed, divide the work by Shared Subscriptions, or use an export of the server.
    """

    code = "OPS429"
    severity = Severity.INFO
    versions = ALL_VERSIONS
    looks_at = (Publish, Suback)
    sender = Direction.SERVER_TO_CLIENT
    needs = ALL_SUBSCRIPTIONS & ~Needs.WHOLE
    settings = {"messages": 1_000, "percent": 50}
    models = (Messages,)
    Memory = Shares

    good = examples(
        lambda: [
            conversation(
                "one topic",
                *subscriber(),
                *opened(),
                *(step for number in range(6) for step in _traffic(number)),
                settings=_FIVE,
            ),
            conversation(
                "a wildcard that gets few",
                *subscriber(V3_1_1, "b/+"),
                *opened(V3_1_1),
                *(
                    step
                    for number in range(12)
                    for step in (
                        *publishes(message(b"x%d" % number)),
                        *publishes(message(b"y%d" % number)),
                        *_traffic(number, "b/c"),
                    )
                ),
                settings=_FIVE,
            ),
            conversation(
                "few of what came in one piece",
                *subscriber(V3_1_1, "b/+"),
                *opened(V3_1_1),
                client(
                    *[
                        message(b"%d" % number, qos=0, topic_name=topic)
                        for number in range(8)
                        for topic in ("a", "b", "b/c")
                    ]
                ),
                *on(1, *[server(message(b"%d" % number, qos=0, topic_name="b/c")) for number in range(8)]),
                settings=_FIVE,
            ),
            conversation(
                "few messages",
                *subscriber(V3_1_1, "#"),
                *opened(V3_1_1),
                *(step for number in range(10) for step in _traffic(number)),
            ),
        ]
    )
    bad = examples(
        lambda: [
            conversation(
                "everything, reported once",
                *subscriber(V3_1_1, "#"),
                *opened(V3_1_1),
                *(step for number in range(4) for step in _traffic(number)),
                *_traffic(4)[:2],
                *on(1, server(message(b"4")).marked(""), client(Puback(1))),
                *(step for number in range(5, 12) for step in _traffic(number)),
                settings=_FIVE,
            ),
            conversation(
                "half of what came in one piece",
                *subscriber(V3_1_1, "+"),
                *opened(V3_1_1),
                client(
                    *[message(b"%d" % number, qos=0, topic_name=topic) for number in range(5) for topic in ("a", "b/c")]
                ),
                *on(1, *[server(message(b"%d" % number, qos=0)) for number in range(4)]),
                *on(1, server(message(b"4", qos=0)).marked("")),
                settings=_FIVE,
            ),
        ]
    )

    def check(self, packet: Publish | Suback, at: RuleContext) -> Findings:
        """Count what a client gets, by filter, and look at it from time to time."""
        clients: dict[ConnectionKey, Share] = at.memory(self).clients
        share = clients.get(at.key)
        if isinstance(packet, Suback):
            if (share is None or not share.filters) and len(clients) < MAX_CLIENTS:
                clients[at.key] = Share(at.model(Messages).published)
            return None
        table, topic = at.history.subscriptions, at.topic
        if topic is None or not table.patterns or packet.retain or packet.dup:
            return None
        if share is None:
            if len(clients) >= MAX_CLIENTS:
                return None
            share = clients[at.key] = Share(max(0, at.model(Messages).published - 1))
        if share.told:
            return None
        match = table.found.get(topic) or table.match(topic)
        if len(match.subscriptions) != 1 or match.subscriptions[0].plain_filter == topic:
            return None
        one = match.subscriptions[0]
        number = share.filters.get(one.topic_filter, 0) + 1
        share.filters[one.topic_filter] = number
        if number < float(self.set["messages"]) or (number & number - 1 and number != self.set["messages"]):
            return None
        published = at.model(Messages).published - share.published
        percent = 100 * number / max(published, number)
        if percent < float(self.set["percent"]):
            return None
        share.told = True
        return self.report(
            "",
            f"{shown(one.topic_filter)} of {at.client_name!r} draws {percent:.0f} % of the messages ({number:,} of "
            f"{published:,}) with QoS {one.qos}",
            related=(Related("the SUBSCRIBE", one.packet, one.frame, one.timestamp_ns),),
        )

    def check_close(self, connection: Connection, at: RuleContext) -> Findings:
        """The next connection of the client is counted from 0."""
        at.memory(self).clients.pop(at.key, None)
        return None
