"""DIS202."""

from mqttscope.lint.context import RuleContext
from mqttscope.lint.examples import (
    client,
    closes,
    conversation,
    examples,
    hexadecimal,
    lost,
    make_connect,
    opened,
    server,
)
from mqttscope.lint.finding import Related, Severity
from mqttscope.lint.rule import V5, Findings, Needs, Rule
from mqttscope.mqtt.constants import Direction, PacketType, reason_name
from mqttscope.mqtt.packets import Auth, Connack, Disconnect
from mqttscope.mqtt.properties import Properties

_METHOD = Properties(authentication_method="A")


class ServerDisconnectBeforeConnack(Rule):
    """A server sends DISCONNECT before it has accepted the connection.

    Until a CONNACK with success the only way to refuse is a CONNACK with a reason code; clients that wait for it do
    not understand a DISCONNECT.  Found only where the capture has the beginning of the connection.

    Instead, send CONNACK with the reason code and close the connection.
    """

    code = "DIS202"
    severity = Severity.ERROR
    versions = (V5,)
    statements = {V5: {"MQTT-3.14.0-1": ""}}
    looks_at = Disconnect
    sender = Direction.SERVER_TO_CLIENT
    needs = Needs.WHOLE_SENDER

    good = examples(
        lambda: [
            conversation(
                "refused with CONNACK", client(make_connect()), server(Connack(reason_code=0x82)), closes("server")
            ),
            conversation("accepted before", *opened(), server(Disconnect(0x8B)), closes("server")),
            conversation(
                "a capture that lost the CONNACK",
                client(make_connect()),
                lost(server(Connack())),
                server(Disconnect(0x8B)),
                closes("server"),
            ),
            conversation("a capture that joins later", server(Disconnect(0x8B)), closes("server"), handshake=False),
        ]
    )
    bad = examples(
        lambda: [
            conversation("the first answer", client(make_connect()), server(hexadecimal("e0 01 82")).marked("")),
            conversation(
                "during the exchange of AUTH",
                client(make_connect(properties=_METHOD)),
                server(Auth(0x18, _METHOD)),
                client(Auth(0x18, _METHOD)),
                server(Disconnect(0x87)).marked(""),
            ),
            conversation(
                "after a refusal",
                client(make_connect()),
                server(Connack(reason_code=0x87), Disconnect(0x87)).marked(""),
            ),
        ]
    )

    def check(self, packet: Disconnect, at: RuleContext) -> Findings:
        """No CONNACK with success came before."""
        history = at.history
        connack, sent = history.connack, history.connack_sent
        if not at.connection.handshake_seen or history.connect_sent is None or history.connack_malformed is not None:
            return None
        if connack is not None and connack.reason_code < 0x80:
            return None
        code = packet.reason_code or 0
        name = reason_name(PacketType.DISCONNECT, code, V5)
        related: tuple[Related, ...] = ()
        when = "before any CONNACK"
        if connack is not None and sent is not None:
            when = f"after the refusing CONNACK 0x{connack.reason_code:02x}"
            related = (Related("the refusal", sent.packet, sent.frame, sent.timestamp_ns),)
        return self.report("", f"the server sent DISCONNECT 0x{code:02x} ({name}) {when}", related=related)
