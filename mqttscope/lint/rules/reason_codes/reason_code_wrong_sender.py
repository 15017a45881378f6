from mqttscope.lint.rules import V5, Findings, Rule, RuleContext, Severity, examples, packet_name, roles_guessed
from mqttscope.lint.rules.authentication.auth_reason_code_wrong import is_position_known
from mqttscope.mqtt.constants import reason_name
from mqttscope.mqtt.packets import Auth, Disconnect, Puback, Pubrec

_SERVER = "server"
_CLIENT = "client"
_NO_MATCHING_SUBSCRIBERS = 0x10
# The table assigns 0x9B to the server too, but 3.3.4 requires it from a client when a QoS is too high.
_DISCONNECT = dict.fromkeys(
    (0x87, 0x89, 0x8B, 0x8D, 0x8E, 0x8F, 0x9A, 0x9C, 0x9D, 0x9E, 0x9F, 0xA0, 0xA1, 0xA2), _SERVER
) | {0x04: _CLIENT}
_AUTH = {0x00: _SERVER, 0x19: _CLIENT}
_ACKNOWLEDGEMENT = {_NO_MATCHING_SUBSCRIBERS: _SERVER}
_TABLES = {Disconnect: _DISCONNECT, Auth: _AUTH, Puback: _ACKNOWLEDGEMENT, Pubrec: _ACKNOWLEDGEMENT}
_STATEMENTS: dict[type, tuple[str, ...]] = {Puback: ("MQTT-3.4.2-1",), Pubrec: ("MQTT-3.5.2-1",)}


class ReasonCodeWrongSender(Rule):
    """A reason code is sent by a side that may not use it.

    A client cannot take over a session or shut down a server, and a server has no Will.  The tables of DISCONNECT and
    AUTH define the sender of each code, and only servers can report missing subscribers.  The receiver cannot interpret
    such a code, or draws the wrong conclusion: many clients do not reconnect after 0x8E.

    Instead, use a code of your own side; both sides may use 0x80 (Unspecified error) and 0x83 (Implementation specific
    error).
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
        a normal disconnection by the client
            opened; > disconnect code=0
        the client requests its Will
            opened; > disconnect code=0x04
        the server reports a takeover
            opened; < disconnect code=0x8e
        a client refuses a QoS that it did not request
            opened; > subscribe 1 a:1; < suback 1 1; > disconnect code=0x9b
        the server reports no subscribers
            opened; > publish a qos=1 id=1; < puback 1 code=0x10
        authentication, and re-authentication
            > connect authentication_method=m; < auth code=0x18 authentication_method=m
            > auth code=0x18 authentication_method=m; < connack authentication_method=m
            > auth code=0x19 authentication_method=m; < auth code=0 authentication_method=m
    """)
    bad = examples("""
        a client that reports a takeover
            opened; > disconnect code=0x8e !reason_code
        a server that requests a Will
            opened; < disconnect code=0x04 !reason_code
        a client that reports no subscribers
            opened; > subscribe 1 #:2; < suback 1 2; < publish a qos=1 id=1; > puback 1 code=0x10 !reason_code
            < publish a qos=2 id=2; > pubrec 2 code=0x10 !reason_code
        a server that starts re-authentication
            opened; < auth code=0x19 authentication_method=m !reason_code
        a client that reports successful authentication
            opened; > auth !reason_code
    """)

    def check(self, packet: Disconnect | Auth | Puback | Pubrec, at: RuleContext) -> Findings:
        """Compare with the allowed sender of the code."""
        code = packet.reason_code or 0
        owner = _TABLES[type(packet)].get(code)
        sender = _CLIENT if at.from_client else _SERVER
        if owner is None or owner == sender or roles_guessed(at):
            return None
        if isinstance(packet, Auth) and is_position_known(at) and not (at.connection.gaps or at.history.disordered):
            return None  # AUT205 reports the expected code
        kind, name = packet_name(packet), reason_name(packet.packet_type, code, at.version)
        return self.report(
            "reason_code",
            f"{kind} 0x{code:02X} ({name}) sent by the {sender}; only the {owner} may use it",
            statements=_STATEMENTS.get(type(packet)),
        )
