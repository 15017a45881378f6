from mqttscope.lint.examples import examples
from mqttscope.lint.rules import V3_1, V3_1_1, V5, Findings, Needs, Related, Rule, RuleContext, Severity, packet_name
from mqttscope.lint.rules.subscription import request_of
from mqttscope.mqtt import Direction, Suback, Unsuback


class SubackCountMismatch(Rule):
    """A SUBACK or UNSUBACK has more or fewer reason codes than its request has Topic Filters.

    Codes belong to filters by position, so the client cannot assign them.  (UNSUBACK has codes only in 5.0.)

    Instead, answer with exactly one code for each Topic Filter.
    """

    code = "SUB210"
    severity = Severity.ERROR
    statements = {V5: {"MQTT-3.8.4-6": "suback", "MQTT-3.11.3-1": "unsuback"}, V3_1_1: {"MQTT-3.8.4-5": ""}}
    also = {
        V5: ("MQTT-3.8.4-5", "MQTT-3.10.4-6"),
        V3_1_1: ("MQTT-3.8.4-4",),
        V3_1: ("V31-SUBACK-answer",),
    }
    signs = ("odd_count",)
    sender = Direction.SERVER_TO_CLIENT
    needs = Needs.OPENING | Needs.WHOLE_RECEIVER

    good = examples("""
        one code for each filter
            opened; > subscribe 10 a:1 b:1; < suback 10 1 0x80
        an UNSUBACK of 3.1.1, without codes
            opened 3.1.1; > unsubscribe 10 a b; < unsuback 10
    """)
    bad = examples("""
        one code for two filters
            opened; > subscribe 10 a:1 b:1; < suback 10 1 !reason_codes
        three codes for two filters in 3.1.1
            opened 3.1.1; > subscribe 10 a:1 b:1; < suback 10 1 1 1 !reason_codes
        two codes for one filter in 3.1
            opened 3.1; > subscribe 10 a:1; < suback 10 1 1 !reason_codes
        an UNSUBACK without codes
            opened; > unsubscribe 10 a; < unsuback 10 empty !reason_codes
    """)

    def check(self, packet: Suback | Unsuback, at: RuleContext) -> Findings:
        """Count both; SUB210 reports second answers."""
        codes = packet.reason_codes
        if codes is None:
            return None
        kind = "subscribe" if isinstance(packet, Suback) else "unsubscribe"
        request = request_of(packet, at)
        if request is None or request.answers or not request.topic_filters:
            return None
        wanted = len(request.topic_filters)
        if len(codes) == wanted:
            return None
        return self.report(
            "reason_codes",
            f"{packet_name(packet)} with packet identifier {packet.packet_identifier} has {len(codes)} reason codes, "
            f"but the {kind.upper()} has {wanted} topic filters",
            related=(Related.to(f"the {kind.upper()}", request),),
        )
