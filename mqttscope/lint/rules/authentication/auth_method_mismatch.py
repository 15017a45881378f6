from mqttscope.lint.rules import V5, Findings, Related, Rule, RuleContext, Severity, examples, packet_name
from mqttscope.mqtt.packets import Auth, Connack


class AuthMethodMismatch(Rule):
    """An AUTH or a CONNACK has a different Authentication Method than the CONNECT.

    The CONNECT chooses the method for the whole connection, including re-authentication.  A successful CONNACK repeats
    it; without it the client cannot be sure that the server checked its credentials.

    Instead, repeat the method of the CONNECT unchanged.
    """

    code = "AUT204"
    severity = Severity.ERROR
    versions = (V5,)
    statements = {V5: {"MQTT-4.12.0-5": "", "MQTT-4.12.1-1": "client auth"}}
    also = {V5: ("MQTT-4.12.0-1",)}

    good = examples("""
        the same method in all packets
            > connect authentication_method=A; < auth code=0x18 authentication_method=A
            > auth code=0x18 authentication_method=A; < connack authentication_method=A
            > auth code=0x19 authentication_method=A; < auth code=0 authentication_method=A
        a refusal may omit it
            opened authentication_method=A < code=0x8c; < fin
    """)
    bad = examples("""
        AUTH from the server
            > connect authentication_method=A
            < auth code=0x18 authentication_method=B !properties.authentication_method
        AUTH from the client
            > connect authentication_method=A; < auth code=0x18 authentication_method=A
            > auth code=0x18 authentication_method=B !properties.authentication_method
        re-authentication
            opened authentication_method=A < authentication_method=A
            > auth code=0x19 authentication_method=B !properties.authentication_method
        CONNACK with a different method
            opened authentication_method=A < authentication_method=B !properties.authentication_method
        CONNACK without a method
            opened authentication_method=A < !properties
    """)

    def check(self, packet: Auth | Connack, at: RuleContext) -> Findings:
        """Compare with the CONNECT; AUT102 reports an AUTH without a method."""
        connect, sent = at.history.connect, at.history.connect_sent
        wanted = None if connect is None or connect.properties is None else connect.properties.authentication_method
        if wanted is None or sent is None:
            return None
        block = packet.properties
        method = None if block is None else block.authentication_method
        if method == wanted or (isinstance(packet, Connack) and packet.reason_code):
            return None
        request = Related.to("the CONNECT", sent)
        if method is None:
            if isinstance(packet, Auth):
                return None
            message = f"CONNACK accepts without the Authentication Method {wanted!r} of CONNECT"
            return self.report("" if block is None else "properties", message, related=(request,))
        again = isinstance(packet, Auth) and at.from_client and at.history.connack is not None
        return self.report(
            "properties.authentication_method",
            f"{packet_name(packet)} has Authentication Method {method!r}, CONNECT has {wanted!r}",
            related=(request,),
            statements=("MQTT-4.12.0-5", "MQTT-4.12.1-1") if again else ("MQTT-4.12.0-5",),
        )
