from mqttscope.lint.rules import V5, Findings, Related, Rule, RuleContext, Severity, examples
from mqttscope.mqtt import Connack, Direction


class AssignedClientIdMissing(Rule):
    """A server accepts an empty Client Identifier without announcing the identifier that it assigns.

    The client needs the assigned identifier to resume its session.  Without it the session is lost at the next
    reconnect, and logs cannot identify the client.

    Instead, return the identifier in CONNACK as Assigned Client Identifier, or refuse with 0x85.
    """

    code = "CON217"
    severity = Severity.ERROR
    versions = (V5,)
    statements = {V5: {"MQTT-3.1.3-6": "", "MQTT-3.1.3-7": "", "MQTT-3.2.2-16": ""}}
    sender = Direction.SERVER_TO_CLIENT

    good = examples("""
        assigned
            opened client=- < assigned_client_identifier=auto-7Q
        refused
            opened client=- < code=0x85; < fin
        chosen by the client
            opened
        MQTT 3.1.1 has no such property
            opened 3.1.1 client=-
    """)
    bad = examples("""
        not announced
            opened client=- < !properties
        other properties only
            opened client=- < receive_maximum=10 !properties
        assigned, but empty
            opened client=- < assigned_client_identifier=- !properties.assigned_client_identifier
    """)

    def check(self, packet: Connack, at: RuleContext) -> Findings:
        """Compare with the CONNECT."""
        connect, sent = at.history.connect, at.history.connect_sent
        if packet.reason_code or connect is None or sent is None or connect.client_identifier != "":
            return None
        block = packet.properties
        assigned = None if block is None else block.assigned_client_identifier
        if assigned:
            return None
        request = Related.to("the CONNECT", sent)
        if assigned is None:
            message = "CONNACK accepts an empty Client Identifier without an Assigned Client Identifier"
            return self.report("properties" if block is not None else "", message, related=(request,))
        message = "CONNACK: the Assigned Client Identifier for an empty Client Identifier is empty too"
        return self.report("properties.assigned_client_identifier", message, related=(request,))
