"""SUB103, SUB104: invalid subscription options."""

from collections.abc import Iterator

from mqttscope.lint.rules import V3_1, V3_1_1, V5, Findings, Report, RuleContext, Severity, examples, valid_elsewhere
from mqttscope.lint.rules.subscription import faulty_filter, options_span
from mqttscope.lint.shared_checks import MalformedRule
from mqttscope.mqtt import Direction, MalformedReason, Subscribe
from mqttscope.mqtt.declare import FaultReport


class SubscriptionOptionsReserved(MalformedRule):
    """A SUBSCRIBE sets reserved bits in the options byte after a Topic Filter.

    MQTT 5.0 reserves bits 6 and 7, MQTT 3.1.1 all except the two QoS bits; a server has to treat the packet as
    malformed and close the connection.  In MQTT 3.1 the upper six bits are merely unused, so there the finding is
    info.  A common cause is a 5.0 option (No Local, Retain As Published, Retain Handling) on a connection of 3.1.1.

    Instead, leave reserved bits 0, and use 5.0 options only with 5.0.
    """

    code = "SUB103"
    severities = (Severity.ERROR, Severity.INFO)
    statements = {V5: {"MQTT-3.8.3-5": ""}, V3_1_1: {"MQTT-3.8.3-4": ""}}
    also = {V3_1: ("V31-SUBSCRIBE-qos",)}
    signs = ("odd_filter",)
    sender = Direction.CLIENT_TO_SERVER
    malformed = (MalformedReason.SUBSCRIPTION_OPTIONS_RESERVED,)

    good = examples("""
        all 5.0 options
            opened; > subscribe 10 a/b:2,no_local,retain_as_published,retain_handling=2; < suback 10 2
        only the QoS in 3.1.1
            opened 3.1.1; > subscribe 10 a/b:2; < suback 10 2
    """)
    bad = examples("""
        bits 6 and 7
            opened; > raw 82 09 000a00 0003 "a/b" c1 !subscriptions[0].reserved
        in the second filter
            opened; > subscribe 10 a:0 b:0,reserved=0x40 !subscriptions[1].reserved
        No Local in 3.1.1
            opened 3.1.1; > raw 82 08 000a 0003 "a/b" 05 !subscriptions[0].reserved
        unused bits in 3.1
            opened 3.1; > raw 82 08 000a 0003 "a/b" 05 !subscriptions[0].reserved
    """)

    def check(self, packet: Subscribe, at: RuleContext) -> Iterator[Report]:
        """Report the bits as info in 3.1, where they are not a fault."""
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
        """Name the filter, unless the version may be MQTT 3.1."""
        if valid_elsewhere(at):
            return None
        return self.report(fault.field, f"SUBSCRIBE{faulty_filter(fault.field, at)}: {fault.detail}")


class SubscribeQosInvalid(MalformedRule):
    """A SUBSCRIBE requests QoS 3, which does not exist.

    Both QoS bits of the options byte are set.  Servers refuse the whole packet and close the connection, so its other
    filters are not subscribed either.

    Instead, request QoS 0, 1 or 2.
    """

    code = "SUB104"
    reason_code = 0x82
    statements = {V5: {"V5-SUBSCRIBE-qos-3": ""}, V3_1: {"V31-SUBSCRIBE-qos": ""}}
    also = {V3_1_1: ("MQTT-3.8.3-4",)}
    malformed = (MalformedReason.SUBSCRIPTION_QOS_INVALID,)

    good = examples("""
        QoS 2, the highest
            opened; > subscribe 10 a/b:2; < suback 10 2
    """)
    bad = examples("""
        both QoS bits
            opened; > raw 82 09 000a00 0003 "a/b" 03 !subscriptions[0].maximum_qos
        in 3.1.1, in the second filter
            opened 3.1.1; > subscribe 10 a:0 b:3 !subscriptions[1].maximum_qos
        in 3.1
            opened 3.1; > subscribe 10 a:3 !subscriptions[0].maximum_qos
    """)

    def check_malformed(self, fault: FaultReport, at: RuleContext) -> Findings:
        """Name the filter."""
        return self.report(fault.field, f"SUBSCRIBE{faulty_filter(fault.field, at)}: {fault.detail}")
