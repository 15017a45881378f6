"""SUB210."""

from mqttscope.lint.context import RuleContext
from mqttscope.lint.examples import client, conversation, examples, opened, server
from mqttscope.lint.finding import Related, Severity
from mqttscope.lint.rule import V3_1, V3_1_1, V5, Findings, Needs, Rule, packet_name
from mqttscope.lint.rules.subscription import request_of
from mqttscope.mqtt.constants import Direction
from mqttscope.mqtt.packets import Suback, Subscribe, Unsuback, Unsubscribe
from mqttscope.mqtt.parts import Subscription

_TWO = Subscribe(10, subscriptions=[Subscription("a", 1), Subscription("b", 1)])


class SubackCountMismatch(Rule):
    """A SUBACK or UNSUBACK has more or fewer reason codes than its request has Topic Filters.

    Codes belong to filters by their position, so the client cannot tell what it is subscribed to.  (UNSUBACK has codes
    in 5.0 only.)

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
    looks_at = (Suback, Unsuback)
    signs = ("odd_count",)
    sender = Direction.SERVER_TO_CLIENT
    needs = Needs.OPENING | Needs.WHOLE_RECEIVER

    good = examples(
        lambda: [
            conversation("a code for each filter", *opened(), client(_TWO), server(Suback(10, reason_codes=[1, 0x80]))),
            conversation(
                "UNSUBACK has none in 3.1.1",
                *opened(V3_1_1),
                client(Unsubscribe(10, topic_filters=["a", "b"])),
                server(Unsuback(10)),
            ),
        ]
    )
    bad = examples(
        lambda: [
            conversation(
                "one code for two filters",
                *opened(),
                client(_TWO),
                server(Suback(10, reason_codes=[1])).marked("reason_codes"),
            ),
            conversation(
                "three codes for two filters in 3.1.1",
                *opened(V3_1_1),
                client(_TWO),
                server(Suback(10, reason_codes=[1, 1, 1])).marked("reason_codes"),
            ),
            conversation(
                "two codes for one filter in 3.1",
                *opened(V3_1),
                client(Subscribe(10, subscriptions=[Subscription("a", 1)])),
                server(Suback(10, reason_codes=[1, 1])).marked("reason_codes"),
            ),
            conversation(
                "an UNSUBACK without codes",
                *opened(),
                client(Unsubscribe(10, topic_filters=["a"])),
                server(Unsuback(10, reason_codes=[])).marked("reason_codes"),
            ),
        ]
    )

    def check(self, packet: Suback | Unsuback, at: RuleContext) -> Findings:
        """Count both; a second answer is another rule's business."""
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
            f"the {kind.upper()} has {wanted} topic filters",
            related=(Related(f"the {kind.upper()}", request.packet, request.frame, request.timestamp_ns),),
        )
