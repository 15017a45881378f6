"""SUB106."""

from collections.abc import Iterator

from mqttscope.lint.context import RuleContext
from mqttscope.lint.examples import examples
from mqttscope.lint.finding import Report, Severity
from mqttscope.lint.rule import V5, Rule
from mqttscope.lint.rules.subscription import options_span
from mqttscope.mqtt.constants import Direction
from mqttscope.mqtt.packets import Subscribe


class NoLocalOnShared(Rule):
    """A SUBSCRIBE asks for No Local on a Shared Subscription.

    Messages of a Shared Subscription go to one member of the group, whoever published them; a member that must not get
    its own would take them away from all others.  The specification makes it a protocol error.

    Instead, leave No Local out for filters that begin with ``$share/``.
    """

    code = "SUB106"
    severity = Severity.ERROR
    reason_code = 0x82
    versions = (V5,)
    statements = {V5: {"MQTT-3.8.3-4": ""}}
    looks_at = Subscribe
    signs = ("odd_filter",)
    sender = Direction.CLIENT_TO_SERVER

    good = examples("""
        each alone
            opened; > subscribe 10 $share/g/a:1 a:1,no_local; < suback 10 1 1
        a filter that only looks like one
            opened; > subscribe 10 $shared/g/a:1,no_local; < suback 10 1
    """)
    bad = examples("""
        No Local and $share
            opened; > raw 82 10 000a00 000a "$share/g/a" 05 !subscriptions[0].no_local
    """)

    def check(self, packet: Subscribe, at: RuleContext) -> Iterator[Report]:
        """Bit 2 of the options of each shared filter."""
        for index, row in enumerate(packet.subscriptions or ()):
            if row.no_local and row.topic_filter.startswith("$share/"):
                yield self.report(
                    f"subscriptions[{index}].no_local",
                    f"SUBSCRIBE {row.topic_filter!r} has No Local although it is shared",
                    span=options_span(packet, index, at),
                )
