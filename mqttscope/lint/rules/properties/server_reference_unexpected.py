from mqttscope.lint.rules import V5, Findings, Rule, RuleContext, Severity, examples, packet_name, shown
from mqttscope.mqtt.constants import reason_name
from mqttscope.mqtt.packets import Connack, Disconnect

_REDIRECTIONS = (0x9C, 0x9D)


class ServerReferenceUnexpected(Rule):
    """A Server Reference accompanies a reason code that does not redirect the client.

    The property names the server to use for the reason codes 0x9C (Use another server) and 0x9D (Server moved).  With
    other codes clients ignore it, so the hint is lost; from a client it has no meaning.

    Instead, refuse or disconnect with 0x9C or 0x9D to redirect the client.
    """

    code = "PRP109"
    severity = Severity.WARNING
    versions = (V5,)
    statements = {V5: {"V5-SERVER-REFERENCE-codes": ""}}
    when = "properties"

    good = examples("""
        use another server
            opened < code=0x9c server_reference=b2:1883
        the server has moved
            opened; < disconnect code=0x9d server_reference=b2:1883
        the code alone is allowed
            opened < code=0x9c
    """)
    bad = examples("""
        the server is busy
            opened < code=0x89 server_reference=b2:1883 !properties.server_reference
        the server shuts down
            opened; < disconnect code=0x8b server_reference=b2:1883 !properties.server_reference
        sent by the client
            opened; > disconnect code=0 server_reference=b2:1883 !properties.server_reference
    """)

    def check(self, packet: Connack | Disconnect, at: RuleContext) -> Findings:
        """Compare with the reason code."""
        reference = None if packet.properties is None else packet.properties.server_reference
        code = packet.reason_code or 0
        if reference is None or (code in _REDIRECTIONS and not at.from_client):
            return None
        kind, name = packet_name(packet), reason_name(packet.packet_type, code, at.version)
        why = "only a server may send it" if at.from_client else "only 0x9C and 0x9D use it"
        return self.report(
            "properties.server_reference",
            f"{kind} with 0x{code:02X} ({name}) carries Server Reference {shown(reference)}, {why}",
        )
