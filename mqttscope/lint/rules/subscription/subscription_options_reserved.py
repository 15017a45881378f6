"""SUB103."""

from collections.abc import Iterator

from mqttscope.lint.context import RuleContext
from mqttscope.lint.examples import client, conversation, examples, hexadecimal, opened, server
from mqttscope.lint.finding import Report, Severity
from mqttscope.lint.rule import V3_1, V3_1_1, V5, Findings, Rule
from mqttscope.lint.rules import lawful_elsewhere
from mqttscope.lint.rules.subscription import faulty_filter, options_span
from mqttscope.mqtt.constants import Direction, MalformedReason
from mqttscope.mqtt.declare import FaultReport
from mqttscope.mqtt.packets import Suback, Subscribe
from mqttscope.mqtt.parts import Subscription


class SubscriptionOptionsReserved(Rule):
    """A SUBSCRIBE sets reserved bits in the options byte after a Topic Filter.

    MQTT 5.0 reserves bits 6 and 7, MQTT 3.1.1 all but the two QoS bits; a server has to treat the packet as malformed
    and to close the connection.  MQTT 3.1 only calls the upper six bits unused, so there it is worth a note.  Options
    of 5.0 (No Local, Retain As Published, Retain Handling) on a connection of 3.1.1 show up here.

    Instead, leave reserved bits 0, and use options of 5.0 with 5.0 only.
    """

    code = "SUB103"
    severity = Severity.ERROR
    severities = (Severity.ERROR, Severity.INFO)
    reason_code = 0x81
    statements = {V5: {"MQTT-3.8.3-5": ""}, V3_1_1: {"MQTT-3.8.3-4": ""}}
    also = {V3_1: ("V31-SUBSCRIBE-qos",)}
    looks_at = Subscribe
    signs = ("odd_filter",)
    sender = Direction.CLIENT_TO_SERVER
    malformed = (MalformedReason.SUBSCRIPTION_OPTIONS_RESERVED,)

    good = examples(
        lambda: [
            conversation(
                "all options that 5.0 has",
                *opened(),
                client(Subscribe(10, subscriptions=[Subscription("a/b", 2, True, True, 2)])),
                server(Suback(10, reason_codes=[2])),
            ),
            conversation(
                "the QoS alone in 3.1.1",
                *opened(V3_1_1),
                client(Subscribe(10, subscriptions=[Subscription("a/b", 2)])),
                server(Suback(10, reason_codes=[2])),
            ),
        ]
    )
    bad = examples(
        lambda: [
            conversation(
                "bits 6 and 7",
                *opened(),
                client(hexadecimal("82 09 00 0a 00 00 03 61 2f 62 c1")).marked("subscriptions[0].reserved"),
            ),
            conversation(
                "in the second filter",
                *opened(),
                client(Subscribe(10, subscriptions=[Subscription("a"), Subscription("b", reserved=0x40)])).marked(
                    "subscriptions[1].reserved"
                ),
            ),
            conversation(
                "No Local in 3.1.1",
                *opened(V3_1_1),
                client(hexadecimal("82 08 00 0a 00 03 61 2f 62 05")).marked("subscriptions[0].reserved"),
            ),
            conversation(
                "unused bits in 3.1",
                *opened(V3_1),
                client(hexadecimal("82 08 00 0a 00 03 61 2f 62 05")).marked("subscriptions[0].reserved"),
            ),
        ]
    )

    def check(self, packet: Subscribe, at: RuleContext) -> Iterator[Report]:
        """3.1, where the decoder has nothing against these bits."""
        if at.version is not V3_1:
            return
        for index, row in enumerate(packet.subscriptions or ()):
            if row.reserved:
                yield self.report(
                    f"subscriptions[{index}].reserved",
                    f"SUBSCRIBE {row.topic_filter!r} sets unused bits of its QoS byte (0x{row.reserved:02x})",
                    severity=Severity.INFO,
                    span=options_span(packet, index, at),
                )

    def check_malformed(self, fault: FaultReport, at: RuleContext) -> Findings:
        """The decoder's words, with the filter, unless it may be MQTT 3.1 that is spoken."""
        if lawful_elsewhere(at):
            return None
        return self.report(fault.field, f"SUBSCRIBE{faulty_filter(fault.field, at)}: {fault.detail}")
