"""The screens of the browser: connections at the top, packets in the middle, the current packet at the bottom."""

from __future__ import annotations

import asyncio
import re
import time
from bisect import bisect_left, bisect_right
from dataclasses import replace
from typing import Any, ClassVar, Final

from textual import events
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.content import Content
from textual.widgets import Static

from mqttscope.browse import details
from mqttscope.browse.connection_list import ORDERS, ConnectionList
from mqttscope.browse.dialogs import ExportScreen, HelpScreen, Prompt
from mqttscope.browse.exporting import exported, fault_of_name
from mqttscope.browse.following import MAX_APART, MAX_ROWS, FollowedMessage, MessageSearch, partner
from mqttscope.browse.index import Index
from mqttscope.browse.lines import TIMES, ConnectionLines, RowLines, progress
from mqttscope.browse.overview import NO_FACTS, OverviewScreen
from mqttscope.browse.panes import BytesPane, LinePane
from mqttscope.browse.rows import RowKind
from mqttscope.browse.selection import Search, ShownRows
from mqttscope.browse.settings import BrowserSettings
from mqttscope.capture.write import write_file
from mqttscope.errors import MqttscopeError
from mqttscope.filter import ACKNOWLEDGED, Filter, FilterError
from mqttscope.filter import compile as compile_filter
from mqttscope.mqtt.view import utf8
from mqttscope.mqtt.wire import counted
from mqttscope.report.base import Clock
from mqttscope.report.escape import cut, escape
from mqttscope.report.tree import TreeLine
from mqttscope.secrets.credentials import starred_name
from mqttscope.secrets.findings import concealed

TICK_SECONDS: Final = 0.1
SLICE_SECONDS: Final = 0.006
"""Time for scanning rows before keys are handled."""
BREATH_SECONDS: Final = 0.003
SETTLE_SECONDS: Final = 0.02
"""Delay before the packet under the cursor is shown in full."""
MODES: Final = ("fields", "payload", "ladder", "found")
LEAST_CONNECTIONS: Final = 4
"""Minimum number of lines of the connections pane, including its title."""
NOTHING_FOUND: Final = "no finding for this packet; ] jumps to the next one"
NARROW: Final = 140
"""Number of columns below which a row has 8 bytes, so that fields have room for their values."""


