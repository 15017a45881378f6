"""The Client Identifiers of a server that are in use, as far as a capture shows them.

An identifier is in use while a connection has it, and after that while the session is kept.  What is remembered of a
connection is little, so that all clients of a server can be; the one that is seen first is forgotten first.
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
"""Client Identifiers of a server that are remembered."""
MAX_UNNAMED = 1_000
"""Open connections without a Client Identifier of their own that are remembered."""
ENDLESS = 0xFFFFFFFF
"""Session Expiry Interval of a session that does not expire (5.0 3.1.2.11.2)."""
TAKEN_OVER = 0x8E


@dataclass(slots=True)
class InUse:
    """A Client Identifier that is in use."""

    key: ConnectionKey
    """The connection that has it, or had it last."""
    user_name: str | None
    capture: str
    connack: Related
    until_ns: int = NEVER_NS
    """When the session ends, once the connection has ended; else `NEVER_NS`."""
    taken_ns: int = 0
    """When the server closed the connection because another one has the identifier now."""


@dataclass(slots=True)
class Unnamed:
    """An open connection whose CONNECT has an empty Client Identifier."""

    timestamp_ns: int
    assigned: str | None
    """The identifier that the server assigned, which is possible in 5.0 alone."""
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

    names: dict[str, InUse] = field(default_factory=dict)
    """By Client Identifier."""
    unnamed: dict[ConnectionKey, Unnamed] = field(default_factory=dict)
    """Open connections, in the order in which they were accepted."""
    now_ns: int = 0
    """When something was seen last."""

    def follow(self, packet: Connack, at: RuleContext) -> None:
        """A connection is accepted."""
        self._pass_time(at.timestamp_ns)
        connect, history = at.history.connect, at.history
        if packet.reason_code or connect is None or history.connack is not None:
            return
        event = at.event
        connack = Related("the CONNACK", at.number, event.frame, event.timestamp_ns)
        name = at.connection.client_identifier
        if name:
            self.names.pop(name, None)
            self.names[name] = InUse(at.key, connect.user_name, event.capture, connack)
            forget_oldest(self.names, MAX_CLIENTS)
        if connect.client_identifier == "":
            block = packet.properties
            assigned = None if block is None else block.assigned_client_identifier
            self.unnamed[at.key] = Unnamed(
                event.timestamp_ns, assigned, connect.user_name, event.capture, at.connection.client, connack
            )
            forget_oldest(self.unnamed, MAX_UNNAMED)

    def closed(self, connection: Connection, at: RuleContext) -> None:
        """A connection has ended; its session may continue."""
        self.unnamed.pop(at.key, None)
        name = connection.client_identifier
        one = self.names.get(name) if name else None
        if one is None or name is None or one.key != at.key:
            return
        ended_ns = connection.closed_ns or at.timestamp_ns
        told = at.history.server.disconnect
        if told is not None and told.reason_code == TAKEN_OVER:
            one.taken_ns = told.timestamp_ns
        one.until_ns = ended_ns + _kept_seconds(at) * SECOND_NS
        if connection.closed_how not in ("fin", "reset") or connection.side(C2S).gapped:
            one.until_ns = 0  # when it ended, and what a DISCONNECT said, is not known

    def _pass_time(self, now_ns: int) -> None:
        """Time continues.  When it runs backwards, a clock was set or another capture begins."""
        if now_ns < self.now_ns - SECOND_NS:
            self.names.clear()
            self.unnamed.clear()
        self.now_ns = now_ns


def _kept_seconds(at: RuleContext) -> int:
    """How long the session is kept for certain after the end of its connection."""
    connection = at.connection
    if at.version is not V5 or connection.session_expiry_interval is None:
        return 0  # before 5.0 servers end sessions when they like
    seconds = connection.session_expiry_interval
    return seconds if seconds != ENDLESS else 86_400 * 365
