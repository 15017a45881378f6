"""SUB109."""

from collections.abc import Iterator

from mqttscope.lint.context import RuleContext
from mqttscope.lint.examples import examples
from mqttscope.lint.finding import Report, Severity
from mqttscope.lint.rule import V5, Rule
from mqttscope.mqtt.constants import Direction
from mqttscope.mqtt.packets import Subscribe
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

    good = examples("""
        name and filter
            opened; > raw 82 12 000a00 000c "$share/g/a/b" 01; < suback 10 1
        filters that only look shared
            opened; > subscribe 10 $shared/g:0 $SHARE/g:0; < suback 10 0 0
        an ordinary filter before 5.0
            opened 3.1.1; > subscribe 10 $share/g:0; < suback 10 0
        a filter of one empty level after the name
            opened; > subscribe 10 $share/g//:0; < suback 10 0
    """)
    bad = examples("""
        no filter
            opened; > raw 82 0e 000a00 0008 "$share/g" 01 !subscriptions[0].topic_filter
        no name, a wildcard in the name, an empty filter, nothing at all
            opened
            > subscribe 10 $share//a:0 $share/g+/a:0 $share/g/:0 $share:0 !subscriptions[0].topic_filter
                !subscriptions[1].topic_filter !subscriptions[2].topic_filter !subscriptions[3].topic_filter
    """)

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
