from dataclasses import dataclass

from mqttscope.lint.rule import V3_1, V3_1_1, V5, Findings, Needs, Rule
from mqttscope.lint.rules import C2S, S2C, SECOND_NS, Confidence, Connection, Report, RuleContext, Severity, examples
from mqttscope.lint.waiting import has_closed
from mqttscope.mqtt.packets import Connack

PROOF_NS = 60 * SECOND_NS
"""Time to wait for a sign that the server has not closed the connection unnoticed."""


@dataclass(slots=True)
class Silence:
    """A silence of a client that exceeded the limit."""

    since_ns: int = 0
    """Time of the client's last bytes; 0 until the silence is long enough."""
    until_ns: int = 0
    """Deadline for the server to close, including the grace period."""
    reported: bool = False


class KeepaliveTimeoutNotEnforced(Rule):
    """A server does not close the connection of a client that is silent for one and a half times its Keep Alive.

    The client may be gone.  While the server keeps the connection open it does not publish the will, and its messages
    reach no receiver.  Servers check only at intervals, so they get a grace period of half the Keep Alive plus
    ``grace`` seconds, on top of a tolerance of a tenth (``tolerance_percent``) and one round trip.  Likely if the
    server still sends packets afterwards.  If it closes too late, or sends nothing for another minute, the finding is a
    heuristic warning: packets of the client may have been lost before the capture.  Reported once for each connection.

    Instead, close the connection, in MQTT 5.0 with DISCONNECT 0x8D (Keep Alive timeout), and publish the will.
    """

    code = "KAL503"
    severities = (Severity.ERROR, Severity.WARNING)
    confidence = Confidence.LIKELY
    statements = {
        V5: {"MQTT-3.1.2-22": "", "MQTT-3.2.2-22": ""},
        V3_1_1: {"MQTT-3.1.2-24": ""},
        V3_1: {"V31-KEEPALIVE-server": ""},
    }
    sender = S2C
    needs = Needs.OPENING | Needs.WHOLE
    settings = {"tolerance_percent": 10, "grace": 5}
    brief = {"grace": 5}  # servers check every few seconds
    Memory = Silence

    # The client's silence is a fault itself, unless the client has sent DISCONNECT or is gone.
    good = examples("""
        in time
            opened keep_alive=10; +9 > pingreq; < pingresp; > fin
        0 disables Keep Alive
            opened keep_alive=0; @1 opened client=c2 keep_alive=0; +120 @1 > fin; > pingreq; < pingresp
        the server's value applies
            opened keep_alive=10 < server_keep_alive=60; +50 > pingreq; < pingresp
        the client is gone, and the server closes within the grace period
            opened 3.1.1 keep_alive=10; +10.9 < reset; @1 opened 5.0 client=c2 keep_alive=0; +120 @1 > fin
        the client disconnects, and the server closes
            opened keep_alive=10; > disconnect; +1 < fin; @1 opened client=c2 keep_alive=0; +120 @1 > fin
    """)
    bad = examples("""
        the server answers after one minute of silence
            opened keep_alive=10; +60 > pingreq; < pingresp; > fin !
        messages are still delivered, in 3.1.1
            opened 3.1.1 keep_alive=10; +30 < publish a; > ack; @1 opened client=c2 keep_alive=0; +70 @1 > pingreq !!
        no more packets, in 3.1
            opened 3.1 keep_alive=10; @1 opened client=c2 keep_alive=0; +100 @1 > pingreq !!
        closed too late
            opened keep_alive=10; +40 < fin !
    """)

    def check(self, packet: Connack, at: RuleContext) -> Findings:
        """Start the timer."""
        if not packet.reason_code and at.history.connack is None:
            # A Server Keep Alive in this CONNACK applies from the next check on.
            at.ask(self, at.timestamp_ns + SECOND_NS)
        return None

    def check_due(self, connection: Connection, at: RuleContext) -> Findings:
        """Check when the client last sent something, and what the server has sent since."""
        silence: Silence = at.memory(self)
        keep_alive, connack = connection.keep_alive, at.history.connack_sent
        if not keep_alive or connack is None or silence.reported or at.history.client.disconnect is not None:
            return None
        if silence.since_ns:
            return self._judge(silence, connection, at)
        if has_closed(at, C2S) or has_closed(at, S2C) or at.history.server.disconnect is not None:
            return None
        last_ns = max(
            connack.timestamp_ns,
            at.client.last_timestamp_ns or 0,
            at.history.client.malformed_ns,
            at.history.client.segment_ns,
        )
        due_ns = last_ns + self._allowed_ns(keep_alive, at)
        if at.timestamp_ns < due_ns:
            at.ask(self, due_ns)
            return None
        silence.since_ns, silence.until_ns = last_ns, at.timestamp_ns
        at.ask(self, at.timestamp_ns + PROOF_NS)
        return None

    def check_close(self, connection: Connection, at: RuleContext) -> Findings:
        """Judge the silence at the end of the connection."""
        silence: Silence = at.memory(self)
        if not silence.since_ns or silence.reported:
            return None
        return self._judge(silence, connection, at)

    def _allowed_ns(self, keep_alive: int, at: RuleContext) -> int:
        connect, connack = at.history.connect_sent, at.history.connack_sent
        trip = 0 if connect is None or connack is None else connack.timestamp_ns - connect.timestamp_ns
        seconds = keep_alive * (1.5 * (1 + float(self.set["tolerance_percent"]) / 100) + 0.5) + float(self.set["grace"])
        return round(seconds * SECOND_NS) + min(max(trip, 0), keep_alive * SECOND_NS)

    def _judge(self, silence: Silence, connection: Connection, at: RuleContext) -> Report | None:
        """Look for signs that the server had not closed."""
        left = at.history.server.disconnect
        last_ns = at.server.last_timestamp_ns or 0
        if left is not None and left.timestamp_ns <= silence.until_ns:
            return None
        silence.reported = True
        sure = last_ns > silence.until_ns and (left is None or last_ns < left.timestamp_ns)
        if not sure and not self._may_be_late(silence, connection, at):
            return None
        quiet = (silence.until_ns - silence.since_ns) / SECOND_NS
        return self.report(
            "",
            f"client silent for more than {quiet:.0f} s; "
            f"the server did not close after 1.5 × {connection.keep_alive} s",
            sender=S2C,
            severity=None if sure else Severity.WARNING,
            confidence=None if sure else Confidence.HEURISTIC,
            overdue=True,
        )

    @staticmethod
    def _may_be_late(silence: Silence, connection: Connection, at: RuleContext) -> bool:
        """Whether a silent server seems to have kept the connection."""
        if connection.closed_how == "fin" and connection.closed_by == "server":
            return True  # a reset might come from a server that forgot the connection long ago
        if connection.closed_how is not None or at.timestamp_ns < silence.until_ns + PROOF_NS:
            return False
        return not (has_closed(at, C2S) or has_closed(at, S2C))
