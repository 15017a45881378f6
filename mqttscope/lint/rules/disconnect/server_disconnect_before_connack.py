from mqttscope.lint.rules import V5, Findings, Needs, Related, Rule, RuleContext, Severity, examples
from mqttscope.mqtt.constants import Direction, PacketType, reason_name
from mqttscope.mqtt.packets import Disconnect


class ServerDisconnectBeforeConnack(Rule):
    """A server sends DISCONNECT before it has accepted the connection.

    Until a successful CONNACK, the only way to refuse is a CONNACK with a reason code; clients that wait for CONNACK do
    not handle a DISCONNECT.  Reported only if the capture contains the start of the connection.

    Instead, send CONNACK with the reason code and close the connection.
    """

    code = "DIS202"
    severity = Severity.ERROR
    versions = (V5,)
    statements = {V5: {"MQTT-3.14.0-1": ""}}
    sender = Direction.SERVER_TO_CLIENT
    needs = Needs.WHOLE_SENDER

    good = examples("""
        refused with CONNACK
            opened < code=0x82; < fin
        accepted first
            opened; < disconnect code=0x8b; < fin
        a capture that lost the CONNACK
            > connect; lost < connack; < disconnect code=0x8b; < fin
        capture started in mid-connection
            midstream; < disconnect code=0x8b; < fin
    """)
    bad = examples("""
        the first answer
            > connect; < raw e0 01 82 !
        during the AUTH exchange
            > connect authentication_method=A; < auth code=0x18 authentication_method=A
            > auth code=0x18 authentication_method=A; < disconnect code=0x87 !
        after a refusal
            > connect; < connack code=0x87 & disconnect code=0x87 !
    """)

    def check(self, packet: Disconnect, at: RuleContext) -> Findings:
        """Report a DISCONNECT that no successful CONNACK precedes."""
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
            related = (Related.to("the refusal", sent),)
        return self.report("", f"the server sent DISCONNECT 0x{code:02x} ({name}) {when}", related=related)
