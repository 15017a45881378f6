from collections.abc import Iterator

from mqttscope.lint.rules import V3_1_1, V5, Needs, Related, Report, Rule, RuleContext, Severity, examples
from mqttscope.lint.rules.subscription import request_of
from mqttscope.mqtt import Direction, Suback


class GrantedQosAboveRequested(Rule):
    """A SUBACK grants a higher QoS than the SUBSCRIBE requested.

    The client requests its maximum; a server may grant less, but never more.  A client that requested QoS 0 may be
    unable to acknowledge the messages.

    Instead, grant the requested QoS or a lower one.
    """

    code = "SUB211"
    severity = Severity.ERROR
    also = {V5: ("MQTT-3.8.4-7", "MQTT-3.9.3-1"), V3_1_1: ("MQTT-3.8.4-5", "MQTT-3.9.3-1")}
    signs = ("above_requested",)
    sender = Direction.SERVER_TO_CLIENT
    needs = Needs.OPENING | Needs.WHOLE_RECEIVER

    good = examples("""
        as requested, lower, and refused
            opened; > subscribe 10 a:1 b:2 c:0; < suback 10 1 0 0x87
    """)
    bad = examples("""
        QoS 1 for a request of QoS 0
            opened; > subscribe 10 a:0; < suback 10 1 !reason_codes[0]
        the second of two filters in 3.1.1
            opened 3.1.1; > subscribe 10 a:2 b:1; < suback 10 2 2 !reason_codes[1]
        in 3.1
            opened 3.1; > subscribe 10 a:0; < suback 10 2 !reason_codes[0]
    """)

    def check(self, packet: Suback, at: RuleContext) -> Iterator[Report]:
        """Compare the codes with the requests by position."""
        request = request_of(packet, at)
        codes = packet.reason_codes or ()
        if request is None or request.answers or len(request.maximum_qos) != len(codes):
            return
        for index, (asked, code) in enumerate(zip(request.maximum_qos, codes, strict=True)):
            if asked < code <= 2:
                yield self.report(
                    f"reason_codes[{index}]",
                    f"SUBACK with packet identifier {packet.packet_identifier} grants QoS {code} for "
                    f"{request.topic_filters[index]!r}, but QoS {asked} was requested",
                    related=(Related.to("the SUBSCRIBE", request),),
                )
