from dataclasses import dataclass, field

from mqttscope.lint.message_model import Messages
from mqttscope.lint.rules import ConnectionKey, Findings, Needs, Related, Rule, RuleContext, Severity, examples, shown
from mqttscope.lint.rules.delivery import ALL_SUBSCRIPTIONS
from mqttscope.mqtt import Direction, Publish, Suback
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


class WildcardFanOut(Rule):
    """One subscription with a wildcard draws most of the messages of a server.

    Such a client has to keep up with all others together, and with QoS 1 and 2 the server keeps for it whatever it is
    slow to take.  It is reported once for each connection, from so many messages on, where it gets at least half of
    what captured clients have published since.

    Instead, subscribe to what is needed, divide the work by Shared Subscriptions, or use an export of the server.
    """

    code = "OPS429"
    severity = Severity.INFO
    sender = Direction.SERVER_TO_CLIENT
    needs = ALL_SUBSCRIPTIONS & ~Needs.WHOLE
    settings = {"messages": 1_000, "percent": 50}
    models = (Messages,)
    Memory = Shares

    good = examples("""
        one topic
            settings messages=5; @1 opened client=c2; @1 > subscribe 1 a:1; @1 < suback 1 1; opened
            for 0..5: +0.1 > publish a {n} qos=1 id=1; < puback 1; @1 < publish a {n} qos=1 id=1; @1 > puback 1
        a wildcard that gets few
            settings messages=5; @1 opened 3.1.1 client=c2; @1 > subscribe 1 b/+:1; @1 < suback 1 1; opened
            for 0..11: +2 > publish a x{n} qos=1 id=1; < puback 1; +2 > publish a y{n} qos=1 id=1; < puback 1;
                +0.1 > publish b/c {n} qos=1 id=1; < puback 1; @1 < publish b/c {n} qos=1 id=1; @1 > puback 1
        few of what came in one piece
            settings messages=5; @1 opened 3.1.1 client=c2; @1 > subscribe 1 b/+:1; @1 < suback 1 1; opened
            > publish a 0 & publish b 0 & publish b/c 0 & publish a 1 & publish b 1 & publish b/c 1 & publish a 2 &
                publish b 2 & publish b/c 2 & publish a 3 & publish b 3 & publish b/c 3 & publish a 4 & publish b 4 &
                publish b/c 4 & publish a 5 & publish b 5 & publish b/c 5 & publish a 6 & publish b 6 & publish b/c 6 &
                publish a 7 & publish b 7 & publish b/c 7
            for 0..7: @1 < publish b/c {n}
        few messages
            @1 opened 3.1.1 client=c2; @1 > subscribe 1 #:1; @1 < suback 1 1; opened
            for 0..9: +0.1 > publish a {n} qos=1 id=1; < puback 1; @1 < publish a {n} qos=1 id=1; @1 > puback 1
    """)
    bad = examples("""
        everything, reported once
            settings messages=5; @1 opened 3.1.1 client=c2; @1 > subscribe 1 #:1; @1 < suback 1 1; opened
            for 0..3: +0.1 > publish a {n} qos=1 id=1; < puback 1; @1 < publish a {n} qos=1 id=1; @1 > puback 1
            +0.1 > publish a 4 qos=1 id=1; < puback 1; @1 < publish a 4 qos=1 id=1 !
            for 5..11: @1 > puback 1; +0.1 > publish a {n} qos=1 id=1; < puback 1; @1 < publish a {n} qos=1 id=1
            @1 > puback 1
        half of what came in one piece
            settings messages=5; @1 opened 3.1.1 client=c2; @1 > subscribe 1 +:1; @1 < suback 1 1; opened
            > publish a 0 & publish b/c 0 & publish a 1 & publish b/c 1 & publish a 2 & publish b/c 2 & publish a 3 &
                publish b/c 3 & publish a 4 & publish b/c 4
            @1 < publish a 0; @1 < publish a 1; @1 < publish a 2; @1 < publish a 3; @1 < publish a 4 !
    """)

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
            related=(Related.to("the SUBSCRIBE", one),),
        )

    def check_close(self, connection: Connection, at: RuleContext) -> Findings:
        """The next connection of the client is counted from 0."""
        at.memory(self).clients.pop(at.key, None)
        return None
