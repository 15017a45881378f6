from mqttscope.lint.rules import V5, Findings, RuleContext, examples
from mqttscope.lint.shared_checks import AnnouncedLimitRule
from mqttscope.mqtt import Direction, Publish


class QosExceedsMaximum(AnnouncedLimitRule):
    """A client publishes with a higher QoS than the server's Maximum QoS.

    The server announced the maximum in CONNACK and closes the connection with 0x9B (QoS not supported).  A client that
    publishes before the CONNACK reaches it can only guess, so then the finding is at most likely.

    Instead, wait for the CONNACK and publish with at most its Maximum QoS.
    """

    code = "PUB209"
    reason_code = 0x9B
    statements = {V5: {"MQTT-3.2.2-11": ""}}
    also = {V5: ("V5-PUBLISH-qos-above-max",)}
    sender = Direction.CLIENT_TO_SERVER
    when = "qos"
    signs = ("above_maximum",)

    good = examples("""
        the highest supported QoS
            opened < maximum_qos=1; > publish a qos=1 id=1
    """)
    bad = examples("""
        QoS 2 with maximum 1
            opened < maximum_qos=1; > publish a qos=2 id=1 !qos
        sent before the CONNACK arrived
            opened < maximum_qos=0; crossing > publish a qos=1 id=1 !qos
    """)

    def check(self, packet: Publish, at: RuleContext) -> Findings:
        """Compare with the Maximum QoS in CONNACK; PUB103 reports QoS 3."""
        maximum = at.connection.maximum_qos
        if packet.qos <= maximum or packet.qos == 3:
            return None
        message = f"PUBLISH {at.topic!r} has QoS {packet.qos}, the server's Maximum QoS is {maximum}"
        return self.ignored("qos", message, at)
