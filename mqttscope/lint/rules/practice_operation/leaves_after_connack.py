from dataclasses import dataclass, field

from mqttscope.lint.rules import Confidence, Connection, Findings, Rule, RuleContext, Severity, examples
from mqttscope.lint.shared_checks import duration
from mqttscope.mqtt import Connack, Direction, Disconnect
from mqttscope.mqtt.wire import write_variable_byte_integer


@dataclass(slots=True)
class Visits:
    """Consecutive connections of a client without any activity."""

    begun_ns: list[int] = field(default_factory=list)
    """Times of their CONNACK packets."""
    longest_ns: int = 0
    """Longest time from a CONNACK to the DISCONNECT after it."""


class LeavesAfterConnack(Rule):
    """A client sends DISCONNECT at once after each CONNACK that accepts it, and nothing else, again and again.

    A client that cannot read its CONNACK gives up so, and tries again: in a CONNACK with an unusual form, such as a
    Remaining Length in more bytes than it needs, this is named.  Programs that look whether the broker is there do the
    same on purpose, and mostly less often: without an unusual form and with longer pauses than ``pause`` it is a note.
    Reported at the connection with the number ``connections`` in a row.

    Instead, look in the log of the client why it leaves; write a Remaining Length in as few bytes as possible.
    """

    code = "OPS331"
    severities = (Severity.WARNING, Severity.INFO)
    confidence = Confidence.HEURISTIC
    sender = Direction.CLIENT_TO_SERVER
    settings = {
        # Connections in a row.
        "connections": 3,
        # Time in seconds from CONNACK to DISCONNECT.
        "within": 1,
        # Seconds between two connections, beyond which it is rather a program that looks whether the broker is there.
        "pause": 10,
    }
    Memory = Visits

    good = examples("""
        twice
            for 0..1: +5 @{n} opened 3.1.1; @{n} > disconnect; @{n} > fin
        one message each time
            for 0..4: +5 @{n} opened 3.1.1; @{n} > publish a; @{n} > disconnect; @{n} > fin
        it waits for what its session has
            for 0..4: +5 @{n} opened 3.1.1; +2 @{n} > disconnect; @{n} > fin
        once in between it stays
            for 0..1: +5 @{n} opened 3.1.1; @{n} > disconnect; @{n} > fin
            +5 @2 opened 3.1.1; @2 > fin
            for 3..4: +5 @{n} opened 3.1.1; @{n} > disconnect; @{n} > fin
        refused each time
            for 0..4: +5 @{n} opened 3.1.1 < code=0x05; @{n} > disconnect; @{n} > fin
    """)
    bad = examples("""
        three times
            for 0..1: +5 @{n} opened 3.1.1; @{n} > disconnect; @{n} > fin
            +5 @2 opened 3.1.1; @2 > disconnect !; @2 > fin
        a CONNACK with a length in two bytes
            for 0..1: +60 @{n} > connect 3.1.1; @{n} < raw 20 8200 0000; @{n} > disconnect; @{n} > fin
            +60 @2 > connect 3.1.1; @2 < raw 20 8200 0000; @2 > disconnect !; @2 > fin
        a program that looks whether the broker is there: a note
            for 0..1: +30 @{n} opened 3.1.1; @{n} > disconnect; @{n} > fin
            +30 @2 opened 3.1.1; @2 > disconnect !; @2 > fin
    """)

    def check(self, packet: Disconnect, at: RuleContext) -> Findings:
        """Count a connection without any activity of the client."""
        visits, connack, history = at.memory(self), at.history.connack_sent, at.history
        accepted = history.connack
        is_bare = sum(history.client.counts) == 1 and sum(history.server.counts) == 1 and not at.sender.gapped
        if accepted is None or connack is None or accepted.reason_code or packet.reason_code or not is_bare:
            visits.begun_ns.clear()
            return None
        stayed_ns = at.timestamp_ns - connack.timestamp_ns
        if not 0 <= stayed_ns <= self.nanoseconds("within"):
            visits.begun_ns.clear()
            return None
        limit = max(2, int(self.set["connections"]))
        visits.longest_ns = max(visits.longest_ns, stayed_ns) if visits.begun_ns else stayed_ns
        visits.begun_ns = [*visits.begun_ns, connack.timestamp_ns][-limit - 1 :]
        if len(visits.begun_ns) != limit:
            return None
        pause_ns = (visits.begun_ns[-1] - visits.begun_ns[0]) // (limit - 1)
        odd = _unusual(accepted)
        text = f"{at.client_name!r} sends nothing but DISCONNECT, within {duration(visits.longest_ns)} of its CONNACK,"
        return self.report(
            "",
            f"{text} on {limit} connections in a row{odd}",
            severity=None if odd or pause_ns <= self.nanoseconds("pause") else Severity.INFO,
        )

    def check_close(self, connection: Connection, at: RuleContext) -> Findings:
        """A connection without DISCONNECT interrupts the row."""
        if at.history.connack is not None and at.history.client.disconnect is None:
            at.memory(self).begun_ns.clear()
        return None


def _unusual(connack: Connack) -> str:
    """The unusual form of a CONNACK, as a clause."""
    raw = connack.raw
    written = next((at for at in range(1, 5) if at < len(raw) and raw[at] < 0x80), 0)
    needed = len(write_variable_byte_integer(len(raw) - 1 - written))
    if written <= needed:
        return ""
    return f"; the CONNACK has its Remaining Length in {written} bytes, where {needed} would do"
