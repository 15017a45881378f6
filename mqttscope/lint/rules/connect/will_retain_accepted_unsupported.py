"""CON223."""

from mqttscope.lint.context import RuleContext
from mqttscope.lint.examples import examples
from mqttscope.lint.finding import Related, Severity
from mqttscope.lint.rule import V5, Findings, Rule
from mqttscope.mqtt.constants import Direction
from mqttscope.mqtt.packets import Connack


class WillRetainAcceptedUnsupported(Rule):
    """A server accepts a retained will although it announces that it retains nothing.

    The will cannot be kept as asked, so that clients which subscribe later never learn that the client is gone.

    Instead, refuse the CONNECT with 0x9A (Retain not supported) and close the connection.
    """

    code = "CON223"
    severity = Severity.ERROR
    versions = (V5,)
    statements = {V5: {"MQTT-3.2.2-13": ""}}
    looks_at = Connack
    sender = Direction.SERVER_TO_CLIENT
    when = "properties"

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

    def check(self, packet: Connack, at: RuleContext) -> Findings:
        """Compare with the CONNECT."""
        connect, sent = at.history.connect, at.history.connect_sent
        if packet.reason_code or packet.properties is None or packet.properties.retain_available != 0:
            return None
        if connect is None or sent is None or connect.will is None or not connect.will.will_retain:
            return None
        request = Related("the CONNECT", sent.packet, sent.frame, sent.timestamp_ns)
        return self.report(
            "properties.retain_available",
            "CONNACK accepts Will Retain 1 and announces Retain Available 0",
            related=(request,),
        )
