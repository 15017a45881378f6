"""What rules keep beyond one packet, by the key of their scope.

Memories of one key are all that a finding of that scope may depend on, beside the connection that it is about.  So an
engine that sees the whole connections of one key alone finds what one finds that sees everything, and a cluster can
run one engine for each key.  A connection belongs to the key that it has when its CONNACK comes: before that, rules
with the scope of a session have nothing to remember.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING, Any

from mqttscope.lint.rule import Rule, Scope
from mqttscope.session.connection import Connection
from mqttscope.session.history import History

if TYPE_CHECKING:
    from mqttscope.lint.moment import ConnectionKey, Moment

MAX_KEYS = 100_000
"""Sessions, and servers, whose memories are kept; the one untouched for longest goes first, and is counted."""
WIDE = (Scope.SESSION, Scope.BROKER)
"""Scopes that look beyond one connection."""
Kept = dict[tuple[Hashable, ...], dict[str, Any]]
"""What rules keep, by the key of their scope and their code."""


class Memories:
    """The memories of all rules of one engine."""

    def __init__(self) -> None:
        self.forgotten = 0
        """Keys that had to make room."""
        self.open: dict[ConnectionKey, History] = {}
        """Connections that were seen and have not ended."""
        self._kept: Kept = {}
        self._last: tuple[tuple[Hashable, ...], dict[str, Any]] = ((), {})

    @property
    def kept(self) -> Kept:
        """What rules of wide scopes keep."""
        return self._kept

    def resume(self, kept: Kept, histories: dict[ConnectionKey, History]) -> None:
        """Go on with what another engine kept, and with the connections that were open there."""
        self._kept, self._last = kept, ((), {})
        self.open = histories

    def of(self, rule: Rule, at: Moment) -> Any:
        """What a rule keeps for the key of its scope."""
        if rule.scope not in WIDE:
            memories = at.history.memories
        else:
            key = scope_key(rule.scope, at.connection)
            memories = self._last[1] if key == self._last[0] else self._touch(key)
        memory = memories.get(rule.code)
        if memory is None:
            assert rule.Memory is not None
            memory = memories[rule.code] = rule.Memory()
        return memory

    def _touch(self, key: tuple[Hashable, ...]) -> dict[str, Any]:
        """The memories of a key, which is now the one that was touched last."""
        found = self._kept.pop(key, None)
        if found is None:
            found = {}
            if len(self._kept) >= MAX_KEYS:
                del self._kept[next(iter(self._kept))]
                self.forgotten += 1
        self._kept[key] = found
        self._last = key, found
        return found

    def opened(self, at: Moment) -> None:
        """A connection is seen for the first time."""
        self.open[at.key] = at.history

    def closed(self, at: Moment) -> None:
        """A connection has ended."""
        self.open.pop(at.key, None)


def scope_key(scope: Scope, connection: Connection) -> tuple[Hashable, ...]:
    """The key that findings of a scope depend on: run per key, an engine finds the same."""
    if scope is Scope.BROKER:
        return (connection.server,)
    if scope is Scope.SESSION:
        known = connection.session_identifier
        name = connection.client_identifier if known is None else known
        if name:
            return (connection.server, name)
    # Who has not said a Client Identifier, or waits for one, shares a session with nobody that is known.
    return own_key(connection)


def own_key(connection: Connection) -> tuple[Hashable, ...]:
    """The key of a connection that shares it with no other."""
    return (connection.capture, connection.number, connection.flow_key, connection.opened_ns)


def is_of_one(key: tuple[Hashable, ...]) -> bool:
    """Whether a key of `scope_key` is that of one connection, which shares it with no other."""
    return len(key) > 2
