from mqttscope.lint.awaiting import AwaitingRule
from mqttscope.lint.message_model import ExpectedMessage, Messages
from mqttscope.lint.rules import SECOND_NS, V5, Confidence, Related, Report, RuleContext, examples


class OversizeMessageStallsDelivery(AwaitingRule):
    """After a message that is too large for a client, the server delivers nothing more to it.

    A message that is too large counts as sent (5.0 3.1.2.11.4).  A server that keeps a window slot for it, or retries
    it, blocks all later messages, and the client does not notice.

    Instead, drop the message for this client and continue with the next one.
    """

    code = "FLW404"
    confidence = Confidence.HEURISTIC
    versions = (V5,)
    statements = {V5: {"MQTT-3.1.2-25": ""}}

    good = examples("""
        the next one is delivered
            @1 opened client=c2 maximum_packet_size=100; @1 > subscribe 1 a:1; @1 < suback 1 1; opened
            +2 > publish a 21.5 qos=1 id=1; < puback 1; @1 < publish a 21.5 qos=1 id=1; @1 > puback 1
            +2 > publish a "long"*50 qos=1 id=2; < puback 2; > publish a short qos=1 id=3; < puback 3
            @1 < publish a short qos=1 id=3; @1 > puback 3; +20 @1 > pingreq; @1 < pingresp; +15 @1 > pingreq
        no later messages
            @1 opened client=c2 maximum_packet_size=100; @1 > subscribe 1 a:1; @1 < suback 1 1; opened
            +2 > publish a 21.5 qos=1 id=1; < puback 1; @1 < publish a 21.5 qos=1 id=1; @1 > puback 1
            +2 > publish a "long"*50 qos=1 id=2; < puback 2; +20 @1 > pingreq; @1 < pingresp; +15 @1 > pingreq
    """)
    bad = examples("""
        no more deliveries
            @1 opened client=c2 maximum_packet_size=100; @1 > subscribe 1 a:1; @1 < suback 1 1; opened
            +2 > publish a 21.5 qos=1 id=1; < puback 1; @1 < publish a 21.5 qos=1 id=1; @1 > puback 1
            +2 > publish a "long"*50 qos=1 id=2; < puback 2; > publish a short qos=1 id=3; < puback 3; +20 @1 > pingreq
            @1 < pingresp; +15 @1 > pingreq !!
        no earlier deliveries either: only a warning
            @1 opened client=c2 maximum_packet_size=100; @1 > subscribe 1 a:1; @1 < suback 1 1; opened
            +2 > publish a "long"*50 qos=1 id=2; < puback 2; > publish a short qos=1 id=3; < puback 3; +20 @1 > pingreq
            @1 < pingresp; +15 @1 > pingreq !!
    """)

    def concerns(self, model: Messages) -> bool:
        """Whether a message was too large for any client."""
        return bool(model.oversized)

    def judge(self, expected: ExpectedMessage, model: Messages, at: RuleContext) -> Report | None:
        """Report a missing message if the client has received nothing since the large one."""
        too_long = model.oversized.get(at.key)
        if too_long is None or too_long.number >= expected.sent.number or at.client.maximum_packet_size is None:
            return None
        recent = at.history.server.recent
        if recent and recent[-1].timestamp_ns > too_long.timestamp_ns:
            return None
        waited = (at.timestamp_ns - expected.since_ns) / SECOND_NS
        return self.lost(
            expected,
            model,
            at,
            f"{at.client_name!r} accepts {at.client.maximum_packet_size:,} bytes and has received nothing since a "
            f"message of {too_long.size:,} bytes on {too_long.topic!r}: the next one on {expected.sent.topic!r} did "
            f"not arrive within {waited:,.0f} s",
            Related.to("the message that is too large", too_long),
        )
