"""One readable line per event: time, connection, direction, packet type, main fields, payload."""

from __future__ import annotations

from abc import abstractmethod

from mqttscope import events
from mqttscope.mqtt.constants import Direction, PacketType
from mqttscope.report import notices
from mqttscope.report.base import Sink, View
from mqttscope.report.escape import cells
from mqttscope.report.public_report import PublicReport
from mqttscope.report.style import Line, Painter, Wrapped, encoded
from mqttscope.report.summary import PacketSummary
from mqttscope.report.when import NARROW, TimeColumn
from mqttscope.session.connection import C2S, Connection

MAX_CONNECTIONS = 10_000
"""Maximum number of cached name columns; connections that never close would add up."""
NAME_SHARE = 5
"""The name column takes at most one part in this many of the line."""
MAX_NAME = 24
MIN_NAME = 6
BROKER_FROM = 100
"""Minimum columns of a line that names the broker; in narrower lines the arrow implies it."""

TYPE_CELLS = 10
"""Columns for the packet type; UNSUBSCRIBE takes one more."""

_TYPES = {int(kind): kind.name for kind in PacketType}
_PADS = {kind: " " * (TYPE_CELLS + 1 - len(name)) or " " for kind, name in _TYPES.items()}
_TYPE_STYLES = {int(kind): "type" for kind in PacketType} | {
    int(kind): "dim"
    for kind in (
        PacketType.PUBACK,
        PacketType.PUBREC,
        PacketType.PUBREL,
        PacketType.PUBCOMP,
        PacketType.PINGREQ,
        PacketType.PINGRESP,
    )
}


