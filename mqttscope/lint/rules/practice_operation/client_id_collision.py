"""OPS324."""

from dataclasses import dataclass, field

from mqttscope.lint.context import RuleContext
from mqttscope.lint.examples import client, closes, conversation, examples, on, opened, server
from mqttscope.lint.finding import Confidence, Severity
from mqttscope.lint.rule import V3_1_1, Findings, Rule
from mqttscope.lint.session_model import SECOND_NS, TAKEN_OVER, SessionModel
from mqttscope.mqtt.constants import Direction
from mqttscope.mqtt.packets import Connack, Disconnect

MAX_TAKEOVERS = 64
"""Takeovers of a client that are counted; more within the time change nothing."""
_KICKED = (server(Disconnect(reason_code=TAKEN_OVER)), closes("server"))


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
    severity = Severity.WARNING
    severities = (Severity.WARNING, Severity.INFO)
    confidence = Confidence.LIKELY
    looks_at = Connack
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

    good = examples(
        lambda: [
            conversation(
                "a client for each",
                *opened(client_identifier="x1"),
                *on(1, *opened(client_identifier="x2")),
            ),
            conversation(
                "one after the other",
                *opened(),
                client(Disconnect()),
                closes("client"),
                *on(1, *opened(), client(Disconnect()), closes("client")),
                *on(2, *opened(), client(Disconnect()), closes("client")),
                *on(3, *opened()),
            ),
            conversation("taken over once", *opened(), *on(1, *opened()), *_KICKED),
            conversation(
                "another user's client of the same name",
                *opened(user_name="alice"),
                *on(1, *opened(user_name="bob")),
                *on(2, *opened(user_name="alice")),
                *on(3, *opened(user_name="bob")),
            ),
        ]
    )
    bad = examples(
        lambda: [
            conversation(
                "three times within a minute",
                *opened(),
                *on(1, *opened()),
                *_KICKED,
                *on(2, *opened()),
                *on(1, *_KICKED),
                *on(3, opened()[0], opened()[1].marked("")),
                *on(2, *_KICKED),
            ),
            conversation(
                "the old connection is closed before the new one is accepted",
                *opened(V3_1_1),
                *on(1, opened(V3_1_1)[0]),
                closes("server"),
                *on(1, opened(V3_1_1)[1]),
                *on(2, opened(V3_1_1)[0]),
                *on(1, closes("server")),
                *on(2, opened(V3_1_1)[1]),
                *on(3, opened(V3_1_1)[0]),
                *on(2, closes("server")),
                *on(3, opened(V3_1_1)[1].marked("")),
            ),
        ]
    )

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
        window_ns = round(float(self.set["seconds"]) * SECOND_NS)
        loser, winner = (one.rpartition(":")[0] for one in (model.client, at.connection.client))
        rows = [one for one in memory.found if abs(now_ns - one.timestamp_ns) <= window_ns][-MAX_TAKEOVERS + 1 :]
        memory.found = [*rows, Takeover(now_ns, loser, winner)]
        if memory.told_ns is not None and abs(now_ns - memory.told_ns) <= window_ns:
            return None
        limit = int(self.set["takeovers"])
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
