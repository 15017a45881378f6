from mqttscope.lint.rules import V5, Findings, Needs, Related, Rule, RuleContext, Severity, examples
from mqttscope.mqtt import Direction, Disconnect


class SubscribeRefusedForQos(Rule):
    """A server disconnects with 0x9B because of the QoS that a SUBSCRIBE requests.

    A server that does not support QoS 1 or 2 still has to accept such a SUBSCRIBE and grant the QoS that it supports.
    Reason code 0x9B (QoS not supported) is only for messages published with too high a QoS.

    Instead, answer with a SUBACK that grants the highest supported QoS.
    """

    code = "SUB216"
    severity = Severity.ERROR
    versions = (V5,)
    statements = {V5: {"MQTT-3.2.2-10": ""}}
    sender = Direction.SERVER_TO_CLIENT
    needs = Needs.OPENING | Needs.WHOLE_RECEIVER

    good = examples("""
        a lower QoS is granted
            opened < maximum_qos=0; > subscribe 10 a:2; < suback 10 0
    """)
    bad = examples("""
        disconnected instead of a lower grant
            opened < maximum_qos=0; > subscribe 10 a:2; < disconnect code=0x9b !reason_code
        no Maximum QoS announced
            opened; > subscribe 10 a:2; < disconnect code=0x9b !reason_code
        after a QoS 1 message that was within the limit
            opened < maximum_qos=1; > publish b qos=1 id=1 & subscribe 10 a:2; < disconnect code=0x9b !reason_code
    """)

    def check(self, packet: Disconnect, at: RuleContext) -> Findings:
        """Report a DISCONNECT as the first reaction to a SUBSCRIBE, unless a PUBLISH explains it."""
        if packet.reason_code != 0x9B:
            return None
        maximum = at.connection.maximum_qos
        limit = maximum if maximum < 2 else 0
        last = at.sender.last_timestamp_ns or 0
        asked = None
        for exchange in at.receiver.exchanges.values():
            if exchange.kind == "publish" and exchange.qos > limit:
                return None
            if exchange.kind == "subscribe" and exchange.timestamp_ns >= last:
                request = at.history.subscriptions.request_for(exchange.packet_identifier, "subscribe")
                if request is not None and any(qos > limit for qos in request.maximum_qos):
                    asked = request
        if asked is None:
            return None
        return self.report(
            "reason_code",
            f"DISCONNECT 0x9B (QoS not supported) answers a SUBSCRIBE for QoS {max(asked.maximum_qos)}, "
            f"but the server's Maximum QoS is {maximum}",
            related=(Related.to("the SUBSCRIBE", asked),),
        )