class Browser(App[None]):
    """The browser."""

    TITLE = "mqttscope browse"
    ENABLE_COMMAND_PALETTE = False
    CSS = """
    Screen { layout: vertical; layers: below above; }
    #title, #status { height: 1; width: 100%; text-style: bold; }
    #status { text-style: none; }
    LinePane { border-top: solid ansi_blue; border-title-style: none; padding: 0; overflow-x: hidden;
               overflow-y: scroll; scrollbar-size-vertical: 1; }
    LinePane:focus { border-top: heavy ansi_default; border-title-style: bold; }
    #connections { height: 4; }
    #packets { height: 1fr; min-height: 4; }
    #below { height: 40%; min-height: 6; }
    #detail { width: 1fr; }
    #bytes { width: 73; }
    .narrow #bytes { width: 40; }
    #bytes.gone, #connections.gone, .gone { display: none; }
    #prompt { height: 2; display: none; }
    #prompt-note { height: 1; }
    #prompt-row { height: 1; }
    #prompt-label { width: auto; }
    #prompt-input { width: 1fr; }
    HelpScreen, ExportScreen { align: center middle; }
    #help, #export { width: 90%; max-width: 110; height: auto; max-height: 90%; border: solid ansi_blue; padding: 0 1; }
    #export { width: 60; }
    #forms { height: 7; border: none; }
    OverviewScreen { layout: vertical; background: ansi_default; }
    #overview { height: 1fr; }
    #overview-keys { height: 1; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q,ctrl+q,ctrl+c", "quit", "quit", priority=False),
        Binding("question_mark,f1", "help", "help"),
        Binding("0", "overview", "overview"),
        Binding("f", "ask_filter", "filter"),
        Binding("slash", "ask_search", "search"),
        Binding("colon", "ask_packet", "go to"),
        Binding("n", "again(False)", "next"),
        Binding("N", "again(True)", "previous"),
        Binding("right_square_bracket", "finding(1)", "next finding"),
        Binding("left_square_bracket", "finding(-1)", "previous finding"),
        Binding("p", "partner", "partner"),
        Binding("c", "only_connection", "connection"),
        Binding("x", "only_found", "with findings"),
        Binding("u", "only_marked", "marked"),
        Binding("d", "follow", "this message"),
        Binding("escape", "everything", "all"),
        Binding("1", "mode('fields')", "fields"),
        Binding("2", "mode('payload')", "payload"),
        Binding("3", "mode('ladder')", "ladder"),
        Binding("4", "mode('found')", "findings"),
        Binding("e", "mode('end')", "end"),
        Binding("s", "sort", "sort connections"),
        Binding("t", "time", "time"),
        Binding("v", "payload", "payload view"),
        Binding("z", "zoom", "zoom"),
        Binding("o", "connections", "connections"),
        Binding("m,space", "mark", "mark"),
        Binding("M", "unmark", "no marks"),
        Binding("w", "write", "write"),
        Binding("P,pause", "pause", "pause"),
    ]

    def __init__(self, opened: BrowserSettings) -> None:
        super().__init__()
        self.theme = "ansi-dark"
        self.opened = opened
        self.builder = opened.builder
        self.index: Index = opened.builder.index
        self.view = replace(opened.view, colour=opened.view.colour and not self.no_color)
        self.mode = "fields"
        self.wanted: Filter | None = compile_filter(opened.wanted, opened.view.payloads) if opened.wanted else None
        self.connection = opened.connection
        self.only_found = self.only_marked = False
        self.marks: set[int] = set()
        self.followed: FollowedMessage | None = None
        """Message that is shown alone."""
        self.selection = ShownRows(self.index, wanted=self.wanted, connection=self.connection)
        self.sought = ""
        self.paused = False
        self.detail: details.PacketDetails | None = None
        self._row = -1
        """Row that is shown in full; -1 without one."""
        self._places: list[range] = []
        """Byte range of each line of the detail."""
        self._rungs: list[details.LadderLine] = []
        self._remark = ""
        """Remark that is shown for the row."""
        self._lines = RowLines(self.index, self.view)
        self._connection_lines = ConnectionLines(self.index, self.view)
        self.listed = ConnectionList(self.index, lambda number: self._connection_lines.line(number))
        self._seek: int | None = None
        """Row for the cursor, once the selection contains it."""
        self._timer: Any = None
        self._started = time.monotonic()
        self._message = ""
        self._search: Search | None = None
        self._seen_done = self._fitting = self._is_shown = self._is_begun = False
        self._height = 0
        self.title_line, self.status_line = Static("", id="title", markup=False), Static("", id="status", markup=False)
        self.connections = LinePane("connections", id="connections")
        self.packets = LinePane("packets", id="packets")
        self.bottom = LinePane("fields", id="detail")
        """Pane of the current packet."""
        self.bytes_pane = BytesPane("bytes", id="bytes")
        self.prompt = Prompt()

    def compose(self) -> ComposeResult:
        """The panes."""
        yield self.title_line
        yield self.connections
        yield self.packets
        with Horizontal(id="below"):
            yield self.bottom
            yield self.bytes_pane
        yield self.prompt
        yield self.status_line

    def on_mount(self) -> None:
        """Show the panes, and start reading."""
        self.packets.focus()
        self.builder.start()
        self._resized()
        self.set_interval(TICK_SECONDS, self._tick)
        self.run_worker(self._scan(), group="scan", exclusive=True)
        for message in self.opened.messages:
            self.show_message(message)
        if self.opened.seconds is not None:
            self.set_timer(self.opened.seconds, self.exit)
        if self.opened.overview:
            self.action_overview()

    async def on_event(self, event: events.Event) -> None:
        """Give the processor to the screens during user input."""
        if isinstance(event, events.Key | events.MouseEvent):
            self.builder.give_way()
        await super().on_event(event)

    def on_line_pane_size_changed(self, event: LinePane.SizeChanged) -> None:
        if not self._fitting:
            self._fitting = True
            self.call_after_refresh(self._resized)

    def _resized(self) -> None:
        self._fitting = False
        width = self.size.width
        self.screen_stack[0].set_class(width < NARROW, "narrow")
        self._lines = RowLines(self.index, replace(self.view, width=max(20, self.packets.columns)))
        self._connection_lines = ConnectionLines(
            self.index, replace(self.view, width=max(20, self.connections.columns))
        )
        self._show_connections(self.connections.cursor)
        self._share_height()
        self._show_rows(self.packets.cursor)
        self._show_detail(force=True)

    def _show_connections(self, cursor: int = 0) -> None:
        self.listed.begin()
        title = " ".join(filter(None, ("connections", self.listed.title, self._connection_lines.heading().strip())))
        self.connections.border_title = Content(cut(title, max(10, self.size.width - 6), "…"))
        self.connections.show(lambda: len(self.listed) + 1, self._connection_line, cursor)

    def _share_height(self) -> None:
        """Fit the connections pane to its lines, up to a fifth of the screen."""
        most = max(LEAST_CONNECTIONS, self.size.height // 5)
        height = max(LEAST_CONNECTIONS, min(most, len(self.index.connections) + 2))
        if height != self._height:
            self._height = self.connections.styles.height = height

    def _connection_line(self, at: int) -> str:
        return self._connection_lines.line(self.listed[at - 1]) if at else "    all"

    def _row_line(self, at: int) -> str:
        row = self.selection[at]
        before = self.selection[at - 1] if at else None
        return self._lines.line(row, before, marked=row in self.marks)

    def _show_rows(self, cursor: int = 0) -> None:
        self.packets.show(lambda: len(self.selection), self._row_line, cursor)
        conditions = []
        if self.wanted is not None:
            conditions.append(f"filter {escape(self.wanted.text)}")
        if self.connection is not None:
            conditions.append(f"connection {self.connection}")
        conditions += ["with findings"] if self.only_found else []
        conditions += ["marked"] if self.only_marked else []
        conditions += ["one message"] if self.followed is not None else []
        title = cut(f"packets: {', '.join(conditions) or 'all'}", max(10, self.size.width - 6), "…")
        # Plain content: brackets in a filter are not markup.
        self.packets.border_title = Content(title)

    @property
    def row(self) -> int | None:
        at = self.packets.cursor
        return self.selection[at] if 0 <= at < len(self.selection) else None

    def show_message(self, message: str) -> None:
        """Show a message in the last line until the cursor moves."""
        self._message = message
        self._show_status()

    def _tick(self) -> None:
        """Show new rows and progress."""
        is_complete = self.builder.done and self.selection.is_complete
        following = self.opened.live and not self.paused and self.packets.cursor >= self.packets.count - 1
        grown = not self.paused and self.packets.grow()
        if grown and following:
            self.packets.move_to(len(self.selection) - 1, quiet=True)
            self._settle()
        until = time.monotonic() + SLICE_SECONDS
        if self.listed.advance(lambda: time.monotonic() >= until):
            self.connections.refresh()
        if self.connections.grow():
            self._share_height()
        if not self.builder.done or not self._seen_done:
            self._seen_done = self.builder.done
            if self._seen_done:
                self.listed.begin()
            self.connections.refresh()
            if self.builder.failure:
                self.show_message(self.builder.failure)
        if not self._is_begun and (
            len(self.selection) > 1 or (len(self.selection) and (self.builder.done or self.opened.live))
        ):
            # The first packet has fields to show, unlike the beginning of its connection.
            self._is_begun = True
            is_opened = self.index.rows[self.selection[0]].kind == RowKind.OPENED
            if is_opened and not self.packets.cursor and len(self.selection) > 1 and not self.opened.live:
                self.packets.move_to(1, quiet=True)
            self._show_detail()
        elif self._row < 0 and len(self.selection):
            self._show_detail()
        elif self._remark and self._row >= 0 and self.index.remark(self._row) != self._remark:
            self._show_detail(force=True)
        self._show_title()
        self._show_status()
        self._is_shown = is_complete

    def _show_title(self) -> None:
        index, builder = self.index, self.builder
        parts = [self.opened.title, counted(index.packets, "packet"), counted(len(index.connections), "connection")]
        counts = [sum(column) for column in index.connections.findings]
        signs = [f"{sign}{count}" for sign, count in zip("EWi", counts[::-1], strict=True) if count]
        parts += [" ".join(signs)] if signs else []
        if index.findings.left_out:
            parts.append(f"limit: {counted(index.findings.left_out, 'more finding')} not shown")
        if not builder.done:
            reading = progress(builder.position, self.opened.size, time.monotonic() - self._started)
            parts.append("paused" if self.paused else "live" if self.opened.live else reading)
        elif self.opened.live:
            parts.append("ended")
        if not self.selection.is_complete:
            parts.append(f"filtering {self.selection.scanned:.0%}")
        if not self.selection.everything:
            parts.append(f"{len(self.selection):,} shown")
        if self.marks:
            parts.append(f"{len(self.marks):,} marked")
        text = " · ".join(parts) if self.view.unicode else "; ".join(parts)
        _put(self.title_line, cut(text, max(10, self.size.width), "…"))

    def _show_status(self) -> None:
        width = max(10, self.size.width)
        text = self._message
        row = self.row
        if not text and row is not None and row < len(self.index.rows):
            held = self.index.rows[row]
            what = f"packet {held.number}" if held.kind <= RowKind.MALFORMED else "event"
            text = f"{what}, frame {held.frame}, {Clock().iso(held.timestamp_ns)}, #{held.connection}"
            if held.kind >= RowKind.ERROR:
                text = escape(utf8(self.index.captures[held.capture]))
            findings = self.index.findings.of_row(row)[:1] if held.severity else []
            for finding in findings:
                shown = concealed(finding, self.view.hiding()).finding
                text = f"{shown.rule} {escape(shown.message)}; {text}"
        elif not text:
            text = "nothing matches; Esc shows all" if not self.selection.everything else "no MQTT packets yet"
            if self.builder.done and self.selection.everything:
                text = "no MQTT found"
        hint = "? help  q quit"
        room = width - len(hint) - 2
        shown_text = cut(text, room, "…") if room > 10 else ""
        _put(self.status_line, f"{shown_text:<{max(0, room)}}  {hint}")

    async def _scan(self) -> None:
        """Search for matching rows, alternating with key handling."""
        while True:
            selection = self.selection
            if selection.is_complete:
                await asyncio.sleep(0.05)
                self._sought_row()
                continue
            until = time.monotonic() + SLICE_SECONDS
            while not selection.is_complete and time.monotonic() < until:
                selection.advance(64)
            self._sought_row()
            await asyncio.sleep(BREATH_SECONDS)

    def _sought_row(self) -> None:
        """Move the cursor to the row from before the selection changed, once it is found."""
        seek, selection = self._seek, self.selection
        if seek is None:
            return
        if selection.is_complete and not len(selection):
            self._seek = None
            self._settle()
        elif len(selection) and (selection.is_complete or selection[len(selection) - 1] >= seek):
            self._seek = None
            self.packets.grow()
            self.packets.move_to(min(selection.place(seek), len(selection) - 1), quiet=True)
            self._settle()

    def _select(self) -> None:
        """Select rows again with the current conditions."""
        before = self.row
        rows = self.followed.rows if self.followed is not None else set(self.marks) if self.only_marked else None
        self.selection = ShownRows(
            self.index, wanted=self.wanted, connection=self.connection, with_findings=self.only_found, rows=rows
        )
        self._is_shown, self._seek = False, before
        self._search = None
        self._message = ""
        self._show_rows(0 if before is None or not self.selection.everything else before)
        self._settle()
        self._show_title()

    def on_line_pane_moved(self, event: LinePane.Moved) -> None:
        """The cursor of a pane moved: update the other panes."""
        pane = event.pane
        if pane.id == "packets":
            self._message = ""
            self._seek = None
            self._settle()
        elif pane.id == "connections":
            if self.mode == "end":
                self._show_detail(force=True)
        elif pane.id == "detail":
            at = pane.cursor
            if at < len(self._places):
                self.bytes_pane.mark(self._places[at])
        elif pane.id == "bytes":
            offset = self.bytes_pane.offset_at
            containing = [at for at, place in enumerate(self._places) if offset in place]
            if containing:
                least = min(containing, key=lambda at: (len(self._places[at]), at))
                self.bytes_pane.marked = self._places[least]
                self.bottom.link(range(least, least + 1))
                self.bytes_pane.refresh()

    def on_line_pane_chosen(self, event: LinePane.Chosen) -> None:
        """A line was chosen."""
        pane = event.pane
        if pane.id == "connections":
            self.connection = None if not pane.cursor else self.listed[pane.cursor - 1]
            self._select()
            self.packets.focus()
        elif pane.id == "packets":
            self.bottom.focus()
        elif pane.id == "detail" and self.mode in ("ladder", "end") and pane.cursor < len(self._rungs):
            rung = self._rungs[pane.cursor]
            if rung.row >= 0:
                self._jump(rung.row)

    def _settle(self) -> None:
        """Show the packet under the cursor in full after a delay."""
        if self._timer is not None:
            self._timer.stop()
        self._timer = self.set_timer(SETTLE_SECONDS, self._show_detail)
        self._show_status()

    def _show_detail(self, *, force: bool = False) -> None:
        self._timer = None
        row = self.row
        if row is None or row >= len(self.index.rows):
            self._row, self._places, self._rungs, self.detail, self._remark = -1, [], [], None, ""
            self.bottom.show_lines([])
            self.bytes_pane.show_bytes(b"", [])
            return
        if row == self._row and not force:
            return
        self._row = row
        self.bytes_pane.set_class(self.mode in ("ladder", "end"), "gone")
        view = replace(self.view, width=max(20, self.bottom.columns))
        detail = self.detail = details.detail(self.index, row, view)
        self.bytes_pane.show_bytes(detail.raw, detail.hidden)
        self._rungs = []
        cursor, lines = 0, detail.lines
        self._remark = self.index.remark(row)
        if self.mode == "payload":
            lines = details.payload_lines(detail.event, view, self.index.lacks)
        elif self.mode == "found":
            findings = self.index.findings.of_row(row)
            lines = details.finding_lines(findings, view) if findings else details.sentence_lines(NOTHING_FOUND, view)
        elif self.mode in ("ladder", "end"):
            held = self.index.rows[row]
            if held.kind >= RowKind.ERROR:
                lines = [TreeLine("no connection")]
            elif self.mode == "end":
                at = self.connections.cursor if self.focused is self.connections else 0
                self._rungs = details.end_lines(self.index, self.listed[at - 1] if at else held.connection, view)
                lines = [TreeLine(rung.text) for rung in self._rungs]
            else:
                self._rungs = details.ladder_lines(self.index, held.connection, row, view)
                lines = [TreeLine(rung.text) for rung in self._rungs]
                cursor = next((at for at, rung in enumerate(self._rungs) if rung.row == row), 0)
        if self.mode in ("fields", "payload") and self._remark:
            lines = [*details.sentence_lines(self._remark, view), *lines]
        self._places = [range(max(0, line.start), max(0, line.end)) for line in lines]
        self.bottom.show_lines([line.text for line in lines], cursor)
        kind = f" ({self.view.payload})" if self.mode == "payload" and self.bottom.columns > 50 else ""
        names = [f"{name.upper()}{kind}" if name == self.mode else name for name in MODES]
        title = " ".join(f"{at} {name}" for at, name in enumerate(names, 1))
        end = f" e {'END' if self.mode == 'end' else 'end'}"
        self.bottom.border_title = title + (end if len(title + end) + 4 <= self.bottom.columns else "")
        if self.mode in ("payload", "found") and self._places:
            self.bytes_pane.mark(next((place for place in self._places if place), range(0)))

    def _jump(self, row: int) -> None:
        """Move the cursor to a row, after clearing the selection if it lacks the row."""
        if not self.selection.has(row):
            self._ask_nothing()
            self._select()
            self._seek = None
        self.packets.grow()
        self.packets.move_to(self.selection.place(row), quiet=True)
        self._message = ""
        self._settle()

    @property
    def is_settled(self) -> bool:
        """Whether reading, searching and showing are finished."""
        is_busy = any(worker.group != "scan" and not worker.is_finished for worker in self.workers)
        is_shown = self._is_shown and self._is_begun >= bool(self.selection) and self.listed.is_complete
        return is_shown and self._seek is None and self._timer is None and not self._fitting and not is_busy

    def action_help(self) -> None:
        self.push_screen(HelpScreen())

    def action_overview(self) -> None:
        """Show the overview, if there are facts for it."""
        if self.builder.read_facts(bool) is None:
            self.show_message(NO_FACTS)
        else:
            self.push_screen(OverviewScreen(self.opened, self.view))

    def action_ask_filter(self) -> None:
        """Ask for a filter of packets, or in the connections pane for words of connections."""
        if self.focused is self.connections:
            self.prompt.ask("connections", " ".join(self.listed.words))
        else:
            self.prompt.ask("filter", "" if self.wanted is None else self.wanted.text)

    def action_sort(self) -> None:
        """List the connections in the next order."""
        self.listed.order = ORDERS[(ORDERS.index(self.listed.order) + 1) % len(ORDERS)]
        self._show_connections()
        self.show_message(f"connections by {self.listed.order}")

    def action_ask_search(self) -> None:
        """Ask for a text; an empty one repeats the search."""
        self.prompt.ask("search")

    def action_ask_packet(self) -> None:
        self.prompt.ask("packet")

    def on_prompt_left(self) -> None:
        self.packets.focus()

    def on_prompt_answered(self, event: Prompt.Answered) -> None:
        """Handle an answer of the prompt."""
        self.packets.focus()
        text = event.text.strip()
        if event.asked == "filter":
            self.filter_by(text)
        elif event.asked == "connections":
            self.listed.words = tuple(text.lower().split())
            self._show_connections()
            self.connections.focus()
        elif event.asked == "search":
            self.sought = event.text or self.sought
            self._look(back=False)
        elif event.asked == "packet":
            number = text.removeprefix("#").replace(",", "")
            row = self.index.rows.of_packet(int(number)) if number.isdecimal() and len(number) < 11 else None
            if row is None:
                self.show_message(f"packet {escape(text)} does not exist")
            else:
                self._jump(row)

    def filter_by(self, text: str) -> None:
        """Show only rows that match an expression, or all rows if it is empty."""
        try:
            wanted = compile_filter(text, self.view.payloads) if text else None
        except FilterError as error:
            self.show_message(escape(error.message))
            return
        if wanted is not None and ACKNOWLEDGED in wanted.asked:
            self.show_message(f"only inspect supports the field {ACKNOWLEDGED}")
            return
        self.wanted = wanted
        if self.wanted is not None:
            self.wanted.start_ns = self.index.first_ns
        self._select()
        if self.index.lacks and re.search(r"\bpayload\b", text):
            self.show_message(self.index.lacks)

    def action_again(self, back: bool) -> None:
        """Repeat the last search."""
        if self.sought:
            self._look(back=back)
        else:
            self.action_ask_search()

    def _look(self, *, back: bool) -> None:
        if not self.sought:
            return
        start = self.packets.cursor
        self._search = Search(self.selection, self.sought, start, back=back, show_secrets=self.view.show_secrets)
        self.run_worker(self._looking(self._search), group="search", exclusive=True)

    async def _looking(self, search: Search) -> None:
        """Search the packets, alternating with key handling."""
        while not search.is_over and self._search is search:
            until = time.monotonic() + SLICE_SECONDS
            search.advance(lambda: time.monotonic() >= until)  # noqa: B023 - called before the next round
            self.show_message(f"searching {escape(search.text)}, {search.share:.0%}")
            await asyncio.sleep(BREATH_SECONDS)
        if self._search is not search:
            return
        if search.match is None:
            lacks = f"; {self.index.lacks}" if self.index.lacks else ""
            lacks += search.left_out
            self.show_message(f"{escape(search.text)} not found in topics and payloads{lacks}")
            return
        self.packets.move_to(search.match, quiet=True)
        self._settle()
        self.show_message(
            f"found{', from the other end' if search.wrapped else ''}: {escape(search.text)}; n, N: next, previous"
        )

    def action_finding(self, way: int) -> None:
        """Go to the next or previous finding, and explain it."""
        rows = self.index.findings.rows
        row = -1 if self.row is None else self.row
        at = bisect_right(rows, row) if way > 0 else bisect_left(rows, row) - 1
        while 0 <= at < len(rows) and not self.selection.has(int(rows[at])):
            at += way
        if not 0 <= at < len(rows):
            self.show_message(
                "no further finding" if len(rows) else "no finding yet" if not self.builder.done else "no finding"
            )
            return
        self.mode = "found"
        self._row = -1
        self._jump(int(rows[at]))

    def action_partner(self) -> None:
        """Go to the next packet of the exchange."""
        row = self.row
        partner_row = None if row is None else partner(self.index, row)
        if partner_row is None:
            self.show_message(f"this packet has no exchange, or no answer in the next {MAX_APART:,} rows")
        elif not self.selection.has(partner_row):
            self.show_message(
                f"packet {self.index.rows[partner_row].number} of this exchange is not shown; Esc shows all"
            )
        else:
            self._jump(partner_row)

    def action_only_connection(self) -> None:
        """Show only the connection of this packet, or all connections again."""
        row = self.row
        if self.connection is not None:
            self.connection = None
        elif row is not None and self.index.rows[row].kind < RowKind.ERROR:
            self.connection = self.index.rows[row].connection
        self._select()

    def action_only_found(self) -> None:
        self.only_found = not self.only_found
        self._select()

    def action_only_marked(self) -> None:
        """Show only marked packets, or all packets again."""
        if not self.marks and not self.only_marked:
            self.show_message("nothing is marked; m marks a packet")
            return
        self.only_marked = not self.only_marked
        self._select()

    def action_everything(self) -> None:
        self._ask_nothing()
        self._select()
        self.packets.focus()

    def _ask_nothing(self) -> None:
        self.wanted, self.connection, self.followed, self.only_found, self.only_marked = None, None, None, False, False

    def action_follow(self) -> None:
        """Show only the message of this packet, from publisher to subscribers, or all packets again."""
        row = self.row
        if self.followed is not None:
            self.followed = None
            self._select()
        elif row is None or not MessageSearch.starts_at(self.index, row):
            self.show_message("only a PUBLISH with a topic can be followed; p jumps to the PUBLISH of this packet")
        else:
            self.show_message("following the message")
            self.run_worker(self._follow(MessageSearch(self.index, row)), group="search", exclusive=True)

    async def _follow(self, following: MessageSearch) -> None:
        """Search for the packets of a message, alternating with key handling."""
        while not following.is_over:
            until = time.monotonic() + SLICE_SECONDS
            while not following.is_over and time.monotonic() < until:
                following.advance(64)
            await asyncio.sleep(BREATH_SECONDS)
        followed = self.followed = following.message
        self._select()
        by = "by an uncaptured client, or earlier"
        if followed.publisher is not None:
            row = self.index.rows[followed.publisher]
            known = self.index.connections[row.connection]
            by = f"by {escape(starred_name(known.client_identifier or known.client))} in packet {row.number}"
        within = f" within {MAX_ROWS:,} rows" if followed.is_cut else ""
        self.show_message(
            f"published {by}; delivered to {counted(followed.deliveries, 'client')}{within}; Esc shows all"
        )

    def action_mode(self, mode: str) -> None:
        """Show another view of the packet."""
        self.mode = mode
        self._show_detail(force=True)
        # The number of columns changes when the bytes pane appears or disappears.
        self.call_after_refresh(self._show_detail, force=True)

    def action_time(self) -> None:
        self.view.time = TIMES[(TIMES.index(self.view.time) + 1) % len(TIMES)]
        self._resized()
        self.show_message(f"time: {self.view.time}")

    def action_payload(self) -> None:
        """Switch to the next payload view."""
        self.view.payload = details.PAYLOADS[(details.PAYLOADS.index(self.view.payload) + 1) % len(details.PAYLOADS)]
        self.mode = "payload"
        self._resized()
        self.show_message(f"payload as {self.view.payload}")

    def action_zoom(self) -> None:
        """Show one pane alone, or all panes again."""
        if self.screen.maximized is not None:
            self.screen.minimize()
        elif isinstance(self.focused, LinePane):
            self.screen.maximize(self.focused)
        self.call_after_refresh(self._resized)

    def action_connections(self) -> None:
        """Hide or show the connections."""
        self.connections.toggle_class("gone")
        if self.focused is self.connections:
            self.packets.focus()
        self.call_after_refresh(self._resized)

    def action_mark(self) -> None:
        """Mark the packet, or remove its mark, and go to the next."""
        row = self.row
        if row is not None:
            self.marks ^= {row}
            self.packets.refresh()
            self.packets.move_to(self.packets.cursor + 1)

    def action_unmark(self) -> None:
        """Remove all marks."""
        self.marks.clear()
        if self.only_marked:
            self.action_only_marked()
        self.packets.refresh()

    def action_pause(self) -> None:
        """Pause or resume the display."""
        if not self.opened.live:
            self.show_message("only a live capture can be paused")
            return
        self.paused = not self.paused
        if not self.paused:
            self.packets.grow()
            self.packets.move_to(len(self.selection) - 1)
        self._show_title()

    def action_write(self) -> None:
        """Ask for format and file of an export."""
        rows = sorted(self.marks) or ([] if self.row is None else [self.row])
        if not rows:
            self.show_message("there is nothing to write")
            return
        subject = counted(len(rows), "marked packet") if self.marks else "this packet"
        without = self.opened.no_frames if self.opened.write_frames is None else ""
        self.push_screen(
            ExportScreen(subject, lambda name: fault_of_name(name, self.index.captures), without_frames=without),
            lambda chosen: self._write(rows, chosen),
        )

    def _write(self, rows: list[int], chosen: tuple[str, str] | None) -> None:
        if chosen is None:
            return
        form, name = chosen
        if form == "pcapng":
            self.show_message(f"writing {escape(name)}")
            numbers = [self.index.rows[row].number for row in rows if self.index.rows[row].kind <= RowKind.MALFORMED]
            self.run_worker(self._write_frames(numbers, name), group="write", exclusive=True)
            return
        lines = list(exported(self.index, rows, form, self.view))
        try:
            write_file(name, "".join(f"{line}\n" for line in lines).encode("utf-8", "replace"))
        except (OSError, ValueError) as error:
            self.show_message(f"{escape(name)}: {getattr(error, 'strerror', None) or error}")
            return
        self.show_message(f"{counted(len(rows), 'row')} written to {escape(name)}")

    async def _write_frames(self, numbers: list[int], name: str) -> None:
        write = self.opened.write_frames
        assert write is not None
        try:
            frames = await asyncio.to_thread(write, numbers, name)
        except (MqttscopeError, OSError, ValueError) as error:
            self.show_message(escape(str(getattr(error, "message", None) or error)))
            return
        self.show_message(f"{counted(frames, 'frame')} written unredacted to {escape(name)}, including passwords")


def _put(line: Static, text: str) -> None:
    if line.content != text:  # without a new layout
        line.update(text, layout=False)


def browse(opened: BrowserSettings) -> int:
    """Run the browser until the user quits; returns non-zero after an internal error, which the browser has shown."""
    browser = Browser(opened)
    try:
        browser.run()
    finally:
        opened.builder.stop()
    return browser.return_code or 0
