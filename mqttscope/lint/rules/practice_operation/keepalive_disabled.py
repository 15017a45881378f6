from mqttscope.lint.rules import V5, Confidence, Connection, Findings, Related, Rule, RuleContext, Severity, examples
from mqttscope.mqtt import Connack, Connect, Direction

_WHY = "Keep Alive 0, so a dead peer is never detected"


class KeepaliveDisabled(Rule):
    """A client disables Keep Alive, and the server does not set one.

    If the network fails silently, the server keeps the connection, the session and the will forever, and a client that
    only receives waits forever.  In MQTT 5.0 the rule waits for the CONNACK, which may have a Server Keep Alive.

    Instead, request a Keep Alive that suits the network, for example 60 seconds.
    """

    code = "OPS101"
    severity = Severity.WARNING

    good = examples("""
        60 seconds
            opened
        60 seconds in MQTT 3.1.1
            opened 3.1.1
        the server sets a Keep Alive
            opened keep_alive=0 < server_keep_alive=60
        refused
            opened keep_alive=0 < code=0x87; < fin
    """)
    bad = examples("""
        MQTT 5.0
            opened keep_alive=0 < !
        the server does not set a Keep Alive either
            opened keep_alive=0 < server_keep_alive=0 !
        no answer
            > connect keep_alive=0; > disconnect; > fin !
        MQTT 3.1.1
            opened 3.1.1 keep_alive=0 !keep_alive
        MQTT 3.1
            opened 3.1 keep_alive=0 !keep_alive
    """)

    def check(self, packet: Connect | Connack, at: RuleContext) -> Findings:
        """Report CONNECT before 5.0, and CONNACK in 5.0, which may have a Server Keep Alive."""
        if isinstance(packet, Connect):
            if at.version is V5 or packet.keep_alive != 0:
                return None
            return self.report("keep_alive", f"CONNECT of {at.client_name!r}: {_WHY}")
        if at.version is not V5 or packet.reason_code or at.history.connack is not None or not _is_disabled(at):
            return None
        block, sent = packet.properties, at.history.connect_sent
        if sent is None or (block is not None and block.server_keep_alive):
            return None
        return self.report(
            "",
            f"CONNECT of {at.client_name!r}: {_WHY}; the server sets no Server Keep Alive",
            related=(Related.to("the CONNECT", sent),),
            sender=Direction.CLIENT_TO_SERVER,
        )

    def check_close(self, connection: Connection, at: RuleContext) -> Findings:
        """Report a CONNECT of 5.0 without a captured CONNACK."""
        if at.version is not V5 or connection.connack_packet is not None or not _is_disabled(at):
            return None
        return self.report(
            "",
            f"CONNECT of {at.client_name!r}: {_WHY}; the capture has no CONNACK",
            confidence=Confidence.LIKELY,
            sender=Direction.CLIENT_TO_SERVER,
        )


def _is_disabled(at: RuleContext) -> bool:
    connect = at.history.connect
    return connect is not None and connect.keep_alive == 0
