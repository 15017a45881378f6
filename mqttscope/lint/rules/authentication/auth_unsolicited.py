from mqttscope.lint.rules import V5, Findings, Related, Rule, RuleContext, Severity, examples
from mqttscope.mqtt.packets import Auth, Connack


class AuthUnsolicited(Rule):
    """A side uses enhanced authentication although the CONNECT has no Authentication Method.

    Only the CONNECT can request enhanced authentication; a peer that did not request it cannot answer an AUTH, and
    closes the connection.

    Instead, put the method into CONNECT, or use neither AUTH nor an Authentication Method in CONNACK.
    """

    code = "AUT203"
    severity = Severity.ERROR
    versions = (V5,)
    statements = {V5: {"MQTT-4.12.0-6": "server", "MQTT-4.12.0-7": "client"}}
    when = {Connack: "properties"}

    good = examples("""
        requested in CONNECT
            > connect authentication_method=SCRAM-SHA-1; < auth code=0x18 authentication_method=SCRAM-SHA-1
            > auth code=0x18 authentication_method=SCRAM-SHA-1; < connack authentication_method=SCRAM-SHA-1
        not requested and not used
            opened
    """)
    bad = examples("""
        AUTH from the server
            > connect; < auth code=0x18 authentication_method=SCRAM-SHA-1 !
        AUTH from the client
            opened; > auth code=0x19 authentication_method=SCRAM-SHA-1 !
        a method in CONNACK
            opened < authentication_method=SCRAM-SHA-1 !properties.authentication_method
    """)

    def check(self, packet: Auth | Connack, at: RuleContext) -> Findings:
        """Compare with the CONNECT if it was well-formed."""
        connect, sent = at.history.connect, at.history.connect_sent
        if connect is None or sent is None or at.history.connect_malformed is not None:
            return None
        if connect.properties is not None and connect.properties.authentication_method is not None:
            return None
        request = Related.to("the CONNECT", sent)
        why = "although CONNECT had no Authentication Method"
        if isinstance(packet, Auth):
            who = "the client" if at.from_client else "the server"
            return self.report("", f"{who} sent AUTH {why}", related=(request,))
        if at.from_client or packet.properties is None or packet.properties.authentication_method is None:
            return None
        method = packet.properties.authentication_method
        message = f"CONNACK has Authentication Method {method!r} {why}"
        return self.report("properties.authentication_method", message, related=(request,))
