from mqttscope.lint.rules import C2S, S2C, V5, Connection, Findings, Rule, RuleContext, Severity, examples
from mqttscope.session.connection import DISCONNECTED, REFUSED


class CloseWithoutDisconnect(Rule):
    """A side closes the connection without a DISCONNECT.

    The server treats it as a failure and publishes the will.  When a server of MQTT 5.0 closes silently, its client
    cannot decide whether to reconnect.  Mobile clients do this all the time; before MQTT 5.0 servers cannot send
    DISCONNECT.

    Instead, send DISCONNECT with the reason before closing.
    """

    code = "OPS216"
    severity = Severity.INFO

    good = examples("""
        with DISCONNECT
            opened; > disconnect; > fin
        the server closes after the client's DISCONNECT
            opened; > disconnect; < fin
        the server sends DISCONNECT
            opened; < disconnect code=0x8b; < fin
        the client closes after the server's DISCONNECT
            opened; < disconnect code=0x8b; > fin
        a server of MQTT 3.1.1
            opened 3.1.1; < fin
        after a refusal
            opened < code=0x87; < fin
        before any answer
            > connect; < fin
        the capture ends first
            opened
    """)
    bad = examples("""
        by the client
            opened; > fin !
        by the client, with a reset, in MQTT 3.1.1
            opened 3.1.1; > reset !
        by the server, after a second CONNECT
            opened; > connect; < fin !
        by the server
            opened; < fin !
    """)

    def check_close(self, connection: Connection, at: RuleContext) -> Findings:
        """Report a close that no DISCONNECT precedes."""
        how, who = connection.closed_how, connection.closed_by
        if how not in ("fin", "reset") or who is None or connection.phase in (REFUSED, DISCONNECTED):
            return None
        by_client = who == "client"
        if at.history.connect_sent is not None and at.history.connack is None:
            return None
        side = at.client if by_client else at.server
        if side.gapped or not side.packets or at.history.client.disconnect or at.history.server.disconnect:
            return None
        if not by_client and at.version is not V5:
            return None
        name = repr(at.client_name) if by_client else f"the server of {at.client_name!r}"
        return self.report(
            "",
            f"{name} closed the connection without DISCONNECT ({'FIN' if how == 'fin' else 'RST'})",
            sender=C2S if by_client else S2C,
        )
