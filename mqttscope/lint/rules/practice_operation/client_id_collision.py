from dataclasses import dataclass, field

from mqttscope.lint.rules import SECOND_NS, Confidence, Findings, Rule, RuleContext, Severity, examples
from mqttscope.lint.session_model import SessionModel
from mqttscope.mqtt import Connack, Direction

MAX_TAKEOVERS = 64
"""Maximum number of takeovers of a client that are counted, unless the setting ``takeovers`` is higher."""


@dataclass(slots=True)
class Takeover:
    """A connection took the session from another one that was still open."""

    timestamp_ns: int
    loser: str
    """Address of the client that had it."""
    winner: str
    """Address of the one that has it now."""


@dataclass(slots=True)
class Takeovers:
    """The takeovers of one client."""

    found: list[Takeover] = field(default_factory=list)
    told_ns: int | None = None
    """When they were reported last."""


class ClientIdCollision(Rule):
    """Two devices use the same Client Identifier and throw each other out, again and again.

    Each one that connects takes the session of the other, which then connects again: messages go to whoever is
    connected at the moment, and wills are sent all the time.  Where all connections come from one address it may be one
    device that comes back before the server has noticed that its old connection is dead, and that is a note.  Reported
    once within ``seconds``.

    Instead, give every device a Client Identifier of its own, from its serial number for instance.
    """

    code = "OPS324"
    severities = (Severity.WARNING, Severity.INFO)
    confidence = Confidence.LIKELY
    sender = Direction.SERVER_TO_CLIENT
    settled = False
    settings = {
        # Takeovers from which on they are reported.
        "takeovers": 3,
        # The time in which they come.
        "seconds": 300,
    }
    models = (SessionModel,)
    Memory = Takeovers

    good = examples("""
        a client for each
            opened client=x1; @1 opened client=x2
        one after the other
            opened; > disconnect; > fin; @1 opened; @1 > disconnect; @1 > fin; @2 opened; @2 > disconnect; @2 > fin
            @3 opened
        taken over once
            opened; @1 opened; < disconnect code=0x8e; < fin
        another user's client of the same name
            opened user_name=alice; @1 opened user_name=bob; @2 opened user_name=alice; @3 opened user_name=bob
    """)
    bad = examples("""
        three times within a minute
            opened; @1 opened; < disconnect code=0x8e; < fin; @2 opened; @1 < disconnect code=0x8e; @1 < fin
            @3 opened < !; @2 < disconnect code=0x8e; @2 < fin
        the old connection is closed before the new one is accepted
            opened 3.1.1; @1 > connect; < fin; @1 < connack; @2 > connect; @1 < fin; @2 < connack; @3 > connect
            @2 < fin; @3 < connack !
    """)

    def check(self, packet: Connack, at: RuleContext) -> Findings:
        """Count a takeover."""
        connect, sent = at.history.connect, at.history.connect_sent
        if packet.reason_code or at.history.connack is not None or connect is None or sent is None:
            return None
        model = at.model(SessionModel)
        if not model.is_of(connect) or model.owner == at.key:
            return None
        thrown_out = model.ended_by == "server" and model.ended_ns >= sent.timestamp_ns
        if not model.live and not thrown_out:
            return None
        now_ns, memory = at.timestamp_ns, at.memory(self)
        window_ns = self.nanoseconds("seconds")
        loser, winner = (one.rpartition(":")[0] for one in (model.client, at.connection.client))
        limit = int(self.set["takeovers"])
        rows = [one for one in memory.found if abs(now_ns - one.timestamp_ns) <= window_ns]
        memory.found = [*rows, Takeover(now_ns, loser, winner)][-max(MAX_TAKEOVERS, limit) :]
        if memory.told_ns is not None and abs(now_ns - memory.told_ns) <= window_ns:
            return None
        between = [
            one for one in memory.found if one.loser != one.winner and {one.loser, one.winner} == {loser, winner}
        ]
        if loser != winner and len(between) >= limit:
            memory.told_ns = now_ns
            return self._told(between, f"between {loser} and {winner}: two devices share it", at)
        same = [one for one in memory.found if one.loser == one.winner == winner]
        if loser == winner and len(same) >= limit:
            memory.told_ns = now_ns
            return self._told(
                same, f"by connections from {winner}, before the old ones were closed", at, severity=Severity.INFO
            )
        return None

    def _told(self, rows: list[Takeover], how: str, at: RuleContext, severity: Severity | None = None) -> Findings:
        seconds = (rows[-1].timestamp_ns - rows[0].timestamp_ns) / SECOND_NS
        return self.report(
            "",
            f"Client Identifier {at.client_name!r} was taken over {len(rows)} times in {seconds:,.0f} s {how}",
            severity=severity,
            sender=Direction.CLIENT_TO_SERVER,
        )
