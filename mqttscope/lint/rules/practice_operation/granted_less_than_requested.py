from collections.abc import Iterator

from mqttscope.lint.rules import Related, Report, Rule, RuleContext, Severity, examples
from mqttscope.mqtt import Direction, Suback


class GrantedLessThanRequested(Rule):
    """A server grants a subscription with a lower QoS than the client requested.

    That is allowed, but easily overlooked unless the client checks: messages that need reliable delivery may now be
    lost.

    Instead, compare the codes in the SUBACK with the requested QoS, and request what the server supports.
    """

    code = "OPS219"
    severity = Severity.INFO
    sender = Direction.SERVER_TO_CLIENT

    good = examples("""
        as requested
            opened; > subscribe 1 a:1 b:0; < suback 1 1 0
        a failure, which other rules report
            opened 3.1.1; > subscribe 1 a:1; < suback 1 0x80
    """)
    bad = examples("""
        QoS 1 instead of 2
            opened; > subscribe 1 a:2; < suback 1 1 !reason_codes[0]
        QoS 0 instead of 1, for one of two filters
            opened 3.1; > subscribe 1 a:0 b:1; < suback 1 0 0 !reason_codes[1]
    """)

    def check(self, packet: Suback, at: RuleContext) -> Iterator[Report]:
        """Compare with the request if every filter has its code."""
        request = at.history.subscriptions.request_for(packet.packet_identifier, "subscribe")
        codes = packet.reason_codes or ()
        if request is None or request.answers or len(request.maximum_qos) != len(codes):
            return
        for index, (code, wanted) in enumerate(zip(codes, request.maximum_qos, strict=True)):
            if code < wanted <= 2:
                yield self.report(
                    f"reason_codes[{index}]",
                    f"SUBACK: {request.topic_filters[index]!r} granted QoS {code}, requested {wanted}",
                    related=(Related.to("the SUBSCRIBE", request),),
                )
