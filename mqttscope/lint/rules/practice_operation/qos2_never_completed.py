from collections.abc import Iterator

from mqttscope.lint.rules import Confidence, Needs, Report, Rule, RuleContext, Severity, examples, shown
from mqttscope.mqtt.constants import Direction
from mqttscope.session.connection import C2S, DISCONNECTED, S2C, Connection
from mqttscope.session.inflight import RECEIVED, RELEASED, SENT, Exchange

FAILURE = 0x80
"""A side that takes leave with a reason from here on has said why it does not continue."""
_STEPS = {SENT: "PUBLISH", RECEIVED: "PUBREC", RELEASED: "PUBREL"}


class Qos2NeverCompleted(Rule):
    """A QoS 2 exchange stops half-way.

    Until it is completed the sender keeps the message and the receiver keeps the packet identifier; where the session
    ends with the connection, both forget, and the message may be lost or come twice.  Looked at when the connection
    ends; one finding for each side whose next step is missing.

    Instead, finish PUBREC, PUBREL and PUBCOMP before the connection is closed, and resume them in the next one.
    """

    code = "OPS214"
    severity = Severity.WARNING
    confidence = Confidence.LIKELY
    needs = Needs.WHOLE | Needs.BOTH_DIRECTIONS
    settings = {
        # Seconds after its PUBLISH from which on an exchange counts as stopped when only the capture ends.
        "seconds": 30,
    }

    good = examples("""
        completed
            opened; > publish a qos=2 id=7; < pubrec 7; > pubrel 7; < pubcomp 7; > disconnect; > fin
        refused
            opened; > publish a qos=2 id=7; < pubrec 7 code=0x87; > disconnect; > fin
        the server says why it does not continue
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
        both sides owe a step; the capture ends later
            opened; > publish a qos=2 id=7 & publish b qos=2 id=8; < pubrec 7; +31 > pingreq; > fin ! !
    """)

    def check_close(self, connection: Connection, at: RuleContext) -> Iterator[Report]:
        """What stands in the tables of both sides."""
        stopped: dict[Direction, list[Exchange]] = {C2S: [], S2C: []}
        for direction in (C2S, S2C):
            for one in connection.side(direction).exchanges.values():
                if one.kind == "publish" and one.qos == 2 and self._is_over(one, connection, at):
                    owes = direction if one.phase is RECEIVED else direction.opposite
                    stopped[owes].append(one)
        for sender, rows in stopped.items():
            bye = at.history.party(sender).disconnect
            if rows and (bye is None or bye.reason_code < FAILURE):
                first = rows[0]
                topic = "an unknown topic" if first.topic is None else shown(first.topic)
                more = f", and {len(rows) - 1} more" if len(rows) > 1 else ""
                step = _STEPS[first.phase]
                yield self.report(
                    "",
                    f"QoS 2 exchange id {first.packet_identifier} on {topic} stopped after {step}{more}",
                    sender=sender,
                )

    def _is_over(self, one: Exchange, connection: Connection, at: RuleContext) -> bool:
        if connection.phase is DISCONNECTED or connection.closed_how in ("fin", "reset", "port_reused"):
            return True
        return bool(at.timestamp_ns - one.timestamp_ns >= self.set["seconds"] * 1_000_000_000)
