from mqttscope.lint.rules import Confidence, Connection, Findings, Related, Rule, RuleContext, Severity, examples
from mqttscope.lint.shared_checks import is_plain
from mqttscope.mqtt import Connack, Connect, Direction

_NONE = "no user name, password, certificate or authentication method"


class AnonymousConnect(Rule):
    """A server accepts a client that does not authenticate.

    The Client Identifier proves nothing, so any program that can reach the server can publish and subscribe.  Reported
    with the accepting CONNACK.  Not reported with TLS, since the client may have sent a certificate.

    Instead, give each device a user name and password, a certificate or another method, and disable anonymous access.
    """

    code = "SEC102"
    severity = Severity.INFO
    sender = Direction.SERVER_TO_CLIENT

    good = examples("""
        a user name
            opened user_name=u
        a password only
            opened password=token
        refused
            opened < code=0x87; < fin
        refused in MQTT 3.1.1
            opened 3.1.1 < code=0x05
        an authentication method
            > connect authentication_method=SCRAM-SHA-256 authentication_data="n,,n=u,r=1"
            < auth code=0x18 authentication_method=SCRAM-SHA-256 authentication_data="n,,n=u,r=1"
            > auth code=0x18 authentication_method=SCRAM-SHA-256 authentication_data="n,,n=u,r=1"
            < connack authentication_method=SCRAM-SHA-256
    """)
    bad = examples("""
        accepted
            opened < !
        accepted in MQTT 3.1.1
            opened 3.1.1 < !
        the CONNACK was not captured, but the client continues
            > connect; lost < connack; > publish a; > fin !
    """)

    def check(self, packet: Connack, at: RuleContext) -> Findings:
        """Report an accepted CONNECT without credentials."""
        sent = at.history.connect_sent
        if packet.reason_code or sent is None or at.history.connack is not None or not _anonymous(at):
            return None
        return self.report(
            "",
            f"CONNECT of {at.client_name!r}: {_NONE}, and the server accepts it",
            related=(Related.to("the CONNECT", sent),),
            sender=Direction.CLIENT_TO_SERVER,
        )

    def check_close(self, connection: Connection, at: RuleContext) -> Findings:
        """Report a client that continues after an anonymous CONNECT if the capture has no server packets."""
        if connection.connack_packet is not None or at.server.packets or at.client.packets < 2 or not _anonymous(at):
            return None
        return self.report(
            "",
            f"CONNECT of {at.client_name!r}: {_NONE}; the answer was not captured",
            confidence=Confidence.LIKELY,
            sender=Direction.CLIENT_TO_SERVER,
        )


def _anonymous(at: RuleContext) -> bool:
    """Whether the CONNECT has no credentials and TLS is not in use."""
    connect: Connect | None = at.history.connect
    if connect is None or not is_plain(at.connection):
        return False
    block = connect.properties
    method = None if block is None else block.authentication_method
    return connect.user_name is None and connect.password is None and method is None
