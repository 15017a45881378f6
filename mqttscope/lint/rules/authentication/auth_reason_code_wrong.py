from mqttscope.lint.rules import V5, Findings, Needs, Rule, RuleContext, Severity, examples
from mqttscope.lint.rules.authentication.packet_during_auth import saw_all
from mqttscope.mqtt.constants import PacketType, reason_name
from mqttscope.mqtt.packets import Auth

_SUCCESS, _CONTINUE, _AGAIN = 0x00, 0x18, 0x19


class AuthReasonCodeWrong(Rule):
    """An AUTH has a reason code that its sender may not use at this point.

    Before the CONNACK both sides continue with 0x18, and success is told by the CONNACK.  Afterwards only the client
    can start again, with 0x19; the server then continues with 0x18 or ends with 0x00, and never starts by itself.

    Instead, follow that order.
    """

    code = "AUT205"
    severity = Severity.ERROR
    versions = (V5,)
    statements = {V5: {"MQTT-4.12.0-2": "server", "MQTT-4.12.0-3": "client"}}
    also = {V5: ("MQTT-4.12.1-1",)}
    needs = Needs.WHOLE

    good = examples("""
        a whole exchange and another
            > connect authentication_method=A; < auth code=0x18 authentication_method=A
            > auth code=0x18 authentication_method=A; < auth code=0x18 authentication_method=A
            > auth code=0x18 authentication_method=A; < connack authentication_method=A
            > auth code=0x19 authentication_method=A; < auth code=0x18 authentication_method=A
            > auth code=0x18 authentication_method=A; < auth code=0 authentication_method=A
            > auth code=0x19 authentication_method=A; < auth code=0 authentication_method=A
    """)
    bad = examples("""
        0x19 before CONNACK
            > connect authentication_method=A; < auth code=0x18 authentication_method=A
            > auth code=0x19 authentication_method=A !reason_code
        0x00 before CONNACK
            > connect authentication_method=A; < auth code=0 authentication_method=A !reason_code
        0x18 where 0x19 starts
            opened authentication_method=A < authentication_method=A
            > auth code=0x18 authentication_method=A !reason_code
        0x19 while it is running
            opened authentication_method=A < authentication_method=A; > auth code=0x19 authentication_method=A
            < auth code=0x18 authentication_method=A; > auth code=0x19 authentication_method=A !reason_code
        success is the server's word
            opened authentication_method=A < authentication_method=A; > auth code=0x19 authentication_method=A
            < auth code=0x18 authentication_method=A; > auth code=0 authentication_method=A !reason_code
        the server starts
            opened authentication_method=A < authentication_method=A
            < auth code=0x18 authentication_method=A !reason_code
        the server starts with 0x19
            opened authentication_method=A < authentication_method=A
            < auth code=0x19 authentication_method=A !reason_code
        one answer too many
            opened authentication_method=A < authentication_method=A; > auth code=0x19 authentication_method=A
            < auth code=0 authentication_method=A & auth code=0 authentication_method=A !reason_code
    """)

    def check(self, packet: Auth, at: RuleContext) -> Findings:
        """Compare with the place in the exchange."""
        if not follows(at):
            return None
        code = packet.reason_code or _SUCCESS
        if at.history.connack is None:
            wanted: tuple[int, ...] = (_CONTINUE,)
            when = "before CONNACK"
        elif at.from_client:
            running = _running(at)
            wanted, when = ((_CONTINUE,), "during re-authentication") if running else ((_AGAIN,), "after CONNACK")
        elif _running(at):
            wanted, when = (_CONTINUE, _SUCCESS), "during re-authentication"
        else:
            wanted, when = (), "after CONNACK"
        if code in wanted:
            return None
        who = "client" if at.from_client else "server"
        expected = " or ".join(f"0x{one:02x}" for one in wanted)
        expected = f"expected {expected}" if expected else "only the client starts to re-authenticate"
        return self.report(
            "" if packet.reason_code is None else "reason_code",
            f"AUTH 0x{code:02x} ({reason_name(PacketType.AUTH, code, V5)}) from the {who} {when}; {expected}",
        )


def follows(at: RuleContext) -> bool:
    """Whether it is known where in the exchange an AUTH stands, so that its reason code can be compared with that."""
    history = at.history
    connect, connack = history.connect, history.connack
    block = None if connect is None else connect.properties
    if block is None or block.authentication_method is None or history.connack_malformed is not None:
        return False
    if not at.connection.handshake_seen:
        return False  # which of two packets was first is certain only from the first byte on
    if connack is None:
        return not at.from_client or saw_all(at)
    return not connack.reason_code


def _running(at: RuleContext) -> bool:
    """Whether the client has begun to re-authenticate and the server has not ended it."""
    client, server, accepted = at.history.client.auth, at.history.server.auth, at.history.connack_sent
    if client is None or accepted is None or client.packet < accepted.packet:
        return False
    return server is None or server.packet < client.packet or server.reason_code != _SUCCESS
