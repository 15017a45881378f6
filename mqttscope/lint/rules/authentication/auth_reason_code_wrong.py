from mqttscope.lint.rules import V5, Findings, Needs, Rule, RuleContext, Severity, examples
from mqttscope.lint.rules.authentication.packet_during_auth import is_fully_captured
from mqttscope.mqtt.constants import PacketType, reason_name
from mqttscope.mqtt.packets import Auth

_SUCCESS, _CONTINUE, _AGAIN = 0x00, 0x18, 0x19


class AuthReasonCodeWrong(Rule):
    """An AUTH has a reason code that its sender may not use at this point.

    Before the CONNACK both sides continue with 0x18, and the CONNACK itself reports success.  After it only the client
    can start again, with 0x19; the server then continues with 0x18 or ends with 0x00, and never starts an exchange.

    Instead, follow this order.
    """

    code = "AUT205"
    severity = Severity.ERROR
    versions = (V5,)
    statements = {V5: {"MQTT-4.12.0-2": "server", "MQTT-4.12.0-3": "client"}}
    also = {V5: ("MQTT-4.12.1-1",)}
    needs = Needs.WHOLE

    good = examples("""
        a complete exchange and another
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
        0x18 but only 0x19 may start
            opened authentication_method=A < authentication_method=A
            > auth code=0x18 authentication_method=A !reason_code
        0x19 during re-authentication
            opened authentication_method=A < authentication_method=A; > auth code=0x19 authentication_method=A
            < auth code=0x18 authentication_method=A; > auth code=0x19 authentication_method=A !reason_code
        0x00 from the client
            opened authentication_method=A < authentication_method=A; > auth code=0x19 authentication_method=A
            < auth code=0x18 authentication_method=A; > auth code=0 authentication_method=A !reason_code
        the server starts with 0x18
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
        """Compare with the codes allowed at this point of the exchange."""
        if not is_position_known(at):
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
        expected = " or ".join(f"0x{allowed:02x}" for allowed in wanted)
        expected = f"expected {expected}" if expected else "only the client may start re-authentication"
        return self.report(
            "" if packet.reason_code is None else "reason_code",
            f"AUTH 0x{code:02x} ({reason_name(PacketType.AUTH, code, V5)}) from the {who} {when}; {expected}",
        )


def is_position_known(at: RuleContext) -> bool:
    """Whether the position of an AUTH in the exchange is known, so that its reason code can be checked."""
    history = at.history
    connect, connack = history.connect, history.connack
    block = None if connect is None else connect.properties
    if block is None or block.authentication_method is None or history.connack_malformed is not None:
        return False
    if not at.connection.handshake_seen:
        return False  # the order of two packets is certain only if the capture has the start of the connection
    if connack is None:
        return not at.from_client or is_fully_captured(at)
    return not connack.reason_code


def _running(at: RuleContext) -> bool:
    """Whether the client has started re-authentication and the server has not ended it."""
    client, server, accepted = at.history.client.auth, at.history.server.auth, at.history.connack_sent
    if client is None or accepted is None or client.packet < accepted.packet:
        return False
    return server is None or server.packet < client.packet or server.reason_code != _SUCCESS
