"""SUB109."""

from collections.abc import Iterator

from mqttscope.lint.context import RuleContext
from mqttscope.lint.examples import client, conversation, examples, hexadecimal, opened, server
from mqttscope.lint.finding import Report, Severity
from mqttscope.lint.rule import V3_1_1, V5, Rule
from mqttscope.mqtt.constants import Direction
from mqttscope.mqtt.packets import Suback, Subscribe
from mqttscope.mqtt.parts import Subscription
from mqttscope.mqtt.topics import topic_filter_problem

_WHY = {
    "share_name_missing": ("the ShareName is missing", ("MQTT-4.8.2-1",)),
    "share_name_invalid": ("the ShareName has a wildcard", ("MQTT-4.8.2-2",)),
    "share_filter_missing": ("no topic filter follows the ShareName", ("MQTT-4.8.2-2",)),
}


class SharedFilterInvalid(Rule):
    """A filter that begins with $share lacks a proper ShareName or the Topic Filter after it.

    A Shared Subscription is ``$share/ShareName/filter``: the ShareName has at least one character and no ``+`` or
    ``#``, and a Topic Filter follows.  Anything else matches nothing.  ``$shared/...`` and ``$SHARE/...`` are ordinary
    filters, and before 5.0 ``$share`` is an extension of some servers.

    Instead, write all three parts, for instance ``$share/workers/jobs/#``.
    """

    code = "SUB109"
    severity = Severity.ERROR
    versions = (V5,)
    statements = {V5: {"MQTT-4.8.2-1": "", "MQTT-4.8.2-2": ""}}
    looks_at = Subscribe
    signs = ("odd_filter",)
    sender = Direction.CLIENT_TO_SERVER

    good = examples(
        lambda: [
            conversation(
                "name and filter",
                *opened(),
                client(hexadecimal("82 12 00 0a 00 00 0c 24 73 68 61 72 65 2f 67 2f 61 2f 62 01")),
                server(Suback(10, reason_codes=[1])),
            ),
            conversation(
                "filters that only look shared",
                *opened(),
                client(Subscribe(10, subscriptions=[Subscription("$shared/g"), Subscription("$SHARE/g")])),
                server(Suback(10, reason_codes=[0, 0])),
            ),
            conversation(
                "an ordinary filter before 5.0",
                *opened(V3_1_1),
                client(Subscribe(10, subscriptions=[Subscription("$share/g")])),
                server(Suback(10, reason_codes=[0])),
            ),
            conversation(
                "a filter of one empty level after the name",
                *opened(),
                client(Subscribe(10, subscriptions=[Subscription("$share/g//")])),
                server(Suback(10, reason_codes=[0])),
            ),
        ]
    )
    bad = examples(
        lambda: [
            conversation(
                "no filter",
                *opened(),
                client(hexadecimal("82 0e 00 0a 00 00 08 24 73 68 61 72 65 2f 67 01")).marked(
                    "subscriptions[0].topic_filter"
                ),
            ),
            conversation(
                "no name, a wildcard in the name, an empty filter, nothing at all",
                *opened(),
                client(
                    Subscribe(
                        10,
                        subscriptions=[
                            Subscription(one) for one in ("$share//a", "$share/g+/a", "$share/g/", "$share")
                        ],
                    )
                ).marked(*(f"subscriptions[{index}].topic_filter" for index in range(4))),
            ),
        ]
    )

    def check(self, packet: Subscribe, at: RuleContext) -> Iterator[Report]:
        """Each filter that begins with ``$share``."""
        for index, row in enumerate(packet.subscriptions or ()):
            if row.topic_filter[:6] != "$share":
                continue
            found = _WHY.get(topic_filter_problem(row.topic_filter) or "")
            if found is not None:
                why, broken = found
                yield self.report(
                    f"subscriptions[{index}].topic_filter",
                    f"SUBSCRIBE with shared filter {row.topic_filter!r}: {why}",
                    statements=broken,
                )
