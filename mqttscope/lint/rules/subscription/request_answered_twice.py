from mqttscope.lint.examples import examples
from mqttscope.lint.rules import V3_1_1, V5, Findings, Needs, Related, Rule, RuleContext, Severity, packet_name
from mqttscope.lint.rules.subscription import request_of
from mqttscope.mqtt import Direction, Suback, Unsuback


class RequestAnsweredTwice(Rule):
    """A server answers one SUBSCRIBE or UNSUBSCRIBE more than once.

    One SUBACK or UNSUBACK answers all Topic Filters of a request.  A second answer with the same packet identifier may
    be mistaken for the answer to a later request.

    Instead, collect the results of all Topic Filters and answer once.
    """

    code = "SUB212"
    severity = Severity.ERROR
    statements = {
        V5: {"MQTT-3.8.4-5": "suback", "MQTT-3.10.4-6": "unsuback"},
        V3_1_1: {"MQTT-3.8.4-4": "suback", "MQTT-3.10.4-6": "unsuback"},
    }
    signs = ("again",)
    sender = Direction.SERVER_TO_CLIENT
    needs = Needs.WHOLE_RECEIVER

    good = examples("""
        one answer for both filters
            opened; > subscribe 10 a:1 b:1; < suback 10 1 1
        the identifier is reused
            opened; > subscribe 10 a:1 b:1; < suback 10 1 1; > subscribe 10 a:1 b:1; < suback 10 1 1
        a resent SUBSCRIBE in 3.1, each with an answer
            opened 3.1; > subscribe 10 a:1; > subscribe 10 a:1 header_flags=0x0a; < suback 10 1; < suback 10 1
    """)
    bad = examples("""
        a SUBACK for each filter
            opened; > subscribe 10 a:1 b:1; < suback 10 1; < suback 10 1 !
        a SUBACK for each filter, in 3.1.1
            opened 3.1.1; > subscribe 10 a:1 b:1; < suback 10 1 1; < suback 10 1 1 !
        an UNSUBACK for each filter
            opened 3.1; > unsubscribe 11 a b; < unsuback 11 & unsuback 11 !
    """)

    def check(self, packet: Suback | Unsuback, at: RuleContext) -> Findings:
        """Report an answer to a request that has been answered."""
        kind = "subscribe" if isinstance(packet, Suback) else "unsubscribe"
        request = request_of(packet, at)
        if request is None or not request.answers or not at.party.in_step():
            return None
        return self.report(
            "",
            f"{kind.upper()} with packet identifier {packet.packet_identifier} and {len(request.topic_filters)} topic "
            f"filters gets {packet_name(packet)} number {request.answers + 1}",
            related=(Related.to(f"the {kind.upper()}", request),),
        )
