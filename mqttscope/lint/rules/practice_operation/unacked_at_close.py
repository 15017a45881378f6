from collections.abc import Iterator

from mqttscope.lint.rules import C2S, S2C, V5, Connection, Needs, Report, Rule, RuleContext, Severity, examples
from mqttscope.lint.shared_checks import count
from mqttscope.session.connection import DISCONNECTED

MAX_SHOWN = 8


class UnackedAtClose(Rule):
    """A connection ends while messages of QoS 1 or 2 wait for their acknowledgement.

    They are resent on the next connection of the session.  If the client itself disconnects and the session ends with
    the connection, its messages are given up, and that is a warning: it is unknown whether they arrived.

    Instead, wait for the acknowledgements before DISCONNECT, or keep the session.
    """

    code = "OPS215"
    severity = Severity.INFO
    severities = (Severity.WARNING, Severity.INFO)
    needs = Needs.WHOLE | Needs.BOTH_DIRECTIONS

    good = examples("""
        acknowledged
            opened; > publish a qos=1 id=7; < puback 7; > disconnect; > fin
        QoS 0
            opened; > publish a; > disconnect; > fin
        the capture ends first
            opened; > publish a qos=1 id=7
    """)
    bad = examples("""
        the client gives up its message
            opened; > publish a qos=1 id=7; > disconnect; > fin !
        the session is kept
            opened resume session_expiry_interval=60; > publish a qos=1 id=7; > disconnect; > fin !
        messages of both sides, in MQTT 3.1.1
            opened 3.1.1; > subscribe 1 b:1; < suback 1 1; < publish b qos=1 id=1; > publish a qos=1 id=7; < reset ! !
    """)

    def check_close(self, connection: Connection, at: RuleContext) -> Iterator[Report]:
        """Report the unacknowledged messages of both sides."""
        if connection.phase is not DISCONNECTED and connection.closed_how not in ("fin", "reset", "port_reused"):
            return
        if at.version is V5:
            ends = connection.session_expiry_interval == 0
        else:
            ends = connection.clean_start is True
        given_up = ends and connection.disconnect_by == "client"
        for sender in (C2S, S2C):
            rows = [exchange for exchange in connection.side(sender).exchanges.values() if exchange.kind == "publish"]
            if not rows:
                continue
            numbers = ", ".join(str(exchange.packet_identifier) for exchange in rows[:MAX_SHOWN])
            dots = ", ..." if len(rows) > MAX_SHOWN else ""
            owner = "" if sender is C2S else " of the server"
            lost = sender is C2S and given_up
            yield self.report(
                "",
                f"connection of {at.client_name!r} ended with {count(len(rows), 'message')}{owner} unacknowledged "
                f"(ids {numbers}{dots})" + (", given up with the session" if lost else ""),
                severity=Severity.WARNING if lost else None,
                sender=sender,
            )
