from collections.abc import Iterator

from mqttscope.lint.rules import Confidence, Needs, Report, Rule, RuleContext, Severity, examples, shown
from mqttscope.mqtt.constants import Direction
from mqttscope.session.connection import C2S, DISCONNECTED, S2C, Connection
from mqttscope.session.inflight import RECEIVED, RELEASED, SENT, Exchange

FAILURE = 0x80
"""Lowest DISCONNECT reason code that explains why a side stops."""
_STEPS = {SENT: "PUBLISH", RECEIVED: "PUBREC", RELEASED: "PUBREL"}


class Qos2NeverCompleted(Rule):
    """A QoS 2 exchange stops halfway.

    Until it is completed, the sender keeps the message and the receiver keeps the packet identifier.  If the session
    ends with the connection, both discard them, and the message may be lost or delivered twice.  Checked when the
    connection ends; one finding for each side that owes the next packet.

    Instead, complete PUBREC, PUBREL and PUBCOMP before you close the connection, or resume them on the next one.
    """

    code = "OPS214"
    severity = Severity.WARNING
    confidence = Confidence.LIKELY
    needs = Needs.WHOLE | Needs.BOTH_DIRECTIONS
    settings = {
        # Seconds after its PUBLISH: an exchange counts as stopped after this time if only the capture ends.
        "seconds": 30,
    }

    good = examples("""
        completed
            opened; > publish a qos=2 id=7; < pubrec 7; > pubrel 7; < pubcomp 7; > disconnect; > fin
        refused
            opened; > publish a qos=2 id=7; < pubrec 7 code=0x87; > disconnect; > fin
        the server sends DISCONNECT with a reason
            opened; > publish a qos=2 id=7; < disconnect code=0x97; < fin
        the capture ends first
            opened; > publish a qos=2 id=7; < pubrec 7; > pingreq
        the capture lost bytes
            opened; > publish a qos=2 id=7; < pubrec 7; lost > pubrel 7; < pubcomp 7; > pingreq; < pingresp; > fin
    """)
    bad = examples("""
        no PUBREL
            opened; > publish a qos=2 id=7; < pubrec 7; > disconnect; > fin !
        no PUBCOMP, in MQTT 3.1.1
            opened 3.1.1; > publish a qos=2 id=7; < pubrec 7; > pubrel 7; < reset !
        both sides owe a packet, and the capture ends later
            opened; > publish a qos=2 id=7 & publish b qos=2 id=8; < pubrec 7; +31 > pingreq; > fin ! !
    """)

    def check_close(self, connection: Connection, at: RuleContext) -> Iterator[Report]:
        """Report the open exchanges of both sides."""
        stopped: dict[Direction, list[Exchange]] = {C2S: [], S2C: []}
        for direction in (C2S, S2C):
            for exchange in connection.side(direction).exchanges.values():
                if exchange.kind == "publish" and exchange.qos == 2 and self._is_over(exchange, connection, at):
                    owes = direction if exchange.phase is RECEIVED else direction.opposite
                    stopped[owes].append(exchange)
        for sender, rows in stopped.items():
            disconnect = at.history.party(sender).disconnect
            if rows and (disconnect is None or disconnect.reason_code < FAILURE):
                first = rows[0]
                topic = "an unknown topic" if first.topic is None else shown(first.topic)
                more = f", and {len(rows) - 1} more" if len(rows) > 1 else ""
                step = _STEPS[first.phase]
                yield self.report(
                    "",
                    f"QoS 2 exchange id {first.packet_identifier} on {topic} stopped after {step}{more}",
                    sender=sender,
                )

    def _is_over(self, exchange: Exchange, connection: Connection, at: RuleContext) -> bool:
        if connection.phase is DISCONNECTED or connection.closed_how in ("fin", "reset", "port_reused"):
            return True
        return bool(at.timestamp_ns - exchange.timestamp_ns >= self.set["seconds"] * 1_000_000_000)
