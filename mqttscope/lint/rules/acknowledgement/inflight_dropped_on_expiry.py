from mqttscope.lint.rules import V5, Confidence, RuleContext, examples
from mqttscope.lint.session_model import ResumptionRule, UnansweredMessage
from mqttscope.mqtt.constants import Direction


class InflightDroppedOnExpiry(ResumptionRule):
    """A QoS 2 message in flight is not resent because its Message Expiry Interval has run out.

    Only messages that have not been sent yet expire.  After the first PUBLISH the receiver may have the message and
    keep its packet identifier reserved until the exchange ends.  Messages without an interval are reported by ACK311.

    Instead, drop expired messages only before their first PUBLISH, and finish every exchange that has begun.
    """

    code = "ACK314"
    confidence = Confidence.HEURISTIC
    versions = (V5,)
    statements = {V5: {"MQTT-4.3.3-7": ""}}

    good = examples("""
        resent, though it has expired
            opened resume session_expiry_interval=3600; > subscribe 1 a:2; < suback 1 2
            < publish a qos=2 id=7 message_expiry_interval=10; > reset; +20 > nothing
            @1 opened resume session_expiry_interval=3600 < present
            @1 < publish a dup qos=2 id=7 message_expiry_interval=10; @1 > pubrec 7; @1 < pubrel 7; @1 > pubcomp 7
            +31 @1 > pingreq; @1 < pingresp; +31 @1 > pingreq; @1 < pingresp
        QoS 1, which only ACK311 reports, and only before it expires
            opened resume session_expiry_interval=3600; > subscribe 1 a:2; < suback 1 2
            < publish a qos=1 id=7 message_expiry_interval=10; > reset
            @1 opened resume session_expiry_interval=3600 < present; +31 @1 > pingreq; @1 < pingresp; +31 @1 > pingreq
            @1 < pingresp
        too early to judge
            opened resume session_expiry_interval=3600; > subscribe 1 a:2; < suback 1 2
            < publish a qos=2 id=7 message_expiry_interval=10; > reset; +20 > nothing
            @1 opened resume session_expiry_interval=3600 < present; @1 > pingreq; @1 < pingresp
    """)
    bad = examples("""
        PUBLISH
            opened resume session_expiry_interval=3600; > subscribe 1 a:2; < suback 1 2
            < publish a qos=2 id=7 message_expiry_interval=10; > reset; +20 > nothing
            @1 opened resume session_expiry_interval=3600 < present; +31 @1 > pingreq; @1 < pingresp; @1 > pingreq !!
        PUBREL
            opened resume session_expiry_interval=3600; > subscribe 1 a:2; < suback 1 2
            < publish a qos=2 id=7 message_expiry_interval=10; > pubrec 7; > reset; +20 > nothing
            @1 opened resume session_expiry_interval=3600 < present; +31 @1 > pingreq; @1 < pingresp; @1 > pingreq !!
    """)

    def blames(self, exchange: UnansweredMessage, direction: Direction, at: RuleContext) -> bool:
        return exchange.qos == 2 and exchange.expires_ns <= at.timestamp_ns

    def describe(self, exchange: UnansweredMessage) -> str:
        """Name the message and the packet that is missing."""
        return (
            f"QoS 2 message id {exchange.packet_identifier} disappeared after its Message Expiry Interval although it "
            f"had been sent: no {exchange.step} was sent when the session continued"
        )
