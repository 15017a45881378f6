"""TOP210."""

from collections.abc import Iterator

from mqttscope.lint.context import RuleContext
from mqttscope.lint.examples import client, conversation, examples, opened, server
from mqttscope.lint.finding import Related, Report, Severity
from mqttscope.lint.rule import V3_1_1, V5, Rule
from mqttscope.lint.topics import plain
from mqttscope.mqtt.constants import Direction
from mqttscope.mqtt.packets import Suback, Subscribe, Unsuback, Unsubscribe
from mqttscope.mqtt.parts import Subscription
from mqttscope.mqtt.topics import is_valid_topic_filter
from mqttscope.session.matching import FilterIndex

MAX_STEPS = 1_000
"""Nodes of the tree of filters that are looked at for each new filter, and filters that are found."""
MAX_PACKET_STEPS = 100_000
"""The same for one SUBSCRIBE."""


class OverlappingSubscriptions(Rule):
    """A client has two subscriptions that match the same topics.

    A server may deliver a message once for each subscription, or once for all of them, with the highest of their QoS:
    both are allowed, and servers differ.  An application that counts or adds up then counts twice, or does so only
    with the next broker.

    Instead, subscribe to the wider filter alone, or make the filters disjoint.
    """

    code = "TOP210"
    severity = Severity.WARNING
    looks_at = Subscribe
    sender = Direction.CLIENT_TO_SERVER

    good = examples(
        lambda: [
            conversation(
                "one filter",
                *opened(),
                client(Subscribe(1, None, [Subscription("a/#")])),
                server(Suback(1, None, [0])),
            ),
            conversation(
                "filters that have no topic in common",
                *opened(),
                client(Subscribe(1, None, [Subscription("a/+"), Subscription("a/b/c"), Subscription("+/b/d")])),
                server(Suback(1, None, [0, 0, 0])),
                client(Subscribe(2, None, [Subscription("$SYS/#"), Subscription("+/x/y/z")])),
                server(Suback(2, None, [0, 0])),
            ),
            conversation(
                "the same filter again replaces the first",
                *opened(),
                client(Subscribe(1, None, [Subscription("a/#")])),
                server(Suback(1, None, [0])),
                client(Subscribe(2, None, [Subscription("a/#", 1)])),
                server(Suback(2, None, [1])),
            ),
            conversation(
                "the first was refused, or is gone",
                *opened(),
                client(Subscribe(1, None, [Subscription("a/#"), Subscription("b/#")])),
                server(Suback(1, None, [0x87, 0])),
                client(Unsubscribe(2, None, ["b/#"])),
                server(Unsuback(2, None, [0])),
                client(Subscribe(3, None, [Subscription("a/b"), Subscription("b/c")])),
                server(Suback(3, None, [0, 0])),
            ),
            conversation(
                "before 5.0 a share is an ordinary level",
                *opened(V3_1_1),
                client(Subscribe(1, None, [Subscription("a/#"), Subscription("$share/g/a/b")])),
                server(Suback(1, None, [0, 0])),
            ),
        ]
    )
    bad = examples(
        lambda: [
            conversation(
                "in one packet",
                *opened(),
                client(Subscribe(1, None, [Subscription("a/#"), Subscription("a/b")])).marked(
                    "subscriptions[1].topic_filter"
                ),
                server(Suback(1, None, [0, 0])),
            ),
            conversation(
                "one after the other, reported when the second one comes",
                *opened(V3_1_1),
                client(Subscribe(1, None, [Subscription("a/+/c")])),
                server(Suback(1, None, [0])),
                client(Subscribe(2, None, [Subscription("+/b/c")])).marked("subscriptions[0].topic_filter"),
                server(Suback(2, None, [0])),
                client(Subscribe(3, None, [Subscription("+/b/c")])),
                server(Suback(3, None, [0])),
            ),
            conversation(
                "two shares get a message each",
                *opened(),
                client(Subscribe(1, None, [Subscription("$share/g/a"), Subscription("$share/h/a")])).marked(
                    "subscriptions[1].topic_filter"
                ),
                server(Suback(1, None, [0, 0])),
            ),
        ]
    )

    def check(self, packet: Subscribe, at: RuleContext) -> Iterator[Report]:
        """Compare each new filter with those before it; the first that overlaps is named."""
        table = at.history.subscriptions
        added = FilterIndex()  # the new filters of this packet
        left = MAX_PACKET_STEPS
        for index, row in enumerate(packet.subscriptions or ()):
            name = row.topic_filter
            wanted = plain(name) if at.version is V5 else name
            if name in table.live or not is_valid_topic_filter(name):
                continue
            names, steps = table.overlapping(wanted, min(left, MAX_STEPS))
            also, more = added.overlapping(wanted, min(left, MAX_STEPS))
            left -= steps + more
            if left <= 0:
                return
            other = next((one for one in (*names, *also) if one != name and is_valid_topic_filter(one)), None)
            if other is not None:
                known = table.live.get(other)
                related: tuple[Related, ...] = ()
                if known is not None:
                    related = (Related(f"SUBSCRIBE {other!r}", known.packet, known.frame, known.timestamp_ns),)
                yield self.report(
                    f"subscriptions[{index}].topic_filter",
                    f"{at.client_name!r}: filters {other!r} and {name!r} overlap; a message may arrive twice",
                    related=related,
                )
            added.add(name, wanted)
