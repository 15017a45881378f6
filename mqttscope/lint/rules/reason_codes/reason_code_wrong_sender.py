"""RSN102."""

from mqttscope.lint.context import RuleContext
from mqttscope.lint.examples import client, conversation, examples, opened, server
from mqttscope.lint.finding import Severity
from mqttscope.lint.rule import V5, Findings, Rule, packet_name
from mqttscope.lint.rules import sides_guessed
from mqttscope.lint.rules.authentication.auth_reason_code_wrong import follows
from mqttscope.mqtt.constants import reason_name
from mqttscope.mqtt.packets import Auth, Connack, Disconnect, Puback, Publish, Pubrec, Suback, Subscribe
from mqttscope.mqtt.parts import Subscription
from mqttscope.mqtt.properties import Properties

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
    looks_at = (Disconnect, Auth, Puback, Pubrec)
    when = "reason_code"
    always = (Auth,)

    good = examples(
        lambda: [
            conversation("the client says good-bye", *opened(), client(Disconnect(0x00))),
            conversation("the client wants its Will sent", *opened(), client(Disconnect(0x04))),
            conversation("the session was taken over", *opened(), server(Disconnect(0x8E))),
            conversation(
                "a client refuses a QoS that it did not ask for",
                *opened(),
                client(Subscribe(1, subscriptions=[Subscription("a", 1)])),
                server(Suback(1, reason_codes=[1])),
                client(Disconnect(0x9B)),
            ),
            conversation(
                "nobody subscribes, says the server",
                *opened(),
                client(Publish(qos=1, topic_name="a", packet_identifier=1)),
                server(Puback(1, 0x10)),
            ),
            conversation(
                "authentication, and once more",
                opened(connect=Properties(authentication_method="m"))[0],
                server(Auth(0x18, Properties(authentication_method="m"))),
                client(Auth(0x18, Properties(authentication_method="m"))),
                server(Connack(properties=Properties(authentication_method="m"))),
                client(Auth(0x19, Properties(authentication_method="m"))),
                server(Auth(0x00, Properties(authentication_method="m"))),
            ),
        ]
    )
    bad = examples(
        lambda: [
            conversation(
                "a client that takes a session over", *opened(), client(Disconnect(0x8E)).marked("reason_code")
            ),
            conversation("a server that has a Will", *opened(), server(Disconnect(0x04)).marked("reason_code")),
            conversation(
                "a client that knows of no subscribers",
                *opened(),
                client(Subscribe(1, subscriptions=[Subscription("#", 2)])),
                server(Suback(1, reason_codes=[2])),
                server(Publish(qos=1, topic_name="a", packet_identifier=1)),
                client(Puback(1, 0x10)).marked("reason_code"),
                server(Publish(qos=2, topic_name="a", packet_identifier=2)),
                client(Pubrec(2, 0x10)).marked("reason_code"),
            ),
            conversation(
                "a server that wants to authenticate again",
                *opened(),
                server(Auth(0x19, Properties(authentication_method="m"))).marked("reason_code"),
            ),
            conversation(
                "a client that lets itself in",
                *opened(),
                client(Auth()).marked("reason_code"),
            ),
        ]
    )

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
