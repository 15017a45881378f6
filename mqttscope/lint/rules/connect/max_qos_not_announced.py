from mqttscope.lint.rules import V5, Confidence, Findings, Needs, Related, Rule, RuleContext, Severity, examples
from mqttscope.mqtt import Direction, Disconnect

_QOS_NOT_SUPPORTED = 0x9B


class MaxQosNotAnnounced(Rule):
    """A server disconnects a client for a QoS that its CONNACK allowed.

    A CONNACK without Maximum QoS promises QoS 2.  A client that relies on this is disconnected at its first message,
    and again after every reconnect.

    Instead, announce Maximum QoS 0 or 1 in the CONNACK if you do not support higher ones.
    """

    code = "CON224"
    severity = Severity.ERROR
    confidence = Confidence.LIKELY
    versions = (V5,)
    statements = {V5: {"MQTT-3.2.2-9": ""}}
    sender = Direction.SERVER_TO_CLIENT
    needs = Needs.OPENING | Needs.WHOLE_RECEIVER

    good = examples("""
        announced, and the client kept to it
            opened < maximum_qos=1; > publish a qos=1 id=1; < puback 1
        another reason
            opened; < disconnect code=0x8b; < fin
    """)
    bad = examples("""
        no Maximum QoS announced
            opened; > publish a qos=2 id=1; < disconnect code=0x9b !reason_code; < fin
        only up to the announced QoS
            opened < maximum_qos=1; > publish a qos=1 id=1; < raw e0 01 9b !reason_code; < fin
    """)

    def check(self, packet: Disconnect, at: RuleContext) -> Findings:
        """Compare the announced QoS with the highest QoS sent; malformed packets may have had QoS 3."""
        connack, sent = at.history.connack, at.history.connack_sent
        if packet.reason_code != _QOS_NOT_SUPPORTED or connack is None or sent is None:
            return None
        highest, maximum = at.other.highest_qos, at.connection.maximum_qos
        if not 0 < highest <= maximum or at.other.malformed:
            return None
        announced = None if connack.properties is None else connack.properties.maximum_qos
        limit = "no Maximum QoS" if announced is None else f"Maximum QoS {announced}"
        return self.report(
            "reason_code",
            f"the server disconnects with 0x9b (QoS not supported) but CONNACK announced {limit}; "
            f"the client published with QoS {highest} at most",
            related=(Related.to("the CONNACK", sent),),
        )
