"""The Client Identifiers in use on a server, as far as a capture shows them.

An identifier is in use while a connection has it, and afterwards while the session is kept.  The record of a connection
is small, so that all clients of a server fit; the oldest one is dropped first.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from mqttscope.lint.context import SECOND_NS, ConnectionKey, RuleContext, forget_oldest
from mqttscope.lint.finding import Related, Scope
from mqttscope.lint.model import Model
from mqttscope.lint.rule import V5
from mqttscope.mqtt.packets import Connack
from mqttscope.session.connection import C2S, Connection
from mqttscope.session.history import NEVER_NS

MAX_CLIENTS = 100_000
"""Maximum number of Client Identifiers remembered per server."""
MAX_UNNAMED = 1_000
"""Maximum number of open connections remembered without a Client Identifier of their own."""
ENDLESS = 0xFFFFFFFF
"""Session Expiry Interval of a session that does not expire (5.0 3.1.2.11.2)."""
TAKEN_OVER = 0x8E


@dataclass(slots=True)
class ClientIdentifierUse:
    """A Client Identifier that is in use."""

    key: ConnectionKey
    """The connection that has it, or had it last."""
    user_name: str | None
    capture: str
    connack: Related
    until_ns: int = NEVER_NS
    """End of the session, once the connection has ended; else `NEVER_NS`."""
    taken_ns: int = 0
    """Time of the server's DISCONNECT because another connection has the identifier now."""


@dataclass(slots=True)
class UnnamedConnection:
    """An open connection with an empty Client Identifier in its CONNECT."""

    timestamp_ns: int
    assigned: str | None
    """Identifier assigned by the server, which only 5.0 allows."""
    user_name: str | None
    capture: str
    client: str
    """Its address."""
    connack: Related


@dataclass(slots=True)
class LiveClients(Model):
    """The clients of a server."""

    code = "live_clients"
    scope = Scope.BROKER
    looks_at = (Connack,)

    names: dict[str, ClientIdentifierUse] = field(default_factory=dict)
    """Uses of identifiers, by Client Identifier."""
    unnamed: dict[ConnectionKey, UnnamedConnection] = field(default_factory=dict)
    """Open connections, in the order of their CONNACK packets."""
    now_ns: int = 0
    """Time of the last packet."""

    def follow(self, packet: Connack, at: RuleContext) -> None:
        """Handle a CONNACK that accepts a connection."""
        self._pass_time(at.timestamp_ns)
        connect, history = at.history.connect, at.history
        if packet.reason_code or connect is None or history.connack is not None:
            return
        event = at.event
        connack = Related("the CONNACK", at.number, event.frame, event.timestamp_ns)
        name = at.connection.client_identifier
        if name:
            self.names.pop(name, None)
            self.names[name] = ClientIdentifierUse(at.key, connect.user_name, event.capture, connack)
            forget_oldest(self.names, MAX_CLIENTS)
        if connect.client_identifier == "":
            block = packet.properties
            assigned = None if block is None else block.assigned_client_identifier
            self.unnamed[at.key] = UnnamedConnection(
                event.timestamp_ns, assigned, connect.user_name, event.capture, at.connection.client, connack
            )
            forget_oldest(self.unnamed, MAX_UNNAMED)

    def closed(self, connection: Connection, at: RuleContext) -> None:
        """Handle the end of a connection; its session may continue."""
        self.unnamed.pop(at.key, None)
        name = connection.client_identifier
        use = self.names.get(name) if name else None
        if use is None or name is None or use.key != at.key:
            return
        ended_ns = connection.closed_ns or at.timestamp_ns
        disconnect = at.history.server.disconnect
        if disconnect is not None and disconnect.reason_code == TAKEN_OVER:
            use.taken_ns = disconnect.timestamp_ns
        use.until_ns = ended_ns + _kept_seconds(at) * SECOND_NS
        if connection.closed_how not in ("fin", "reset") or connection.side(C2S).gapped:
            use.until_ns = 0  # the time of its end, and the content of a DISCONNECT, are unknown

    def _pass_time(self, now_ns: int) -> None:
        """Advance the time.  If it runs backwards, the clock was set or another capture begins: forget everything."""
        if now_ns < self.now_ns - SECOND_NS:
            self.names.clear()
            self.unnamed.clear()
        self.now_ns = now_ns


def _kept_seconds(at: RuleContext) -> int:
    """Seconds that the session is certainly kept after the end of its connection."""
    connection = at.connection
    if at.version is not V5 or connection.session_expiry_interval is None:
        return 0  # before 5.0 a server may end a session at any time
    seconds = connection.session_expiry_interval
    return seconds if seconds != ENDLESS else 86_400 * 365
