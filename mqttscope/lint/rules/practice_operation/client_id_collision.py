from dataclasses import dataclass, field

from mqttscope.lint.rules import SECOND_NS, Confidence, Findings, Rule, RuleContext, Severity, examples
from mqttscope.lint.session_model import SessionModel
from mqttscope.mqtt import Connack, Direction
from mqttscope.session.connection import host_of

MAX_TAKEOVERS = 64
"""Maximum number of takeovers of a client that are counted, unless the setting ``takeovers`` is higher."""


@dataclass(slots=True)
class Takeover:
    """A connection takes over the session of another that is still open."""

    timestamp_ns: int
    loser: str
    """Address of the client that lost the session."""
    winner: str
    """Address of the client that took it over."""


@dataclass(slots=True)
class Takeovers:
    """The takeovers of one client."""

    recent: list[Takeover] = field(default_factory=list)
    reported_ns: int | None = None
    """Time of the last report."""


class ClientIdCollision(Rule):
    """Two devices use the same Client Identifier and disconnect each other again and again.

    Each device that connects takes over the session of the other, which then reconnects.  Messages go to the device
    that happens to be connected, and wills are published all the time.  If all connections come from one address, it
    may be one device that returns before the server notices that its old connection is dead, and that is info.
    Reported at most once within ``seconds``.

    Instead, give every device a unique Client Identifier, for example from its serial number.
    """

    code = "OPS324"
    severities = (Severity.WARNING, Severity.INFO)
    confidence = Confidence.LIKELY
    sender = Direction.SERVER_TO_CLIENT
    settled = False
    settings = {
        # Minimum number of takeovers.
        "takeovers": 3,
        # Period for these takeovers, in seconds.
        "seconds": 300,
    }
    models = (SessionModel,)
    Memory = Takeovers

    good = examples("""
        one client per identifier
            opened client=x1; @1 opened client=x2
        one connection after the other
            opened; > disconnect; > fin; @1 opened; @1 > disconnect; @1 > fin; @2 opened; @2 > disconnect; @2 > fin
            @3 opened
        taken over once
            opened; @1 opened; < disconnect code=0x8e; < fin
        a client with the same identifier but another user name
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
        """Count takeovers."""
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
        loser, winner = host_of(model.client), host_of(at.connection.client)
        limit = int(self.set["takeovers"])
        rows = [row for row in memory.recent if abs(now_ns - row.timestamp_ns) <= window_ns]
        memory.recent = [*rows, Takeover(now_ns, loser, winner)][-max(MAX_TAKEOVERS, limit) :]
        if memory.reported_ns is not None and abs(now_ns - memory.reported_ns) <= window_ns:
            return None
        pair = {loser, winner}
        between = [row for row in memory.recent if row.loser != row.winner and {row.loser, row.winner} == pair]
        if loser != winner and len(between) >= limit:
            memory.reported_ns = now_ns
            return self._report(between, f"between {loser} and {winner}: two devices share it", at)
        same = [row for row in memory.recent if row.loser == row.winner == winner]
        if loser == winner and len(same) >= limit:
            memory.reported_ns = now_ns
            return self._report(
                same, f"by connections from {winner}, before the old ones were closed", at, severity=Severity.INFO
            )
        return None

    def _report(self, rows: list[Takeover], how: str, at: RuleContext, severity: Severity | None = None) -> Findings:
        seconds = (rows[-1].timestamp_ns - rows[0].timestamp_ns) / SECOND_NS
        return self.report(
            "",
            f"Client Identifier {at.client_name!r} was taken over {len(rows)} times in {seconds:,.0f} s {how}",
            severity=severity,
            sender=Direction.CLIENT_TO_SERVER,
        )
