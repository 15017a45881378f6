"""CON222."""

from mqttscope.lint.context import RuleContext
from mqttscope.lint.examples import client, closes, conversation, examples, make_connect, opened, server
from mqttscope.lint.finding import Related, Severity
from mqttscope.lint.rule import V5, Findings, Rule
from mqttscope.mqtt.constants import Direction
from mqttscope.mqtt.packets import Connack
from mqttscope.mqtt.parts import Will
from mqttscope.mqtt.properties import Properties


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

    good = examples(
        lambda: [
            conversation(
                "refused",
                client(make_connect(will=Will("w", b"x", will_qos=2))),
                server(Connack(reason_code=0x9B)),
                closes("server"),
            ),
            conversation("just what is supported", *opened(will=Will("w", b"x", 1), connack=Properties(maximum_qos=1))),
            conversation("no will", *opened(connack=Properties(maximum_qos=0))),
        ]
    )
    bad = examples(
        lambda: [
            conversation(
                "2 where 1 is the maximum",
                client(make_connect(will=Will("w", b"x", will_qos=2))),
                server(Connack(properties=Properties(maximum_qos=1))).marked("properties.maximum_qos"),
            ),
            conversation(
                "1 where 0 is the maximum",
                client(make_connect(will=Will("w", b"x", will_qos=1))),
                server(Connack(properties=Properties(maximum_qos=0))).marked("properties.maximum_qos"),
            ),
        ]
    )

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
