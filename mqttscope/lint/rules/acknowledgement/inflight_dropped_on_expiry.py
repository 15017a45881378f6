from mqttscope.lint.rules import V5, Confidence, RuleContext, examples
from mqttscope.lint.session_model import Carried, ResumptionRule
from mqttscope.mqtt.constants import Direction


class InflightDroppedOnExpiry(ResumptionRule):
    """A QoS 2 message that was under way is not sent again after its Message Expiry Interval has run out.

    Expiry is for messages that wait.  Once the PUBLISH has gone out the receiver may have it and hold its packet
    identifier, which only the rest of the exchange sets free.  Messages without an interval are ACK311.

    Instead, let the interval delete messages before their first PUBLISH only, and finish what was begun.
    """

    code = "ACK314"
    confidence = Confidence.HEURISTIC
    versions = (V5,)
    statements = {V5: {"MQTT-4.3.3-7": ""}}

    good = examples("""
        sent again, though it has expired
            opened resume session_expiry_interval=3600; > subscribe 1 a:2; < suback 1 2
            < publish a qos=2 id=7 message_expiry_interval=10; > reset; +20 > nothing
            @1 opened resume session_expiry_interval=3600 < present
            @1 < publish a dup qos=2 id=7 message_expiry_interval=10; @1 > pubrec 7; @1 < pubrel 7; @1 > pubcomp 7
            +31 @1 > pingreq; @1 < pingresp; +31 @1 > pingreq; @1 < pingresp
        QoS 1, which only ACK311 looks at while it has not expired
            opened resume session_expiry_interval=3600; > subscribe 1 a:2; < suback 1 2
            < publish a qos=1 id=7 message_expiry_interval=10; > reset
            @1 opened resume session_expiry_interval=3600 < present; +31 @1 > pingreq; @1 < pingresp; +31 @1 > pingreq
            @1 < pingresp
        too early to tell
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

    def blames(self, one: Carried, direction: Direction, at: RuleContext) -> bool:
        return one.qos == 2 and one.expires_ns <= at.timestamp_ns

    def tell(self, one: Carried) -> str:
        """The message and where it stopped."""
        return (
            f"QoS 2 message id {one.packet_identifier} vanished after its Message Expiry Interval although it had been "
            f"sent: no {one.step} came when the session continued"
        )
