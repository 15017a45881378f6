from dataclasses import dataclass, field

from mqttscope.lint.message_model import Messages
from mqttscope.lint.rules import ConnectionKey, Findings, Needs, Related, Rule, RuleContext, Severity, examples, shown
from mqttscope.lint.rules.delivery import ALL_SUBSCRIPTIONS
from mqttscope.mqtt import Direction, Publish, Suback
from mqttscope.session.connection import Connection

MAX_CLIENTS = 10_000
"""Maximum number of connections counted; later ones are ignored."""


@dataclass(slots=True)
class FanOutCount:
    """Deliveries to one client, by subscription."""

    published: int
    """Messages that the server had received before the client subscribed or, in a continued session, before the first
    message delivered to the client."""
    filters: dict[str, int] = field(default_factory=dict)
    number: int = 0
    is_reported: bool = False


@dataclass(slots=True)
class FanOutCounts:
    """Deliveries by connection."""

    clients: dict[ConnectionKey, FanOutCount] = field(default_factory=dict)


class WildcardFanOut(Rule):
    """One wildcard subscription receives most of the messages of a server.

    Such a client has to keep up with all other clients together, and with QoS 1 and 2 the server queues everything that
    the client is too slow to take.  Reported once for each connection, after ``messages`` deliveries, if the client
    receives at least ``percent`` percent of the messages that captured clients have published since.

    Instead, subscribe only to the topics that you need, divide the work by Shared Subscriptions, or use an export
    function of the server.
    """

    code = "OPS429"
    severity = Severity.INFO
    sender = Direction.SERVER_TO_CLIENT
    needs = ALL_SUBSCRIPTIONS & ~Needs.WHOLE
    settings = {"messages": 1_000, "percent": 50}
    models = (Messages,)
    Memory = FanOutCounts

    good = examples("""
        one topic
            settings messages=5; @1 opened client=c2; @1 > subscribe 1 a:1; @1 < suback 1 1; opened
            for 0..5: +0.1 > publish a {n} qos=1 id=1; < puback 1; @1 < publish a {n} qos=1 id=1; @1 > puback 1
        a wildcard that matches few messages
            settings messages=5; @1 opened 3.1.1 client=c2; @1 > subscribe 1 b/+:1; @1 < suback 1 1; opened
            for 0..11: +2 > publish a x{n} qos=1 id=1; < puback 1; +2 > publish a y{n} qos=1 id=1; < puback 1;
                +0.1 > publish b/c {n} qos=1 id=1; < puback 1; @1 < publish b/c {n} qos=1 id=1; @1 > puback 1
        few matches among many messages in one segment
            settings messages=5; @1 opened 3.1.1 client=c2; @1 > subscribe 1 b/+:1; @1 < suback 1 1; opened
            > publish a 0 & publish b 0 & publish b/c 0 & publish a 1 & publish b 1 & publish b/c 1 & publish a 2 &
                publish b 2 & publish b/c 2 & publish a 3 & publish b 3 & publish b/c 3 & publish a 4 & publish b 4 &
                publish b/c 4 & publish a 5 & publish b 5 & publish b/c 5 & publish a 6 & publish b 6 & publish b/c 6 &
                publish a 7 & publish b 7 & publish b/c 7
            for 0..7: @1 < publish b/c {n}
        too few messages
            @1 opened 3.1.1 client=c2; @1 > subscribe 1 #:1; @1 < suback 1 1; opened
            for 0..9: +0.1 > publish a {n} qos=1 id=1; < puback 1; @1 < publish a {n} qos=1 id=1; @1 > puback 1
    """)
    bad = examples("""
        all messages, reported once
            settings messages=5; @1 opened 3.1.1 client=c2; @1 > subscribe 1 #:1; @1 < suback 1 1; opened
            for 0..3: +0.1 > publish a {n} qos=1 id=1; < puback 1; @1 < publish a {n} qos=1 id=1; @1 > puback 1
            +0.1 > publish a 4 qos=1 id=1; < puback 1; @1 < publish a 4 qos=1 id=1 !
            for 5..11: @1 > puback 1; +0.1 > publish a {n} qos=1 id=1; < puback 1; @1 < publish a {n} qos=1 id=1
            @1 > puback 1
        half of many messages in one segment
            settings messages=5; @1 opened 3.1.1 client=c2; @1 > subscribe 1 +:1; @1 < suback 1 1; opened
            > publish a 0 & publish b/c 0 & publish a 1 & publish b/c 1 & publish a 2 & publish b/c 2 & publish a 3 &
                publish b/c 3 & publish a 4 & publish b/c 4
            @1 < publish a 0; @1 < publish a 1; @1 < publish a 2; @1 < publish a 3; @1 < publish a 4 !
    """)

    def check(self, packet: Publish | Suback, at: RuleContext) -> Findings:
        """Count deliveries by filter, and check the share from time to time."""
        clients: dict[ConnectionKey, FanOutCount] = at.memory(self).clients
        share = clients.get(at.key)
        if isinstance(packet, Suback):
            if (share is None or not share.filters) and len(clients) < MAX_CLIENTS:
                clients[at.key] = FanOutCount(at.model(Messages).published)
            return None
        table, topic = at.history.subscriptions, at.topic
        if topic is None or not table.patterns or packet.retain or packet.dup:
            return None
        if share is None:
            if len(clients) >= MAX_CLIENTS:
                return None
            share = clients[at.key] = FanOutCount(max(0, at.model(Messages).published - 1))
        if share.is_reported:
            return None
        match = table.matches.get(topic) or table.match(topic)
        if len(match.subscriptions) != 1 or match.subscriptions[0].plain_filter == topic:
            return None
        subscription = match.subscriptions[0]
        number = share.filters.get(subscription.topic_filter, 0) + 1
        share.filters[subscription.topic_filter] = number
        if number < float(self.set["messages"]) or (number & number - 1 and number != self.set["messages"]):
            return None
        published = at.model(Messages).published - share.published
        percent = 100 * number / max(published, number)
        if percent < float(self.set["percent"]):
            return None
        share.is_reported = True
        return self.report(
            "",
            f"{shown(subscription.topic_filter)} of {at.client_name!r} receives {percent:.0f} % of the messages "
            f"({number:,} of {published:,}) with QoS {subscription.qos}",
            related=(Related.to("the SUBSCRIBE", subscription),),
        )

    def check_close(self, connection: Connection, at: RuleContext) -> Findings:
        """Start the count of the client's next connection at 0."""
        at.memory(self).clients.pop(at.key, None)
        return None
