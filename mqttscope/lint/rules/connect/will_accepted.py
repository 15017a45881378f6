"""CON222, CON223: a server accepts a will that it does not support."""

from mqttscope.lint.rules import V5, Findings, Related, Rule, RuleContext, Severity, examples
from mqttscope.mqtt import Connack, Direction, Properties, Will


class AcceptedWillRule(Rule):
    """A CONNACK accepts a will and announces that it does not support it."""

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
        """The property that contradicts the will, and the finding text; an empty text if they agree."""
        raise NotImplementedError


class WillQosAcceptedAboveMaximum(AcceptedWillRule):
    """A server accepts a will with a QoS above the Maximum QoS that it announces.

    The server cannot publish the will with that QoS, but the client relies on it.

    Instead, refuse the CONNECT with 0x9B (QoS not supported) and close the connection.
    """

    code = "CON222"
    statements = {V5: {"MQTT-3.2.2-12": ""}}

    good = examples("""
        refused
            opened will=w will_payload=x will_qos=2 < code=0x9b; < fin
        within the maximum
            opened will=w will_payload=x will_qos=1 < maximum_qos=1
        no will
            opened < maximum_qos=0
    """)
    bad = examples("""
        2 with maximum 1
            opened will=w will_payload=x will_qos=2 < maximum_qos=1 !properties.maximum_qos
        1 with maximum 0
            opened will=w will_payload=x will_qos=1 < maximum_qos=0 !properties.maximum_qos
    """)

    def contradiction(self, will: Will, announced: Properties) -> tuple[str, str]:
        """Compare with Maximum QoS."""
        maximum, wanted = announced.maximum_qos, will.will_qos
        is_above = maximum is not None and wanted > maximum
        message = f"CONNACK accepts Will QoS {wanted} and announces Maximum QoS {maximum}"
        return "properties.maximum_qos", message if is_above else ""


class WillRetainAcceptedUnsupported(AcceptedWillRule):
    """A server accepts a retained will although it announces that it does not support retained messages.

    The will cannot be retained, so clients that subscribe later never learn that the client is gone.

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
