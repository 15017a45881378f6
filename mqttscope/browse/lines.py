"""Lines for rows and connections, with times in the selected format."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import replace
from io import BytesIO
from typing import Final

from mqttscope.browse.decoding import with_payload
from mqttscope.browse.index import Index
from mqttscope.events import ConnectionClosed, ConnectionEnding, ConnectionOpened, Event, PacketEvent
from mqttscope.explain.model import QUIET
from mqttscope.report import notices
from mqttscope.report.base import View
from mqttscope.report.escape import cut
from mqttscope.report.explanations.base import TITLES
from mqttscope.report.text import TextLines
from mqttscope.report.when import TimeColumn, duration
from mqttscope.secrets.credentials import starred_name
from mqttscope.session.connection import Connection

TIMES: Final = ("iso", "local", "relative", "delta", "epoch")
"""Time formats, in the order of the key that switches them."""
LEFT_AFTER_SECONDS: Final = 2.0
"""Seconds of reading before the remaining time is shown."""
MAX_LINES: Final = 4_096
WIDE_ENOUGH: Final = 100
"""Minimum number of columns to show the endpoint of a named client too."""
STATE: Final = 20
"""Columns for the state of a connection, or the cause of its end."""
SIGNS: Final = (" ", "i", "W", "E")
"""Signs for the severity of findings."""
SIGN_STYLES: Final = ("", "dim", "note", "error")
PHASES: Final = {
    "opening": "joined", "connecting": "connecting", "connected": "connected", "refused": "refused",
    "disconnected": "disconnected",
}  # fmt: skip
CLOSED: Final = {
    "fin": "closed", "reset": "reset", "port_reused": "replaced", "idle": "silent", "evicted": "forgotten",
    "capture_end": "open",
}  # fmt: skip
"""Words for how connections ended."""


class RowLines:
    """Lines of rows in the form of ``inspect``, prefixed by signs.

    The prefix is a sign for the worst finding, and a star for a mark.  Lines that `inspect` would wrap are single lines
    that may be longer than the screen.
    """

    def __init__(self, index: Index, view: View) -> None:
        self.index = index
        self.view = view
        self.text = TextLines(BytesIO(), replace(view, width=view.width - 2 if view.width > 2 else view.width))
        self.painter = self.text.painter
        self._decoders = view.decoders()
        self._cached: OrderedDict[tuple[int, int, int, bool], str] = OrderedDict()

    def line(self, number: int, before: int | None = None, *, marked: bool = False) -> str:
        """Painted line of a row; ``before``: the row above it, for time differences."""
        row = self.index.rows[number]
        key = number, -1 if before is None else before, row.severity, marked
        known = self._cached.get(key)
        if known is not None:
            return known
        event = with_payload(self.index.event(number, row), self._decoders, show_secrets=self.view.show_secrets)
        heads = self.text.heads
        width = heads.name_width
        text = self._rendered(event, before)
        if heads.name_width != width:
            # The columns of all lines have moved.
            self._cached.clear()
            text = self._rendered(event, before)
        paint = self.painter.paint
        sign = paint(SIGNS[row.severity], SIGN_STYLES[row.severity])
        line = f"{sign}{paint('*', 'note') if marked else ' '}{text}"
        if len(self._cached) >= MAX_LINES:
            self._cached.popitem(last=False)
        self._cached[key] = line
        return line

    def _rendered(self, event: Event, before: int | None) -> str:
        time = self.text.heads.time
        if time.mode == "delta" and before is not None:
            time.text(self.index.rows[before].timestamp_ns)
        elif time.mode in ("delta", "relative"):
            self.text.heads.time = time = TimeColumn(self.view)
            if time.mode == "relative":
                time.text(self.index.first_ns)
        if isinstance(event, PacketEvent):
            return self.text.packet_text(event)
        if isinstance(event, ConnectionEnding | ConnectionClosed):
            text = self.text.heads.rule(event.timestamp_ns)
            notices.closed(text, event, self.painter)
        elif isinstance(event, ConnectionOpened):
            text = self.text.heads.rule(event.timestamp_ns)
            notices.opened(text, event, self.painter)
        else:
            # The pane cuts long lines.
            return " ".join(line.strip() if at else line for at, line in enumerate(self.text.other(event)))
        return " ".join(line.strip() if at else line for at, line in enumerate(text.texts()))


class ConnectionLines:
    """Lines of connections: number, state, findings, packets, client, broker and duration."""

    def __init__(self, index: Index, view: View) -> None:
        self.index = index
        self.view = view
        self.painter = TextLines(BytesIO(), view).painter

    def heading(self) -> str:
        return f"{'#':>6} {'end':<{STATE}} {'findings':<11} {'packets':>8}  client {self.painter.to_server} broker"

    def line(self, number: int) -> str:
        """Painted line of a connection."""
        index, painter = self.index, self.painter
        connection = index.connections[number]
        line = painter.line(self.view.width)
        errors, warnings, notes = (index.connections.findings[at][number] for at in (2, 1, 0))
        line.add(f"{number:>6} ", "dim")
        cause = index.explanations.causes.get(number)
        if cause is None:
            state, style = _state(connection, is_open=index.connections.is_open(number))
        else:
            state, style = TITLES[cause], "" if cause in QUIET else "error"
        line.add(f"{cut(state, STATE, painter.ellipsis):<{STATE}} ", style)
        width = 0
        for count, sign, look in ((errors, "E", "error"), (warnings, "W", "note"), (notes, "i", "dim")):
            if count:
                text = f"{sign}{count} "
                line.add(text, look)
                width += len(text)
        line.add(" " * max(0, 12 - width))
        packets = connection.client_side.packets + connection.server_side.packets
        line.add(f"{packets:>8}  ")
        name = connection.client_identifier
        if name is not None and not self.view.show_secrets:
            name = starred_name(name)
        line.add(painter.name(name or connection.client, 32), "client")
        if name and self.view.width >= WIDE_ENOUGH:
            line.add(f"  {painter.safe(connection.client)}", "dim")
        line.add(f" {painter.to_server} ", "dim")
        line.add(painter.safe(connection.server), "server")
        if connection.server_name and self.view.width >= WIDE_ENOUGH:
            line.add(f"  {painter.name(connection.server_name, 32)}", "dim")
        known = "" if connection.version_known else "?"
        line.add(f"  {connection.version.text}{known}", "dim")
        if connection.transport != "tcp":
            line.add(f" {connection.transport}", "dim")
        if index.connections.rows[number]:
            last_ns = index.rows[int(index.connections.last_rows[number])].timestamp_ns
            line.add(f"  {duration(max(0, last_ns - connection.opened_ns), unicode=painter.unicode)}", "dim")
        return str(line)


def _state(connection: Connection, *, is_open: bool) -> tuple[str, str]:
    how = connection.closed_how
    if how is not None and not (is_open and how == "capture_end"):
        word = CLOSED.get(how, how)
        if connection.phase == "refused":
            return "refused", "error"
        if how in ("fin", "reset") and connection.phase == "connected":
            return ("reset" if how == "reset" else "no DISCONNECT"), "error" if how == "reset" else "note"
        return word, "error" if how == "reset" else ""
    return PHASES.get(connection.phase, str(connection.phase)), ""


def progress(position: int, size: int, passed: float) -> str:
    """Share that was read, and after some seconds the remaining time."""
    if not size:
        return "reading"
    text = f"reading {min(99, position * 100 // size)} %"
    if passed < LEFT_AFTER_SECONDS or not 0 < position < size:
        return text
    left = round(passed * (size - position) / position)
    return f"{text}, {left // 60}:{left % 60:02} left"