class LineHeads:
    """The beginning of lines: time, connection number, client and direction."""

    def __init__(self, view: View, painter: Painter) -> None:
        self.painter = painter
        self.time = TimeColumn(view)
        self.limit = MAX_NAME if view.width <= 0 else max(MIN_NAME, min(MAX_NAME, view.width // NAME_SHARE))
        self.names_broker = not 0 < view.width < BROKER_FROM
        self.names_number = not 0 < view.width < NARROW and view.time != "none"
        self.whole_names = view.width <= 0
        self.narrow = self.names_number and 0 < view.width < BROKER_FROM
        self._name_width = MIN_NAME
        self._number_width = 1
        self._columns: dict[int, tuple[int, int, str, int]] = {}
        self.introduced: set[int] = set()
        """Connections with shown endpoints, at most `MAX_CONNECTIONS`."""

    def name(self, connection: Connection) -> str:
        """Client Identifier, or the endpoint if no identifier is known.

        Narrow lines do not repeat the endpoint that the line of the opened connection shows; its number is enough.
        """
        if connection.client_identifier is None and self.narrow and connection.number in self.introduced:
            return ""
        shown = connection.client_identifier or connection.client
        if self.whole_names:
            return self.painter.safe(shown)
        return self.painter.name(shown, self.limit)

    @property
    def name_width(self) -> int:
        return self._name_width

    def name_column(self, connection: Connection, direction: Direction) -> tuple[str, int]:
        """The painted name column with its width; cached until a name changes or the column grows."""
        key = connection.number * 2 + (direction is C2S)
        column = self._columns.get(key)
        if column is not None and column[0] == connection.revision and column[1] == self._name_width:
            return column[2], column[3]
        painted, width = self.label(connection)
        arrow, cells_of_arrow = self.arrow(direction)
        painted += arrow
        total = width + cells_of_arrow
        if len(self._columns) >= MAX_CONNECTIONS:
            self._columns.clear()
        self._columns[key] = connection.revision, self._name_width, painted, total
        return painted, total

    def arrow(self, direction: Direction) -> tuple[str, int]:
        """The painted arrow after the name, with its width."""
        arrow = self.painter.to_server if direction is C2S else self.painter.to_client
        broker = " broker" if self.names_broker else ""
        painted = self.painter.paint(arrow, notices.sender(direction))
        return f"{painted}{self.painter.paint(broker, 'server')} ", len(arrow) + len(broker) + 1

    def label(self, connection: Connection) -> tuple[str, int]:
        """Number and name of a connection, painted, with the width."""
        name = self.name(connection)
        width = cells(name)
        self._name_width = max(self._name_width, min(width, self.limit))
        number = f"#{connection.number}"
        self._number_width = max(self._number_width, len(number))
        plain = f"{number:<{self._number_width}} " if self.names_number else ""
        pad = " " * (1 + max(0, self._name_width - width))
        painted = f"{plain}{self.painter.paint(name, 'client')}{pad}"
        return painted, len(plain) + width + len(pad)

    def begin(self, event: events.PacketEvent | events.Damage) -> Line:
        """A line with time and names."""
        line = self.painter.line()
        if self.time.mode != "none":
            line.add(f"{self.time.text(event.timestamp_ns)} ", "time")
        line.put(*self.name_column(event.connection, event.direction))
        return line

    def rule(self, timestamp_ns: int | None) -> Wrapped:
        """A line about a connection as a whole, with its time; ``None`` if it has no time of its own."""
        line = self.painter.line()
        if timestamp_ns is not None:
            line.add(f"{self.time.text(timestamp_ns)} ", "time")
        elif self.time.width:
            line.add(" " * (self.time.width + 1))
        return Wrapped(line)

    def introduce(self, connection: Connection) -> None:
        """Mark the connection's endpoints as shown."""
        if len(self.introduced) < MAX_CONNECTIONS:
            self.introduced.add(connection.number)

    def forget(self, connection: Connection) -> None:
        self.introduced.discard(connection.number)
        self._columns.pop(connection.number * 2, None)
        self._columns.pop(connection.number * 2 + 1, None)


class Preambles:
    """Lines before the line of an event: a new day, the assumed version of a connection."""

    def __init__(self, painter: Painter, time: TimeColumn) -> None:
        self.painter = painter
        self.time = time
        self._versions: dict[int, int] = {}
        """Connections with a shown version; at `MAX_CONNECTIONS` all are forgotten."""

    def lines(self, event: events.Event) -> list[str]:
        """The lines before an event, usually empty."""
        lines: list[str] = []
        timestamp_ns = getattr(event, "timestamp_ns", None)
        day = None if timestamp_ns is None else self.time.new_day(timestamp_ns)
        if day is not None:
            line = self.painter.line()
            line.add(f"{self.painter.rule} {day}", "rule")
            lines.append(str(line))
        if isinstance(event, events.PacketEvent | events.MalformedEvent):
            connection = event.connection
            if not connection.version_known and self._versions.get(connection.number) != connection.version:
                if len(self._versions) >= MAX_CONNECTIONS:
                    self._versions.clear()
                self._versions[connection.number] = connection.version
                text = Wrapped(self.painter.line())
                notices.version_assumed(text, connection, self.painter, numbered=self.time.mode != "none")
                lines += text.texts()
        elif isinstance(event, events.ConnectionClosed):
            self._versions.pop(event.connection.number, None)
        return lines


class EventLines(PublicReport):
    """Writes events as lines that begin with time and names; subclasses format packets and damage."""

    def __init__(self, sink: Sink, view: View) -> None:
        super().__init__(view)
        self.sink = sink
        self.painter = Painter(view)
        self.heads = LineHeads(view, self.painter)
        self.preambles = Preambles(self.painter, self.heads.time)
        self.endings = notices.ReportedEnds(self.painter)
        self.summary = PacketSummary(view, self.painter)

    def show(self, event: events.Event) -> None:
        """Write one event."""
        lines = self.preambles.lines(event)
        if isinstance(event, events.PacketEvent):
            lines.append(self.packet_text(event))
        else:
            lines += self.other(event)
        if lines:
            self.sink.write(encoded(lines))

    @abstractmethod
    def packet_text(self, event: events.PacketEvent) -> str:
        """The line of a packet."""

    @abstractmethod
    def damaged(self, event: events.Damage) -> Wrapped:
        """The lines about damage."""

    def unanswered(self, connection: Connection) -> str:
        """Note about open exchanges at the end of a connection."""
        return ""

    def other(self, event: events.Event) -> list[str]:
        """The lines of any event but a packet; several only in a narrow terminal."""
        painter = self.painter
        if isinstance(event, events.CaptureRemark):
            text = Wrapped(painter.line())
            notices.capture_error(text, event, painter)
        elif isinstance(event, events.Damage):
            text = self.damaged(event)
            if isinstance(event, events.DiscardedEvent):
                # The connection may be over; then no later event makes its entry go away.
                self.heads.forget(event.connection)
        elif isinstance(event, events.ConnectionOpened):
            text = self.heads.rule(event.timestamp_ns)
            notices.opened(text, event, painter)
            self.heads.introduce(event.connection)
        elif isinstance(event, events.ConnectionEnding | events.ConnectionClosed):
            return self._end(event)
        else:
            return []
        return text.texts()

    def _end(self, event: events.ConnectionEnding | events.ConnectionClosed) -> list[str]:
        """Lines about the end of a connection: at its first FIN or RST, and later if more is known."""
        painter, connection, endings = self.painter, event.connection, self.endings
        unanswered = self.unanswered(connection)
        if isinstance(event, events.ConnectionEnding):
            text = self.heads.rule(event.timestamp_ns)
            notices.closed(text, event, painter, unanswered)
            endings.report(connection)
            return text.texts()
        reported = endings.is_reported(connection)
        remarks = endings.later(event)
        self.heads.forget(connection)
        if not reported:
            text = self.heads.rule(event.timestamp_ns)
            notices.closed(text, event, painter, unanswered)
        elif remarks:
            other = connection.also_closed
            text = self.heads.rule(None if other is None else other.timestamp_ns)
            notices.later(text, connection, painter)
        else:
            return []
        endings.add(text, remarks, first=reported)
        return text.texts()


class TextLines(EventLines):
    """Writes every event as a line."""

    def packet_text(self, event: events.PacketEvent) -> str:
        """The line of a packet."""
        line = self.heads.begin(event)
        kind = event.packet.packet_type
        line.add(_TYPES[kind], _TYPE_STYLES[kind])
        line.add(_PADS[kind])
        self.summary.describe(line, event)
        return str(line).rstrip(" ")

    def damaged(self, event: events.Damage) -> Wrapped:
        """The lines about damage, with its name in the column of the packet type."""
        line = self.heads.begin(event)
        line.add(*notices.damage_name(event, TYPE_CELLS))
        text = Wrapped(line)
        notices.damage(text, event, self.painter)
        return text
