"""One readable line per event: time, connection, who to whom, packet type, the fields that matter, payload."""

from __future__ import annotations

from abc import abstractmethod

from mqttscope import events
from mqttscope.mqtt.constants import Direction, PacketType
from mqttscope.report import notices
from mqttscope.report.base import Sink, View
from mqttscope.report.escape import cells
from mqttscope.report.public_report import PublicReport
from mqttscope.report.style import Line, Painter, Wrapped, encoded
from mqttscope.report.summary import Summary
from mqttscope.report.when import NARROW, TimeColumn
from mqttscope.session.connection import C2S, Connection

MAX_CONNECTIONS = 10_000
"""Connections whose name column is kept ready; those that never close would add up."""
NAME_SHARE = 5
"""The name column is at most this part of the line."""
MAX_NAME = 24
MIN_NAME = 6
BROKER_FROM = 100
"""Lines of this many columns name the broker as well; in narrower ones the arrow says it."""

TYPE_CELLS = 10
"""UNSUBSCRIBE takes one more."""

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


class Heads:
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
        self._kept: dict[int, tuple[int, int, str, int]] = {}
        self.introduced: set[int] = set()
        """Connections whose endpoints a line has said, at most `MAX_CONNECTIONS`."""

    def name(self, connection: Connection) -> str:
        """What a client is called: its Client Identifier, or its endpoint where none is known.

        Narrow lines have no room to repeat endpoints that the line of the opened connection has; its number says it.
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

    def who(self, connection: Connection, direction: Direction) -> tuple[str, int]:
        """The painted name column with its width; made again only when a name changes or the column grows."""
        key = connection.number * 2 + (direction is C2S)
        kept = self._kept.get(key)
        if kept is not None and kept[0] == connection.revision and kept[1] == self._name_width:
            return kept[2], kept[3]
        painted, width = self.label(connection)
        arrow, cells_of_arrow = self.arrow(direction)
        painted += arrow
        total = width + cells_of_arrow
        if len(self._kept) >= MAX_CONNECTIONS:
            self._kept.clear()
        self._kept[key] = connection.revision, self._name_width, painted, total
        return painted, total

    def arrow(self, direction: Direction) -> tuple[str, int]:
        """What follows the name, painted, with the width."""
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
        line.put(*self.who(event.connection, event.direction))
        return line

    def rule(self, timestamp_ns: int | None) -> Wrapped:
        """A line about a connection as a whole, with its time; ``None`` where it has none of its own."""
        line = self.painter.line()
        if timestamp_ns is not None:
            line.add(f"{self.time.text(timestamp_ns)} ", "time")
        elif self.time.width:
            line.add(" " * (self.time.width + 1))
        return Wrapped(line)

    def introduce(self, connection: Connection) -> None:
        """A line has said the endpoints of a connection."""
        if len(self.introduced) < MAX_CONNECTIONS:
            self.introduced.add(connection.number)

    def forget(self, connection: Connection) -> None:
        self.introduced.discard(connection.number)
        self._kept.pop(connection.number * 2, None)
        self._kept.pop(connection.number * 2 + 1, None)


class Preambles:
    """Lines that come before the line of an event: a new day, the version that is assumed from here on."""

    def __init__(self, painter: Painter, time: TimeColumn) -> None:
        self.painter = painter
        self.time = time
        self._told: dict[int, int] = {}

    @property
    def told(self) -> int:
        """Connections of which it is remembered what was said; at `MAX_CONNECTIONS` all of it is forgotten."""
        return len(self._told)

    def of(self, event: events.Event) -> list[str]:
        """Those of an event, mostly none."""
        lines: list[str] = []
        timestamp_ns = getattr(event, "timestamp_ns", None)
        day = None if timestamp_ns is None else self.time.new_day(timestamp_ns)
        if day is not None:
            line = self.painter.line()
            line.add(f"{self.painter.rule} {day}", "rule")
            lines.append(str(line))
        if isinstance(event, events.PacketEvent | events.MalformedEvent):
            connection = event.connection
            if not connection.version_known and self._told.get(connection.number) != connection.version:
                if len(self._told) >= MAX_CONNECTIONS:
                    self._told.clear()
                self._told[connection.number] = connection.version
                text = Wrapped(self.painter.line())
                notices.version_assumed(text, connection, self.painter, numbered=self.time.mode != "none")
                lines += text.texts()
        elif isinstance(event, events.ConnectionClosed):
            self._told.pop(event.connection.number, None)
        return lines


class EventLines(PublicReport):
    """Writes events as lines that begin with time and names.  Subclasses say how packets look, and damage."""

    def __init__(self, sink: Sink, view: View) -> None:
        super().__init__(view)
        self.sink = sink
        self.painter = Painter(view)
        self.heads = Heads(view, self.painter)
        self.preambles = Preambles(self.painter, self.heads.time)
        self.endings = notices.Endings(self.painter)
        self.summary = Summary(view, self.painter)

    def show(self, event: events.Event) -> None:
        """Write one event."""
        lines = self.preambles.of(event)
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
        """What to say of exchanges that are open where a connection ends."""
        return ""

    def other(self, event: events.Event) -> list[str]:
        """The lines of any other event; more than one only where the terminal is narrow."""
        painter = self.painter
        if isinstance(event, events.CaptureRemark):
            text = Wrapped(painter.line())
            notices.capture_error(text, event, painter)
        elif isinstance(event, events.Damage):
            text = self.damaged(event)
            if isinstance(event, events.DiscardedEvent):
                # The connection may be over, so that nothing else would make this forgotten.
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
        """The end of a connection: where it ends, and where nothing more comes if there is more to say."""
        painter, connection, endings = self.painter, event.connection, self.endings
        unanswered = self.unanswered(connection)
        if isinstance(event, events.ConnectionEnding):
            text = self.heads.rule(event.timestamp_ns)
            notices.closed(text, event, painter, unanswered)
            endings.said(connection)
            return text.texts()
        told = endings.is_said(connection)
        found = endings.later(event)
        self.heads.forget(connection)
        if not told:
            text = self.heads.rule(event.timestamp_ns)
            notices.closed(text, event, painter, unanswered)
        elif found:
            other = connection.also_closed
            text = self.heads.rule(None if other is None else other.timestamp_ns)
            notices.later(text, connection, painter)
        else:
            return []
        endings.add(text, found, first=told)
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
        """The lines about damage, with its name where packets have their type."""
        line = self.heads.begin(event)
        line.add(*notices.damage_name(event, TYPE_CELLS))
        text = Wrapped(line)
        notices.damage(text, event, self.painter)
        return text
