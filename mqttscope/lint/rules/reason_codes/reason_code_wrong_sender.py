from mqttscope.lint.rules import V5, Findings, Rule, RuleContext, Severity, examples, packet_name, sides_guessed
from mqttscope.lint.rules.authentication.auth_reason_code_wrong import follows
from mqttscope.mqtt.constants import reason_name
from mqttscope.mqtt.packets import Auth, Disconnect, Puback, Pubrec

_SERVER = "server"
_CLIENT = "client"
_NO_MATCHING_SUBSCRIBERS = 0x10
# 0x9B is the server's too by the table, but 3.3.4 tells a client to send it when a QoS is too high for it.
_DISCONNECT = dict.fromkeys(
    (0x87, 0x89, 0x8B, 0x8D, 0x8E, 0x8F, 0x9A, 0x9C, 0x9D, 0x9E, 0x9F, 0xA0, 0xA1, 0xA2), _SERVER
) | {0x04: _CLIENT}
_AUTH = {0x00: _SERVER, 0x19: _CLIENT}
_ACKNOWLEDGEMENT = {_NO_MATCHING_SUBSCRIBERS: _SERVER}
_TABLES = {Disconnect: _DISCONNECT, Auth: _AUTH, Puback: _ACKNOWLEDGEMENT, Pubrec: _ACKNOWLEDGEMENT}
_STATEMENTS: dict[type, tuple[str, ...]] = {Puback: ("MQTT-3.4.2-1",), Pubrec: ("MQTT-3.5.2-1",)}


class ReasonCodeWrongSender(Rule):
    """A reason code is used by the side that the table does not give it to.

    A client cannot take a session over or shut a server down, and a server has no Will to be sent; the tables of
    DISCONNECT and AUTH say for each code whose it is, and only servers know that nobody subscribes.  The receiver can
    make no sense of such a code, or draws a wrong conclusion: many clients do not connect again after 0x8E.

    Instead, use a code of one's own side; 0x80 (Unspecified error) and 0x83 (Implementation specific error) are both's.
    """

    code = "RSN102"
    severity = Severity.ERROR
    reason_code = 0x82
    versions = (V5,)
    statements = {V5: {"V5-DISCONNECT-sender": "disconnect", "V5-AUTH-sender": "auth"}}
    also = {V5: ("MQTT-3.4.2-1", "MQTT-3.5.2-1", "MQTT-3.14.2-1", "MQTT-3.15.2-1")}
    when = "reason_code"
    always = (Auth,)

    good = examples("""
        the client says good-bye
            opened; > disconnect code=0
        the client wants its Will sent
            opened; > disconnect code=0x04
        the session was taken over
            opened; < disconnect code=0x8e
        a client refuses a QoS that it did not ask for
            opened; > subscribe 1 a:1; < suback 1 1; > disconnect code=0x9b
        nobody subscribes, says the server
            opened; > publish a qos=1 id=1; < puback 1 code=0x10
        authentication, and once more
            > connect authentication_method=m; < auth code=0x18 authentication_method=m
            > auth code=0x18 authentication_method=m; < connack authentication_method=m
            > auth code=0x19 authentication_method=m; < auth code=0 authentication_method=m
    """)
    bad = examples("""
        a client that takes a session over
            opened; > disconnect code=0x8e !reason_code
        a server that has a Will
            opened; < disconnect code=0x04 !reason_code
        a client that knows of no subscribers
            opened; > subscribe 1 #:2; < suback 1 2; < publish a qos=1 id=1; > puback 1 code=0x10 !reason_code
            < publish a qos=2 id=2; > pubrec 2 code=0x10 !reason_code
        a server that wants to authenticate again
            opened; < auth code=0x19 authentication_method=m !reason_code
        a client that lets itself in
            opened; > auth !reason_code
    """)

    def check(self, packet: Disconnect | Auth | Puback | Pubrec, at: RuleContext) -> Findings:
        """Compare with the column of senders."""
        code = packet.reason_code or 0
        owner = _TABLES[type(packet)].get(code)
        sender = _CLIENT if at.from_client else _SERVER
        if owner is None or owner == sender or sides_guessed(at):
            return None
        if isinstance(packet, Auth) and follows(at) and not (at.connection.gaps or at.history.disordered):
            return None  # AUT205 knows what would have been right there
        kind, name = packet_name(packet), reason_name(packet.packet_type, code, at.version)
        return self.report(
            "reason_code",
            f"{kind} 0x{code:02X} ({name}) sent by the {sender}, only the {owner} uses it",
            statements=_STATEMENTS.get(type(packet)),
        )
