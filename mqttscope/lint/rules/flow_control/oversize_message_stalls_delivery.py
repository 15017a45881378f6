from mqttscope.lint.awaiting import AwaitingRule
from mqttscope.lint.message_model import Expected, Messages
from mqttscope.lint.rules import SECOND_NS, V5, Confidence, Related, Report, RuleContext, examples


class OversizeMessageStallsDelivery(AwaitingRule):
    """After a message that is too long for a client, the server delivers nothing more to it.

    A message that does not fit counts as sent (5.0 3.1.2.11.4).  A server that keeps its place in the window, or tries
    it again and again, blocks all that comes after it, and the client does not notice.

    Instead, drop the message for this client, and continue with the next one.
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
        nothing came after it
            @1 opened client=c2 maximum_packet_size=100; @1 > subscribe 1 a:1; @1 < suback 1 1; opened
            +2 > publish a 21.5 qos=1 id=1; < puback 1; @1 < publish a 21.5 qos=1 id=1; @1 > puback 1
            +2 > publish a "long"*50 qos=1 id=2; < puback 2; +20 @1 > pingreq; @1 < pingresp; +15 @1 > pingreq
    """)
    bad = examples("""
        nothing comes any more
            @1 opened client=c2 maximum_packet_size=100; @1 > subscribe 1 a:1; @1 < suback 1 1; opened
            +2 > publish a 21.5 qos=1 id=1; < puback 1; @1 < publish a 21.5 qos=1 id=1; @1 > puback 1
            +2 > publish a "long"*50 qos=1 id=2; < puback 2; > publish a short qos=1 id=3; < puback 3; +20 @1 > pingreq
            @1 < pingresp; +15 @1 > pingreq !!
        nothing has come before: only a warning
            @1 opened client=c2 maximum_packet_size=100; @1 > subscribe 1 a:1; @1 < suback 1 1; opened
            +2 > publish a "long"*50 qos=1 id=2; < puback 2; > publish a short qos=1 id=3; < puback 3; +20 @1 > pingreq
            @1 < pingresp; +15 @1 > pingreq !!
    """)

    def concerns(self, model: Messages) -> bool:
        """Whether there was a message that was too long for somebody."""
        return bool(model.oversized)

    def judge(self, one: Expected, model: Messages, at: RuleContext) -> Report | None:
        """Say what the client has not got since, where it has got nothing at all."""
        too_long = model.oversized.get(at.key)
        if too_long is None or too_long.number >= one.sent.number or at.client.maximum_packet_size is None:
            return None
        recent = at.history.server.recent
        if recent and recent[-1].timestamp_ns > too_long.timestamp_ns:
            return None
        waited = (at.timestamp_ns - one.since_ns) / SECOND_NS
        return self.lost(
            one,
            model,
            at,
            f"{at.client_name!r} takes {at.client.maximum_packet_size:,} bytes and has got nothing since a message of "
            f"{too_long.size:,} bytes on {too_long.topic!r}: not the next one on {one.sent.topic!r} within "
            f"{waited:,.0f} s",
            Related.to("the message that is too long", too_long),
        )
