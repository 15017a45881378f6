from mqttscope.lint.rules import Confidence, Connection, Findings, Related, Rule, RuleContext, Severity, examples
from mqttscope.lint.shared_checks import is_plain
from mqttscope.mqtt import Connack, Connect, Direction

_NONE = "no user name, password, certificate or authentication method"


class AnonymousConnect(Rule):
    """A server accepts a client that says nothing about who it is.

    The Client Identifier proves nothing, so anybody who reaches the server can publish and subscribe.  Reported with
    the CONNACK that accepts; inside TLS nothing is reported, since the client may have shown a certificate there.

    Instead, give each device a user name and password, a certificate or another method, and switch anonymous access
    off.
    """

    code = "SEC102"
    severity = Severity.INFO
    sender = Direction.SERVER_TO_CLIENT

    good = examples("""
        a user name
            opened user_name=u
        a password alone
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
        the answer was not captured, but the client continues
            > connect; lost < connack; > publish a; > fin !
    """)

    def check(self, packet: Connack, at: RuleContext) -> Findings:
        """The CONNECT was seen, had nothing, and is accepted now."""
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
        """A capture without the server's packets: a client that continues was accepted, most likely."""
        if connection.connack_packet is not None or at.server.packets or at.client.packets < 2 or not _anonymous(at):
            return None
        return self.report(
            "",
            f"CONNECT of {at.client_name!r}: {_NONE}; the answer was not captured",
            confidence=Confidence.LIKELY,
            sender=Direction.CLIENT_TO_SERVER,
        )


def _anonymous(at: RuleContext) -> bool:
    """Whether the CONNECT is known and has nothing, and no certificate can have been shown."""
    connect: Connect | None = at.history.connect
    if connect is None or not is_plain(at.connection):
        return False
    block = connect.properties
    method = None if block is None else block.authentication_method
    return connect.user_name is None and connect.password is None and method is None
