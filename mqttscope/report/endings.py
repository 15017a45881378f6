"""The end of a connection in human formats: in its place, at the first FIN or RST, and later only what came after it.

The two sides of a TCP connection end apart: a client may leave its socket open for hours after the broker has closed
its own.  What ended the connection is the first of both.
"""

from __future__ import annotations

from dataclasses import dataclass

from mqttscope.events import ConnectionClosed
from mqttscope.mqtt.constants import Direction
from mqttscope.mqtt.wire import counted
from mqttscope.report.style import Painter, Wrapped
from mqttscope.report.when import duration
from mqttscope.session.connection import Connection

LATER_NS = 1_000_000_000
"""The other side's FIN is said when it comes so much later; closing takes some time everywhere."""
MAX_ENDINGS = 10_000
"""Connections whose end was said and that are not over yet; of further ones it is said again when they are."""

Said = list[tuple[str, str]]
"""Texts with their styles."""


@dataclass(slots=True)
class _State:
    """What a connection had carried when its end was said."""

    packets: tuple[int, int]
    bytes: tuple[int, int]
    gaps: int
    disconnect_by: str | None


class Endings:
    """Which ends were said."""

    def __init__(self, painter: Painter) -> None:
        self.painter = painter
        self._said: dict[int, _State] = {}

    def said(self, connection: Connection) -> None:
        """A line says how this connection ended, and what it had carried by then."""
        if len(self._said) < MAX_ENDINGS:
            self._said[connection.number] = _state(connection)

    def is_said(self, connection: Connection) -> bool:
        """Whether a line has said the end of this connection."""
        return connection.number in self._said

    def later(self, event: ConnectionClosed) -> Said:
        """What came after the end, and what is known of the whole connection only now; then it is forgotten.

        Of a connection whose end was not said nothing is repeated that its closing line has: packets and gaps.
        """
        connection, painter = event.connection, self.painter
        before = self._said.pop(connection.number, None)
        now = _state(connection)
        found: Said = []
        other = connection.also_closed
        if other is not None:
            after = other.timestamp_ns - connection.closed_ns
            if other.how == "reset" or after >= LATER_NS:
                side = "server" if connection.closed_by == "client" else "client"
                verb = "reset" if other.how == "reset" else "closed"
                found.append((f"{side} {verb} {duration(after, unicode=painter.unicode)} later", "note"))
        if before is not None:
            if now.packets != before.packets:
                up, down = (new - old for new, old in zip(now.packets, before.packets, strict=True))
                size = counted(sum(now.bytes) - sum(before.bytes), "byte")
                found.append((f"{up}{painter.to_server} {down}{painter.to_client} packets after that ({size})", "note"))
            if now.disconnect_by is not None and before.disconnect_by is None:
                found.append((f"DISCONNECT by {now.disconnect_by} after that", "note"))
            if now.gaps != before.gaps:
                found.append((f"{counted(connection.gaps, 'gap')} ({counted(connection.gap_bytes, 'byte')})", "error"))
        if connection.discarded_segments:
            size = counted(connection.discarded_bytes, "byte")
            found.append((f"{counted(connection.discarded_segments, 'segment')} discarded ({size})", "error"))
        if connection.copied_segments:
            found.append((f"{counted(connection.copied_segments, 'segment')} captured twice", "note"))
        if connection.one_sided is not None:
            up = connection.one_sided == str(Direction.CLIENT_TO_SERVER)
            found.append(("only client to server captured" if up else "only server to client captured", "note"))
        return found

    def add(self, line: Wrapped, found: Said, *, first: bool) -> None:
        """Put what `later` gave on a line, ``first`` of it or after something else."""
        for text, style in found:
            line.add(f"{' ' if first else self.painter.dot}{text}", style)
            first = False


def _state(connection: Connection) -> _State:
    up, down = connection.client_side, connection.server_side
    return _State((up.packets, down.packets), (up.bytes, down.bytes), connection.gaps, connection.disconnect_by)
