"""TOP106."""

from collections.abc import Iterator

from mqttscope.lint.context import RuleContext
from mqttscope.lint.examples import client, conversation, examples, opened, server
from mqttscope.lint.finding import Report, Severity
from mqttscope.lint.rule import V3_1_1, Rule
from mqttscope.lint.topics import plain
from mqttscope.mqtt.constants import Direction
from mqttscope.mqtt.packets import Suback, Subscribe
from mqttscope.mqtt.parts import Subscription

_EVERYTHING = ("#", "+/#", "+")


class SubscribeAll(Rule):
    """A client subscribes to everything.

    It gets every message of every other client, also those that will be added next year, and the server has to send
    each message once more.  Debugging tools do so on purpose; silence them by their Client Identifier.

    Instead, subscribe to the topics that are needed.
    """

    code = "TOP106"
    severity = Severity.WARNING
    looks_at = Subscribe
    sender = Direction.CLIENT_TO_SERVER

    good = examples(
        lambda: [
            conversation(
                "one line of one plant",
                *opened(),
                client(Subscribe(10, None, [Subscription("plant1/line4/#", 1)])),
                server(Suback(10, None, [1])),
            ),
            conversation(
                "a wildcard with a name after it, and the server's own topics",
                *opened(),
                client(Subscribe(10, None, [Subscription("+/state"), Subscription("$SYS/#")])),
                server(Suback(10, None, [0, 0])),
            ),
        ]
    )
    bad = examples(
        lambda: [
            conversation(
                "all topics",
                *opened(),
                client(Subscribe(10, None, [Subscription("#", 1)])).marked("subscriptions[0].topic_filter"),
                server(Suback(10, None, [1])),
            ),
            conversation(
                "other ways to write it",
                *opened(V3_1_1),
                client(Subscribe(1, None, [Subscription("a"), Subscription("+/#"), Subscription("+")])).marked(
                    "subscriptions[1].topic_filter", "subscriptions[2].topic_filter"
                ),
                server(Suback(1, None, [0, 0, 0])),
            ),
            conversation(
                "all topics, shared",
                *opened(),
                client(Subscribe(1, None, [Subscription("$share/x/#")])).marked("subscriptions[0].topic_filter"),
                server(Suback(1, None, [0])),
            ),
        ]
    )

    def check(self, packet: Subscribe, at: RuleContext) -> Iterator[Report]:
        """Each filter of the packet."""
        for index, row in enumerate(packet.subscriptions or ()):
            if plain(row.topic_filter) in _EVERYTHING:
                how = "every topic of one level" if plain(row.topic_filter) == "+" else "everything"
                yield self.report(f"subscriptions[{index}].topic_filter", f"SUBSCRIBE {row.topic_filter!r} takes {how}")
