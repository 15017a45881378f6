"""What may be of a secret in the damaged packets of a connection, so that no message quotes it.

What rules remember of a packet they quote in findings about others: the Authentication Method of a CONNECT, a topic.
Where the layout is broken, such a text may hold a password.  So messages are not made in many careful ways, but each is
held against these bytes before anybody sees it (`report.findings.conceal`).
"""

from __future__ import annotations

from mqttscope.events import MalformedEvent
from mqttscope.redact.packets import hidden_in_damaged, holds_secrets
from mqttscope.session.connection import Connection

MAX_CONNECTIONS = 10_000
"""Open connections with damaged packets of which this is kept."""
MAX_RUNS = 16
"""Ranges of bytes of one connection; the first and the last ones are kept."""
MAX_BYTES = 4_096
"""Bytes of a range: rules do not quote more of a text."""
LEAST = 4
"""Fewer bytes are no secret that could be told from other text."""


class Withheld:
    """The hidden bytes of damaged packets, by the identity of their connection while it is open."""

    def __init__(self) -> None:
        self._runs: dict[int, tuple[bytes, ...]] = {}

    def note(self, event: MalformedEvent) -> None:
        """Take note of what is hidden in a damaged packet."""
        connection, raw = event.connection, event.malformed.raw
        if not (holds_secrets(raw) or event.malformed.complete):
            return  # nothing of it is remembered
        found = hidden_in_damaged(raw, connection.version, connection.side(event.direction).doubt)
        runs = [raw[start : min(end, start + MAX_BYTES)] for start, end in found if end - start >= LEAST]
        if not runs:
            return
        key = id(connection)
        if key not in self._runs and len(self._runs) >= MAX_CONNECTIONS:
            del self._runs[next(iter(self._runs))]
        known = [*self._runs.get(key, ()), *runs]
        if len(known) > MAX_RUNS:
            known = [*known[: MAX_RUNS // 2], *known[-MAX_RUNS // 2 :]]
        self._runs[key] = tuple(known)

    def of(self, connection: Connection) -> tuple[bytes, ...]:
        """What is hidden of a connection."""
        return self._runs.get(id(connection), ())

    def forget(self, connection: Connection) -> None:
        """The connection has ended."""
        self._runs.pop(id(connection), None)
