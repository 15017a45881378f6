"""CON222."""

from mqttscope.lint.context import RuleContext
from mqttscope.lint.examples import examples
from mqttscope.lint.finding import Related, Severity
from mqttscope.lint.rule import V5, Findings, Rule
from mqttscope.mqtt.constants import Direction
from mqttscope.mqtt.packets import Connack


class WillQosAcceptedAboveMaximum(Rule):
    """A server accepts a will whose QoS is above the Maximum QoS that it announces.

    The server promises a will that it cannot publish as asked; the client believes that its death will be told with
    that QoS.

    Instead, refuse the CONNECT with 0x9B (QoS not supported) and close the connection.
    """

    code = "CON222"
    severity = Severity.ERROR
    versions = (V5,)
    statements = {V5: {"MQTT-3.2.2-12": ""}}
    looks_at = Connack
    sender = Direction.SERVER_TO_CLIENT
    when = "properties"

    good = examples("""
        refused
            opened will=w will_payload=x will_qos=2 < code=0x9b; < fin
        just what is supported
            opened will=w will_payload=x will_qos=1 < maximum_qos=1
        no will
            opened < maximum_qos=0
    """)
    bad = examples("""
        2 where 1 is the maximum
            opened will=w will_payload=x will_qos=2 < maximum_qos=1 !properties.maximum_qos
        1 where 0 is the maximum
            opened will=w will_payload=x will_qos=1 < maximum_qos=0 !properties.maximum_qos
    """)

    def check(self, packet: Connack, at: RuleContext) -> Findings:
        """Compare with the CONNECT."""
        connect, sent = at.history.connect, at.history.connect_sent
        if packet.reason_code or packet.properties is None or connect is None or sent is None or connect.will is None:
            return None
        maximum, wanted = packet.properties.maximum_qos, connect.will.will_qos
        if maximum is None or wanted <= maximum:
            return None
        request = Related("the CONNECT", sent.packet, sent.frame, sent.timestamp_ns)
        return self.report(
            "properties.maximum_qos",
            f"CONNACK accepts Will QoS {wanted} and announces Maximum QoS {maximum}",
            related=(request,),
        )
