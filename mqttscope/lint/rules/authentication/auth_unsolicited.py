"""AUT203."""

from mqttscope.lint.context import RuleContext
from mqttscope.lint.examples import client, conversation, examples, make_connect, opened, server
from mqttscope.lint.finding import Related, Severity
from mqttscope.lint.rule import V5, Findings, Rule
from mqttscope.mqtt.packets import Auth, Connack
from mqttscope.mqtt.properties import Properties

_METHOD = Properties(authentication_method="SCRAM-SHA-1")


class AuthUnsolicited(Rule):
    """A side uses enhanced authentication although the CONNECT named no Authentication Method.

    Only the CONNECT can choose enhanced authentication; a peer that did not ask for it cannot answer an AUTH, and
    closes the connection.

    Instead, name the method in CONNECT, or use neither AUTH nor an Authentication Method in CONNACK.
    """

    code = "AUT203"
    severity = Severity.ERROR
    versions = (V5,)
    statements = {V5: {"MQTT-4.12.0-6": "server", "MQTT-4.12.0-7": "client"}}
    looks_at = (Auth, Connack)
    when = {Connack: "properties"}

    good = examples(
        lambda: [
            conversation(
                "asked for in CONNECT",
                client(make_connect(properties=_METHOD)),
                server(Auth(0x18, _METHOD)),
                client(Auth(0x18, _METHOD)),
                server(Connack(properties=_METHOD)),
            ),
            conversation("not asked for and not used", *opened()),
        ]
    )
    bad = examples(
        lambda: [
            conversation("AUTH of the server", client(make_connect()), server(Auth(0x18, _METHOD)).marked("")),
            conversation("AUTH of the client", *opened(), client(Auth(0x19, _METHOD)).marked("")),
            conversation(
                "a method in CONNACK",
                client(make_connect()),
                server(Connack(properties=_METHOD)).marked("properties.authentication_method"),
            ),
        ]
    )

    def check(self, packet: Auth | Connack, at: RuleContext) -> Findings:
        """Compare with the CONNECT, if that could be read."""
        connect, sent = at.history.connect, at.history.connect_sent
        if connect is None or sent is None or at.history.connect_malformed is not None:
            return None
        if connect.properties is not None and connect.properties.authentication_method is not None:
            return None
        request = Related("the CONNECT", sent.packet, sent.frame, sent.timestamp_ns)
        why = "although CONNECT had no Authentication Method"
        if isinstance(packet, Auth):
            who = "the client" if at.from_client else "the server"
            return self.report("", f"{who} sent AUTH {why}", related=(request,))
        if at.from_client or packet.properties is None or packet.properties.authentication_method is None:
            return None
        method = packet.properties.authentication_method
        message = f"CONNACK has Authentication Method {method!r} {why}"
        return self.report("properties.authentication_method", message, related=(request,))
