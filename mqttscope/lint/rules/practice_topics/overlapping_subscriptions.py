"""TOP210."""

from collections.abc import Iterator
from itertools import islice

from mqttscope.lint.examples import client, conversation, opened, server
from mqttscope.lint.finding import Related, Report, Severity
from mqttscope.lint.moment import Moment
from mqttscope.lint.rule import V3_1_1, V5, Rule
from mqttscope.lint.topics import overlap, plain
from mqttscope.mqtt.constants import Direction
from mqttscope.mqtt.packets import Suback, Subscribe, Unsuback, Unsubscribe
from mqttscope.mqtt.parts import Subscription
from mqttscope.mqtt.topics import is_valid_topic_filter

MAX_COMPARED = 1_000
"""Subscriptions that each new filter is compared with."""
MAX_COMPARISONS = 100_000
"""Comparisons with wildcards for one SUBSCRIBE."""


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

    good = [
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
    bad = [
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

    def check(self, packet: Subscribe, at: Moment) -> Iterator[Report]:
        """Compare each new filter with those before it; the first that overlaps is named."""
        live = at.history.subscriptions.live
        before = [
            (one.topic_filter, one.plain_filter, one.packet)
            for one in islice(live.values(), MAX_COMPARED)
            if is_valid_topic_filter(one.topic_filter)
        ]
        budget = MAX_COMPARISONS
        for index, row in enumerate(packet.subscriptions or ()):
            name = row.topic_filter
            wanted = plain(name) if at.version is V5 else name
            if name in live or not is_valid_topic_filter(name):
                continue
            wild = "+" in wanted or "#" in wanted
            for other, other_plain, number in before:
                if not wild and wanted != other_plain and "+" not in other_plain and "#" not in other_plain:
                    continue
                budget -= 1
                if other != name and overlap(wanted, other_plain):
                    known = live.get(other)
                    related: tuple[Related, ...] = ()
                    if known is not None:
                        related = (Related(f"SUBSCRIBE {other!r}", number, known.frame, known.timestamp_ns),)
                    yield self.report(
                        f"subscriptions[{index}].topic_filter",
                        f"{at.client_name!r}: filters {other!r} and {name!r} overlap; a message may arrive twice",
                        related=related,
                    )
                    break
            if budget < 0:
                return
            if len(before) < MAX_COMPARED:
                before.append((name, wanted, -1))
