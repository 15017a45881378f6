from collections.abc import Iterator

from mqttscope.lint.rules import V5, Related, Report, Rule, RuleContext, Severity, examples
from mqttscope.lint.topics import plain
from mqttscope.mqtt import Direction, Subscribe
from mqttscope.mqtt.topics import is_valid_topic_filter
from mqttscope.session.matching import FilterIndex

MAX_STEPS = 1_000
"""Maximum number of tree nodes visited, and of filters found, for each new filter."""
MAX_PACKET_STEPS = 100_000
"""Maximum number of nodes visited for one SUBSCRIBE; later filters are not compared."""


class OverlappingSubscriptions(Rule):
    """A client has two subscriptions that match the same topics.

    A server may deliver a message once for each subscription, or once for all of them, with the highest of their QoS:
    both are allowed, and servers differ.  An application that counts messages or adds up values then counts twice,
    perhaps only with the next broker.

    Instead, subscribe only to the wider filter, or make the filters disjoint.
    """

    code = "TOP210"
    severity = Severity.WARNING
    sender = Direction.CLIENT_TO_SERVER

    good = examples("""
        one filter
            opened; > subscribe 1 a/#:0; < suback 1 0
        filters without common topics
            opened; > subscribe 1 a/+:0 a/b/c:0 +/b/d:0; < suback 1 0 0 0; > subscribe 2 $SYS/#:0 +/x/y/z:0
            < suback 2 0 0
        the same filter again replaces the first
            opened; > subscribe 1 a/#:0; < suback 1 0; > subscribe 2 a/#:1; < suback 2 1
        the first was refused, or has ended
            opened; > subscribe 1 a/#:0 b/#:0; < suback 1 0x87 0; > unsubscribe 2 b/#; < unsuback 2 0
            > subscribe 3 a/b:0 b/c:0; < suback 3 0 0
        before 5.0 a share is an ordinary level
            opened 3.1.1; > subscribe 1 a/#:0 $share/g/a/b:0; < suback 1 0 0
    """)
    bad = examples("""
        in one packet
            opened; > subscribe 1 a/#:0 a/b:0 !subscriptions[1].topic_filter; < suback 1 0 0
        in two packets, reported with the second
            opened 3.1.1; > subscribe 1 a/+/c:0; < suback 1 0; > subscribe 2 +/b/c:0 !subscriptions[0].topic_filter
            < suback 2 0; > subscribe 3 +/b/c:0; < suback 3 0
        two Shared Subscriptions, which each receive a message
            opened; > subscribe 1 $share/g/a:0 $share/h/a:0 !subscriptions[1].topic_filter; < suback 1 0 0
    """)

    def check(self, packet: Subscribe, at: RuleContext) -> Iterator[Report]:
        """Compare each new filter with earlier ones, and name the first that overlaps."""
        table = at.history.subscriptions
        added = FilterIndex()  # the new filters of this packet
        left = MAX_PACKET_STEPS
        for index, row in enumerate(packet.subscriptions or ()):
            name = row.topic_filter
            wanted = plain(name) if at.version is V5 else name
            if name in table.live or not is_valid_topic_filter(name):
                continue
            if left <= 0:
                return
            names, steps = table.overlapping(wanted, min(left, MAX_STEPS))
            also, more = added.overlapping(wanted, min(left, MAX_STEPS))
            left -= steps + more
            other = next((text for text in (*names, *also) if text != name and is_valid_topic_filter(text)), None)
            if other is not None:
                known = table.live.get(other)
                related: tuple[Related, ...] = ()
                if known is not None:
                    related = (Related.to(f"SUBSCRIBE {other!r}", known),)
                yield self.report(
                    f"subscriptions[{index}].topic_filter",
                    f"{at.client_name!r}: filters {other!r} and {name!r} overlap; a message may arrive twice",
                    related=related,
                )
            added.add(name, wanted)
