"""CON222, CON223: a will that the server accepts and announces not to support."""

from mqttscope.lint.rules import V5, Findings, Related, Rule, RuleContext, Severity, examples
from mqttscope.mqtt import Connack, Direction, Properties, Will


class AcceptedWillRule(Rule):
    """A CONNACK that contradicts the will that it accepts."""

    severity = Severity.ERROR
    versions = (V5,)
    sender = Direction.SERVER_TO_CLIENT
    when = "properties"

    def check(self, packet: Connack, at: RuleContext) -> Findings:
        """Compare with the will of the CONNECT."""
        connect, sent = at.history.connect, at.history.connect_sent
        if packet.reason_code or packet.properties is None or connect is None or sent is None or connect.will is None:
            return None
        field, message = self.contradiction(connect.will, packet.properties)
        return self.report(field, message, related=(Related.to("the CONNECT", sent),)) if message else None

    def contradiction(self, will: Will, announced: Properties) -> tuple[str, str]:
        """The property that contradicts the will, and a message; an empty message if none does."""
        raise NotImplementedError


class WillQosAcceptedAboveMaximum(AcceptedWillRule):
    """A server accepts a will whose QoS is above the Maximum QoS that it announces.

    The server promises a will that it cannot publish as asked; the client believes that its death will be told with
    that QoS.

    Instead, refuse the CONNECT with 0x9B (QoS not supported) and close the connection.
    """

    code = "CON222"
    statements = {V5: {"MQTT-3.2.2-12": ""}}

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

    def contradiction(self, will: Will, announced: Properties) -> tuple[str, str]:
        """Compare with Maximum QoS."""
        maximum, wanted = announced.maximum_qos, will.will_qos
        is_above = maximum is not None and wanted > maximum
        message = f"CONNACK accepts Will QoS {wanted} and announces Maximum QoS {maximum}"
        return "properties.maximum_qos", message if is_above else ""


class WillRetainAcceptedUnsupported(AcceptedWillRule):
    """A server accepts a retained will although it announces that it retains nothing.

    The will cannot be kept as asked, so that clients which subscribe later never learn that the client is gone.

    Instead, refuse the CONNECT with 0x9A (Retain not supported) and close the connection.
    """

    code = "CON223"
    statements = {V5: {"MQTT-3.2.2-13": ""}}

    good = examples("""
        refused
            opened will=w will_payload=x will_retain < code=0x9a; < fin
        not retained
            opened will=w will_payload=x < retain_available=0
        supported
            opened will=w will_payload=x will_retain < retain_available=1
    """)
    bad = examples("""
        Retain Available 0
            opened will=w will_payload=x will_retain < retain_available=0 !properties.retain_available
    """)

    def contradiction(self, will: Will, announced: Properties) -> tuple[str, str]:
        is_wrong = announced.retain_available == 0 and will.will_retain
        message = "CONNACK accepts Will Retain 1 and announces Retain Available 0"
        return "properties.retain_available", message if is_wrong else ""
