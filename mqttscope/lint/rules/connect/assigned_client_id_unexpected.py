from mqttscope.lint.rules import V5, Findings, Related, Rule, RuleContext, Severity, examples
from mqttscope.mqtt import Connack, Direction


class AssignedClientIdUnexpected(Rule):
    """A server assigns a Client Identifier to a client that sent its own.

    The property is meant as the answer to an empty identifier.  Some servers replace the client's identifier, for
    example by the name in its certificate, and announce it this way.  A client that ignores the property has a
    different idea of its session than the server.  From here on mqttscope follows the connection under the assigned
    identifier.

    Instead, assign an identifier only to clients that send an empty one, and refuse others with 0x85.
    """

    code = "CON218"
    severity = Severity.WARNING
    versions = (V5,)
    statements = {V5: {"V5-CONNACK-assigned-id-only-empty": ""}}
    also = {V5: ("MQTT-3.1.3-2",)}
    sender = Direction.SERVER_TO_CLIENT
    when = "properties"

    good = examples("""
        the client has its own
            opened
        the client has an empty one
            opened client=- < assigned_client_identifier=x9
    """)
    bad = examples("""
        replaced
            opened < assigned_client_identifier=x9 !properties.assigned_client_identifier
        the client's own identifier, repeated
            opened < assigned_client_identifier=c1 !properties.assigned_client_identifier
    """)

    def check(self, packet: Connack, at: RuleContext) -> Findings:
        """Compare with the CONNECT."""
        connect, sent = at.history.connect, at.history.connect_sent
        assigned = packet.properties.assigned_client_identifier if packet.properties else None
        if assigned is None or connect is None or sent is None or not connect.client_identifier:
            return None
        return self.report(
            "properties.assigned_client_identifier",
            f"CONNACK assigns Client Identifier {assigned!r} although the client sent {connect.client_identifier!r}",
            related=(Related.to("the CONNECT", sent),),
        )
