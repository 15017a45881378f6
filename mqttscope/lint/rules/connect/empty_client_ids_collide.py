from dataclasses import dataclass

from mqttscope.lint.context import SECOND_NS, ConnectionKey, RuleContext
from mqttscope.lint.live_clients import TAKEN_OVER, LiveClients, UnnamedConnection
from mqttscope.lint.rules import V3_1_1, V5, Confidence, Connection, Findings, Needs, Rule, Severity, examples
from mqttscope.mqtt.constants import Direction
from mqttscope.session.history import NEVER_NS

OFTEN = 2
"""Minimum number of collisions in a row: a single close may be chance."""


@dataclass(slots=True)
class ClosedChain:
    """Connections that the server closed one after the other, each when the next client connected."""

    number: int = 0
    by: ConnectionKey | None = None
    """The connection that was opened last."""


class EmptyClientIdsCollide(Rule):
    """A server closes a client with an empty Client Identifier when another such client connects.

    An empty identifier asks the server for a unique one.  A server that treats it as an ordinary identifier sees one
    client that reconnects, and closes the first connection.  DISCONNECT 0x8E proves it.  Without it, a close within
    ``window`` seconds after the other CONNECT, for no other visible reason, is a warning, and an error if it happens
    repeatedly.

    Instead, give each client with an empty identifier a session of its own.
    """

    code = "CON432"
    severities = (Severity.ERROR, Severity.WARNING)
    confidence = Confidence.LIKELY
    versions = (V3_1_1, V5)
    statements = {V3_1_1: {"MQTT-3.1.3-6": ""}}
    also = {V5: ("MQTT-3.1.3-6",)}
    needs = Needs.OPENING | Needs.WHOLE
    settings = {"window": 1}
    models = (LiveClients,)
    Memory = ClosedChain

    good = examples("""
        both stay connected
            opened 3.1.1 client=-; @1 opened client=-; +20 > nothing; < fin
        the client disconnects
            opened 3.1.1 client=-; @1 opened client=-; > disconnect; < fin
        the client closes
            opened 3.1.1 client=-; @1 opened client=-; > fin
        the other client is refused
            opened 3.1.1 client=-; @1 opened client=- < code=0x05; < fin
        the other client has an identifier
            opened 3.1.1 client=-; @1 opened client=c2; < fin
        silent for almost the time that its Keep Alive allows
            opened 3.1.1 client=- keep_alive=10; +9.9 @1 opened client=-; < fin
        different assigned identifiers, and no DISCONNECT
            opened client=- < assigned_client_identifier=a1; @1 opened client=- < assigned_client_identifier=a2
            < disconnect code=0x98; < fin
        the server ends all connections
            opened 3.1.1 client=-; @1 opened client=-; @1 < fin; < fin
    """)
    bad = examples("""
        closed: only a warning
            opened 3.1.1 client=-; @1 opened client=-; < fin !
        twice in a row
            opened 3.1.1 client=-; @1 opened client=-; < fin !; @2 opened client=-; @1 < fin !
        taken over, in 5.0
            opened client=- < assigned_client_identifier=a1; @1 opened client=- < assigned_client_identifier=a1
            < disconnect code=0x8e; < fin !
    """)

    def check_close(self, connection: Connection, at: RuleContext) -> Findings:
        """Look for a client that connected just before the server closed this connection."""
        live = at.model(LiveClients)
        own = live.unnamed.get(at.key)
        if own is None:
            return None
        disconnect = at.history.server.disconnect
        ended_ns = disconnect.timestamp_ns if disconnect is not None else connection.closed_ns
        if not ended_ns or not self._is_thrown_out(connection, ended_ns, at):
            return None
        window_ns = self.nanoseconds("window")
        later = [key for key, row in live.unnamed.items() if own.timestamp_ns < row.timestamp_ns and key != at.key]
        if not later:
            return None
        key = later[0]  # a still later client would have displaced this one instead
        other = live.unnamed[key]
        if not 0 <= ended_ns - other.timestamp_ns <= window_ns or len(later) > 1:
            return None
        return self._collision(own, key, other, at)

    @staticmethod
    def _is_thrown_out(connection: Connection, ended_ns: int, at: RuleContext) -> bool:
        """Whether the server ended the connection, with no other visible reason."""
        disconnect, client = at.history.server.disconnect, at.history.client
        if client.disconnect is not None or client.malformed or at.history.reported:
            return False
        if disconnect is not None and disconnect.reason_code != TAKEN_OVER:
            return False
        if connection.closed_by != "server" and disconnect is None:
            return False
        keep_alive = connection.keep_alive or 0
        limit_ns = round(0.9 * keep_alive * SECOND_NS) if keep_alive else NEVER_NS
        return ended_ns - client.segment_ns < limit_ns

    def _collision(
        self, own: UnnamedConnection, key: ConnectionKey, other: UnnamedConnection, at: RuleContext
    ) -> Findings:
        disconnect = at.history.server.disconnect
        if disconnect is None and own.assigned is not None and own.assigned != other.assigned:
            return None
        chain: ClosedChain = at.memory(self)
        chain.number = chain.number + 1 if chain.by == at.key else 1
        chain.by = key
        sure = (disconnect is not None or chain.number >= OFTEN) and not at.is_apart(own.capture, other.capture)
        return self.report(
            "",
            f"the server closed {at.connection.client} when {other.client} connected; both sent an empty Client "
            "Identifier",
            severity=None if sure else Severity.WARNING,
            confidence=None if sure else Confidence.HEURISTIC,
            related=(other.connack,),
            sender=Direction.SERVER_TO_CLIENT,
        )
