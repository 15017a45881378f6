"""SUB105."""

from collections.abc import Iterator

from mqttscope.lint.context import RuleContext
from mqttscope.lint.examples import examples
from mqttscope.lint.finding import Report, Severity
from mqttscope.lint.rule import V5, Rule
from mqttscope.lint.rules.subscription import options_span
from mqttscope.mqtt.constants import Direction
from mqttscope.mqtt.packets import Subscribe


class RetainHandlingInvalid(Rule):
    """A SUBSCRIBE has Retain Handling 3, which has no meaning.

    It is a protocol error.  Servers that do not look send retained messages or do not, as they please.

    Instead, use 0 (send retained messages), 1 (only for a new subscription) or 2 (do not send them).
    """

    code = "SUB105"
    severity = Severity.ERROR
    reason_code = 0x82
    versions = (V5,)
    statements = {V5: {"V5-SUBSCRIBE-retain-handling-3": ""}}
    looks_at = Subscribe
    signs = ("odd_filter",)
    sender = Direction.CLIENT_TO_SERVER

    good = examples("""
        Retain Handling 2 is the highest
            opened; > subscribe 10 a/b:1,retain_handling=2; < suback 10 1
    """)
    bad = examples("""
        both bits
            opened; > raw 82 09 000a00 0003 "a/b" 31 !subscriptions[0].retain_handling
    """)

    def check(self, packet: Subscribe, at: RuleContext) -> Iterator[Report]:
        """Bits 5 and 4 of each options byte."""
        for index, row in enumerate(packet.subscriptions or ()):
            if row.retain_handling == 3:
                yield self.report(
                    f"subscriptions[{index}].retain_handling",
                    f"SUBSCRIBE {row.topic_filter!r} has Retain Handling 3",
                    span=options_span(packet, index, at),
                )
