"""PRF109."""

from mqttscope.lint.context import RuleContext
from mqttscope.lint.examples import examples
from mqttscope.lint.finding import Severity
from mqttscope.lint.rule import V5, Findings, Rule
from mqttscope.mqtt.constants import Direction
from mqttscope.mqtt.packets import Connect
from mqttscope.mqtt.topics import utf8_length


class ProfileClientIdentifierLength(Rule):
    """A Client Identifier is longer than the service of the profile takes.

    The service refuses the CONNECT.

    Instead, use a shorter Client Identifier.
    """

    code = "PRF109"
    severity = Severity.ERROR
    looks_at = Connect
    sender = Direction.CLIENT_TO_SERVER
    # The second limit holds for MQTT 3.1 and 3.1.1 in addition.
    settings = {
        "maximum_client_identifier_bytes": 65_535,
        "maximum_client_identifier_bytes_3x": 65_535,
        "profile": "the profile",
    }

    good = examples("""
        as long as the limit
            settings maximum_client_identifier_bytes=8; opened client=meter-17
        the limit of 3.x does not bind 5.0
            settings maximum_client_identifier_bytes_3x=4; opened client=meter-17
    """)
    bad = examples("""
        one byte more
            settings maximum_client_identifier_bytes=8; > connect client=meter-171 !client_identifier
        too long for 3.1.1
            settings maximum_client_identifier_bytes_3x=4; > connect 3.1.1 client=meter-17 !client_identifier
    """)

    def check(self, packet: Connect, at: RuleContext) -> Findings:
        """Compare with the profile."""
        limit = self.set["maximum_client_identifier_bytes"]
        if at.version < V5:
            limit = min(limit, self.set["maximum_client_identifier_bytes_3x"])
        length = utf8_length(packet.client_identifier or "")
        if length <= limit:
            return None
        told = f"CONNECT: Client Identifier of {length:,} bytes; {self.set['profile']} takes at most {limit:,}"
        return self.report("client_identifier", told)
