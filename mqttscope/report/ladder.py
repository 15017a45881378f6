"""The ladder: client on the left, broker on the right, an arrow for each packet.

Packets of one exchange have one tag: a PUBLISH and all its acknowledgements, a request and its answer.  The packet that
ends an exchange shows how long it took.  Connections are interleaved as on the wire, and each line names its
connection.
"""

from __future__ import annotations

from mqttscope import events
from mqttscope.dissect.acknowledgments import tcp_acknowledged
from mqttscope.mqtt import ControlPacket, PacketType
from mqttscope.report import notices
from mqttscope.report.base import Sink, View
from mqttscope.report.style import Line, Wrapped, encoded
from mqttscope.report.text import EventLines
from mqttscope.report.when import NARROW
from mqttscope.session.connection import C2S, Connection

UNLIMITED_CELLS = 140
"""Width of a ladder in output without a limit; its right side needs a position."""
MIN_CELLS = 40
MAX_TAGS = 10_000
"""Maximum number of tagged exchanges at a time; exchanges that never end would add up."""
CIRCLED = 20
"""Highest tag number that is reused, as long as at most this many exchanges run at a time."""
MAX_UNANSWERED = 5
"""Maximum number of unanswered exchanges named at the end of a connection."""

_BEGINS = {
    PacketType.CONNECT: "connect",
    PacketType.SUBSCRIBE: "subscribe",
    PacketType.UNSUBSCRIBE: "unsubscribe",
    PacketType.PINGREQ: "ping",
}
_QUIET = {PacketType.PUBACK, PacketType.PUBREC, PacketType.PUBREL, PacketType.PUBCOMP, PacketType.PINGREQ}
_QUIET |= {PacketType.PINGRESP}


class ExchangeTags:
    """Tag numbers of exchanges.  An exchange is identified by its connection and its first packet."""

    def __init__(self) -> None:
        self._running: dict[int, dict[int, int]] = {}
        self._count = 0
        self._circle: set[int] = set()
        """Numbers up to `CIRCLED` that are in use."""
        self._last = 0
        self._beyond = CIRCLED
        """Highest number used beyond `CIRCLED`."""

    def begin(self, connection: int, packet: int) -> int:
        """The number of an exchange: its own if it has one, else the next free one."""
        known = self.number_of(connection, packet)
        if known is not None:
            return known
        if self._count >= MAX_TAGS:
            oldest = next(iter(self._running))
            self.end(oldest, next(iter(self._running[oldest])))
        number = self._free()
        self._running.setdefault(connection, {})[packet] = number
        self._count += 1
        return number

    def _free(self) -> int:
        if len(self._circle) == CIRCLED:
            self._beyond += 1
            return self._beyond
        if not self._circle:
            self._beyond = CIRCLED
        number = self._last % CIRCLED + 1
        while number in self._circle:
            number = number % CIRCLED + 1
        self._circle.add(number)
        self._last = number
        return number

    def number_of(self, connection: int, packet: int) -> int | None:
        tags = self._running.get(connection)
        return None if tags is None else tags.get(packet)

    def end(self, connection: int, packet: int) -> int | None:
        """End an exchange and free its number; returns the number."""
        tags = self._running.get(connection)
        number = None if tags is None else tags.pop(packet, None)
        if number is not None:
            self._count -= 1
            self._circle.discard(number)
            if not tags:
                del self._running[connection]
        return number

    def forget(self, connection: int) -> None:
        tags = self._running.pop(connection, {})
        self._count -= len(tags)
        self._circle.difference_update(tags.values())


class Ladder(EventLines):
    """Writes events as a ladder."""

    def __init__(self, sink: Sink, view: View) -> None:
        super().__init__(sink, view)
        self.heads.names_broker = False
        self.tags = ExchangeTags()
        self.width = max(MIN_CELLS, view.width) if view.width > 0 else UNLIMITED_CELLS
        self.named = not 0 < view.width < NARROW
        self._wire = "─" if view.unicode else "-"
        self._bar = "│" if view.unicode else "|"
        self._out = "├" if view.unicode else "|"
        self._in = "┤" if view.unicode else "|"
        self._right = "▶" if view.unicode else ">"
        self._left = "◀" if view.unicode else "<"
        self._broken = "┊" if view.unicode else ":"
        self._lost = "✗" if view.unicode else "x"
        self._has_lost = False

    def other(self, event: events.Event) -> list[str]:
        """The lines of any event but a packet; forgets the exchanges of a closed connection."""
        lines = super().other(event)
        if isinstance(event, events.ConnectionClosed):
            self.tags.forget(event.connection.number)
        return lines

    def close(self) -> None:
        """Write the legend, if a packet has the sign."""
        if self._has_lost:
            self._has_lost = False
            self.sink.write(encoded([f"{self._lost} never acknowledged by TCP"]))

    def _begin(self, event: events.PacketEvent | events.Damage) -> Line:
        """Time, connection and client, left of the ladder."""
        line = self.painter.line(self.width)
        line.add(f"{self.heads.time.text(event.timestamp_ns)} ", "time")
        line.put(*self.heads.label(event.connection))
        return line

    def packet_text(self, event: events.PacketEvent) -> str:
        """The line of a packet."""
        line = self._begin(event)
        packet = event.packet
        tag, kind = self._tag(event), packet.packet_type
        to_server = event.direction is C2S
        # Room for both bars, the arrow head, two spaces and a piece of arrow on each side.
        label = self.painter.line(max(8, line.left - 6))
        if tcp_acknowledged(event) is False:
            self._has_lost = True
            label.add(f"{self._lost} ", "note")
        if tag is not None:
            number, style = tag
            label.add(self._circled(number), style)
            label.add(" ")
        label.add(kind.name, "dim" if kind in _QUIET else "type")
        before = label.used
        label.add(" ")
        self.summary.describe(label, event)
        text, width = str(label), label.used
        if width == before + 1:
            text, width = text[:-1], before
        style = notices.sender(event.direction)
        self._rung(line, text, width, style, to_server=to_server)
        return str(line)

    def _rung(self, line: Line, text: str, width: int, style: str, *, to_server: bool) -> None:
        """The arrow with its text, which is on the side of the sender."""
        fill = self._wire * max(1, line.left - width - 5)
        paint = self.painter.paint
        if to_server:
            painted = f"{self._out}{paint(self._wire, style)} {text} {paint(fill + self._right, style)}{self._bar}"
        else:
            painted = f"{self._bar}{paint(self._left + fill, style)} {text} {paint(self._wire, style)}{self._in}"
        line.put(painted, width + len(fill) + 6)

    def _circled(self, number: int) -> str:
        if self.view.unicode and number <= CIRCLED:
            return chr(0x2460 + number - 1)
        return f"({number})"

    def _tag(self, event: events.PacketEvent) -> tuple[int, str] | None:
        number = self._number(event)
        return None if number is None else (number, f"tag{number % 5}")

    def _number(self, event: events.PacketEvent) -> int | None:
        packet, connection = event.packet, event.connection
        kind = packet.packet_type
        if kind == PacketType.PUBLISH:
            return self._of_publish(event, packet)
        if kind in _BEGINS:
            return self.tags.begin(connection.number, event.number)
        if kind == PacketType.CONNACK:
            return self._ending(connection, connection.connect_packet)
        if kind == PacketType.PINGRESP:
            return self._ending(connection, connection.receiver(event.direction).ping_packet)
        exchange = connection.answered_by(packet, event.direction)
        if exchange is None:
            return None
        refused = kind == PacketType.PUBREC and (packet.reason_code or 0) >= 0x80  # type: ignore[attr-defined]
        if kind in (PacketType.PUBREL, PacketType.PUBREC) and not refused:
            return self.tags.number_of(connection.number, exchange.packet)
        return self._ending(connection, exchange.packet)

    def _ending(self, connection: Connection, began: int | None) -> int | None:
        return None if began is None else self.tags.end(connection.number, began)

    def _of_publish(self, event: events.PacketEvent, packet: ControlPacket) -> int | None:
        identifier: int | None = packet.packet_identifier  # type: ignore[attr-defined]
        if identifier is None:
            return None
        connection = event.connection
        running = connection.side(event.direction).exchanges.get(identifier)
        if running is not None and running.kind == "publish":
            if packet.dup:  # type: ignore[attr-defined]
                return self.tags.begin(connection.number, running.packet)
            # The identifier is used again: the previous exchange was given up.
            self.tags.end(connection.number, running.packet)
        return self.tags.begin(connection.number, event.number)

    def damaged(self, event: events.Damage) -> Wrapped:
        """Damage, shown as a break in the bars."""
        line = self._begin(event)
        arrow = self.painter.to_server if event.direction is C2S else self.painter.to_client
        line.add(self._broken, "error")
        text = Wrapped(line)
        name, style = notices.damage_name(event)
        text.add(f" {arrow} {name}", style)
        notices.damage(text, event, self.painter)
        last = text.lines[-1]
        if last.left > 0 and len(text.lines) == 1:
            last.add(" " * last.left)
            last.add(self._broken, "error")
        return text

    def unanswered(self, connection: Connection) -> str:
        """The exchanges without an answer; empty if the capture lost bytes."""
        if connection.gaps:
            return ""
        exchanges = []
        for side in (connection.client_side, connection.server_side):
            for exchange in side.exchanges.values():
                number = self.tags.number_of(connection.number, exchange.packet)
                tag = "" if number is None else self._circled(number) + " "
                exchanges.append(f"{tag}{exchange.kind.upper()} id={exchange.packet_identifier}")
        if not exchanges:
            return ""
        more = f", {len(exchanges) - MAX_UNANSWERED} more" if len(exchanges) > MAX_UNANSWERED else ""
        return f"unanswered: {', '.join(exchanges[:MAX_UNANSWERED])}{more}"
