"""The screens of the browser: connections above, packets in the middle, the chosen packet below."""

from __future__ import annotations

import asyncio
import re
import time
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Final, Protocol

from textual import events
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.content import Content
from textual.widgets import Static

from mqttscope.browse import details
from mqttscope.browse.building import Filling
from mqttscope.browse.dialogs import ExportScreen, HelpScreen, Prompt
from mqttscope.browse.exporting import exported, fault_of_name
from mqttscope.browse.following import MAX_APART, MAX_ROWS, Followed, Following, partner
from mqttscope.browse.index import Index
from mqttscope.browse.lines import TIMES, ConnectionLines, RowLines
from mqttscope.browse.panes import BytesPane, LinePane
from mqttscope.browse.rows import RowKind
from mqttscope.browse.selection import Search, Selection
from mqttscope.capture.write import write_file
from mqttscope.errors import MqttscopeError
from mqttscope.filter import ACKNOWLEDGED, Filter, FilterError
from mqttscope.filter import compile as compile_filter
from mqttscope.mqtt.view import utf8
from mqttscope.mqtt.wire import counted
from mqttscope.report.base import Clock, View
from mqttscope.report.escape import cut, escape
from mqttscope.report.tree import TreeLine
from mqttscope.secrets.credentials import starred_name
from mqttscope.secrets.findings import concealed

TICK_SECONDS: Final = 0.1
SLICE_SECONDS: Final = 0.006
"""So long rows are looked through before the keys have their turn."""
BREATH_SECONDS: Final = 0.003
SETTLE_SECONDS: Final = 0.02
"""So long a cursor rests before the packet under it is shown in full."""
LEFT_AFTER_SECONDS: Final = 2.0
"""Seconds of reading after which the remaining time is shown."""
MODES: Final = ("fields", "payload", "ladder", "found")
LEAST_CONNECTIONS: Final = 4
"""Lines of the pane of connections, its title among them."""
NOTHING_FOUND: Final = "no finding about this packet; ] goes to the next"
NARROW: Final = 140
"""Below this many columns a row of bytes has 8 of them, so that fields have room for their values."""


class WriteFrames(Protocol):
    """Writes the frames of packets to a pcapng file."""

    def __call__(self, packets: Sequence[int], path: str) -> int:
        """Write those of the packets with these numbers; returns how many frames these are."""


@dataclass(slots=True)
class Opened:
    """What is browsed, and how it is looked at."""

    title: str
    builder: Filling
    view: View
    write_frames: WriteFrames | None = None
    """``None`` where there are no frames to write."""
    no_frames: str = "there are no frames to write here"
    """What is said then."""
    live: bool = False
    wanted: str = ""
    """The filter to begin with."""
    connection: int | None = None
    size: int = 0
    """Bytes that there are to read, or rows of a lake."""
    said: list[str] = field(default_factory=list)
    """What the user has to know at the beginning."""


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
    #prompt-said { height: 1; }
    #prompt-row { height: 1; }
    #prompt-label { width: auto; }
    #prompt-input { width: 1fr; }
    HelpScreen, ExportScreen { align: center middle; }
    #help, #export { width: 90%; max-width: 110; height: auto; max-height: 90%; border: solid ansi_blue; padding: 0 1; }
    #export { width: 60; }
    #forms { height: 7; border: none; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q,ctrl+q,ctrl+c", "quit", "quit", priority=False),
        Binding("question_mark,f1", "help", "help"),
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
        Binding("t", "time", "time"),
        Binding("v", "payload", "payload view"),
        Binding("z", "zoom", "zoom"),
        Binding("o", "connections", "connections"),
        Binding("m,space", "mark", "mark"),
        Binding("M", "unmark", "no marks"),
        Binding("w", "write", "write"),
        Binding("P,pause", "pause", "pause"),
    ]

    def __init__(self, opened: Opened) -> None:
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
        self.followed: Followed | None = None
        """The message that is shown alone."""
        self.selection = Selection(self.index, wanted=self.wanted, connection=self.connection)
        self.sought = ""
        self.paused = False
        self.detail: details.Detail | None = None
        self._row = -1
        """The row that is shown in full; -1 while there is none."""
        self._places: list[range] = []
        """The bytes of each line of the detail."""
        self._rungs: list[details.Rung] = []
        self._remark = ""
        """What was said of the row."""
        self._lines = RowLines(self.index, self.view)
        self._connection_lines = ConnectionLines(self.index, self.view)
        self._seek: int | None = None
        """The row that the cursor is to be on once it is found in the selection."""
        self._timer: Any = None
        self._started = time.monotonic()
        self._said = ""
        self._search: Search | None = None
        self._seen_done = self._fitting = self._is_shown = False
        self._height = 0
        self.title_line, self.status_line = Static("", id="title", markup=False), Static("", id="status", markup=False)
        self.connections = LinePane("connections", id="connections")
        self.packets = LinePane("packets", id="packets")
        self.bottom = LinePane("fields", id="detail")
        """The chosen packet."""
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
        """Show what there is, and begin to read."""
        self.packets.focus()
        self.builder.start()
        self._resized()
        self.set_interval(TICK_SECONDS, self._tick)
        self.run_worker(self._scan(), group="scan", exclusive=True)
        for one in self.opened.said:
            self.say(one)

    async def on_event(self, event: events.Event) -> None:
        """Leave the processor to the screens while somebody uses them."""
        if isinstance(event, events.Key | events.MouseEvent):
            self.builder.give_way()
        await super().on_event(event)

    def on_line_pane_fitted(self, event: LinePane.Fitted) -> None:
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
        self.connections.border_title = Content(f"connections {self._connection_lines.heading().strip()}")
        self.connections.show(lambda: len(self.index.connections) + 1, self._connection_line, self.connections.cursor)
        self._share_height()
        self._show_rows(self.packets.cursor)
        self._show_detail(force=True)

    def _share_height(self) -> None:
        """Give the connections as many lines as they need, up to a fifth of the screen."""
        most = max(LEAST_CONNECTIONS, self.size.height // 5)
        height = max(LEAST_CONNECTIONS, min(most, len(self.index.connections) + 2))
        if height != self._height:
            self._height = self.connections.styles.height = height

    def _connection_line(self, at: int) -> str:
        return self._connection_lines.line(at - 1) if at else "    all"

    def _row_line(self, at: int) -> str:
        row = self.selection[at]
        before = self.selection[at - 1] if at else None
        return self._lines.line(row, before, marked=row in self.marks)

    def _show_rows(self, cursor: int = 0) -> None:
        self.packets.show(lambda: len(self.selection), self._row_line, cursor)
        told = []
        if self.wanted is not None:
            told.append(f"filter {escape(self.wanted.text)}")
        if self.connection is not None:
            told.append(f"connection {self.connection}")
        told += ["with findings"] if self.only_found else []
        told += ["marked"] if self.only_marked else []
        told += ["one message"] if self.followed is not None else []
        title = cut(f"packets: {', '.join(told) or 'all'}", max(10, self.size.width - 6), "…")
        # As it is: what stands in brackets in a filter is no markup.
        self.packets.border_title = Content(title)

    @property
    def row(self) -> int | None:
        at = self.packets.cursor
        return self.selection[at] if 0 <= at < len(self.selection) else None

    def say(self, told: str) -> None:
        """Say something in the last line, until the cursor moves."""
        self._said = told
        self._show_status()

    def _tick(self) -> None:
        """Look what has come meanwhile."""
        is_complete = self.builder.done and self.selection.is_complete
        following = self.opened.live and not self.paused and self.packets.cursor >= self.packets.count - 1
        grown = not self.paused and self.packets.grow()
        if grown and following:
            self.packets.move_to(len(self.selection) - 1, quiet=True)
            self._settle()
        if self.connections.grow():
            self._share_height()
        if not self.builder.done or not self._seen_done:
            self._seen_done = self.builder.done
            self.connections.refresh()
            if self.builder.failure:
                self.say(self.builder.failure)
        if self._row < 0 and len(self.selection):
            self._show_detail()
        elif self._remark and self._row >= 0 and self.index.remark(self._row) != self._remark:
            self._show_detail(force=True)
        self._show_title()
        self._show_status()
        self._is_shown = is_complete

    def _show_title(self) -> None:
        index, builder = self.index, self.builder
        told = [self.opened.title, counted(index.packets, "packet"), counted(len(index.connections), "connection")]
        found = [sum(column) for column in index.connections.findings]
        signs = [f"{sign}{count}" for sign, count in zip("EWi", found[::-1], strict=True) if count]
        told += [" ".join(signs)] if signs else []
        if index.findings.left_out:
            told.append(f"limit: {counted(index.findings.left_out, 'more finding')} not shown")
        if not builder.done:
            told.append("paused" if self.paused else "live" if self.opened.live else self._progress())
        elif self.opened.live:
            told.append("ended")
        if not self.selection.is_complete:
            told.append(f"filtering {self.selection.scanned:.0%}")
        if not self.selection.everything:
            told.append(f"{len(self.selection):,} shown")
        if self.marks:
            told.append(f"{len(self.marks):,} marked")
        text = " · ".join(told) if self.view.unicode else "; ".join(told)
        _put(self.title_line, cut(text, max(10, self.size.width), "…"))

    def _progress(self) -> str:
        return progress(self.builder.position, self.opened.size, time.monotonic() - self._started)

    def _show_status(self) -> None:
        width = max(10, self.size.width)
        text = self._said
        row = self.row
        if not text and row is not None and row < len(self.index.rows):
            held = self.index.rows[row]
            what = f"packet {held.number}" if held.kind <= RowKind.MALFORMED else "event"
            text = f"{what}, frame {held.frame}, {Clock().iso(held.timestamp_ns)}, #{held.connection}"
            if held.kind >= RowKind.ERROR:
                text = escape(utf8(self.index.captures[held.capture]))
            found = self.index.findings.of_row(row)[:1] if held.severity else []
            for one in found:
                shown = concealed(one, self.view.hiding()).finding
                text = f"{shown.rule} {escape(shown.message)}; {text}"
        elif not text:
            text = "nothing matches; Esc shows all" if not self.selection.everything else "no MQTT so far"
            if self.builder.done and self.selection.everything:
                text = "no MQTT found"
        hint = "? help  q quit"
        room = width - len(hint) - 2
        shown_text = cut(text, room, "…") if room > 10 else ""
        _put(self.status_line, f"{shown_text:<{max(0, room)}}  {hint}")

    async def _scan(self) -> None:
        """Look through rows for those that match, in turn with the keys."""
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
        """Put the cursor on the row that was looked at before the selection changed, once that is found."""
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
        """Look through the rows again, for what is asked for now."""
        before = self.row
        rows = self.followed.rows if self.followed is not None else set(self.marks) if self.only_marked else None
        self.selection = Selection(
            self.index, wanted=self.wanted, connection=self.connection, found=self.only_found, rows=rows
        )
        self._is_shown, self._seek = False, before
        self._search = None
        self._said = ""
        self._show_rows(0 if before is None or not self.selection.everything else before)
        self._settle()
        self._show_title()

    def on_line_pane_moved(self, event: LinePane.Moved) -> None:
        """The cursor of a pane moved: show what belongs to it."""
        pane = event.pane
        if pane.id == "packets":
            self._said = ""
            self._seek = None
            self._settle()
        elif pane.id == "detail":
            at = pane.cursor
            if at < len(self._places):
                self.bytes_pane.mark(self._places[at])
        elif pane.id == "bytes":
            offset = self.bytes_pane.offset_at
            found = [at for at, place in enumerate(self._places) if offset in place]
            if found:
                least = min(found, key=lambda at: (len(self._places[at]), at))
                self.bytes_pane.marked = self._places[least]
                self.bottom.link(range(least, least + 1))
                self.bytes_pane.refresh()

    def on_line_pane_chosen(self, event: LinePane.Chosen) -> None:
        """A line was chosen."""
        pane = event.pane
        if pane.id == "connections":
            self.connection = None if not pane.cursor else pane.cursor - 1
            self._select()
            self.packets.focus()
        elif pane.id == "packets":
            self.bottom.focus()
        elif pane.id == "detail" and self.mode == "ladder" and pane.cursor < len(self._rungs):
            rung = self._rungs[pane.cursor]
            if rung.row >= 0:
                self._jump(rung.row)

    def _settle(self) -> None:
        """Show the packet of the cursor in full, once the cursor rests."""
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
        self.bytes_pane.set_class(self.mode == "ladder", "gone")
        view = replace(self.view, width=max(20, self.bottom.columns))
        made = self.detail = details.detail(self.index, row, view)
        self.bytes_pane.show_bytes(made.raw, made.hidden)
        self._rungs = []
        cursor, lines = 0, made.lines
        self._remark = self.index.remark(row)
        if self.mode == "payload":
            lines = details.payload_lines(made.event, view, self.index.lacks)
        elif self.mode == "found":
            found = self.index.findings.of_row(row)
            lines = details.finding_lines(found, view) if found else details.said_lines(NOTHING_FOUND, view)
        elif self.mode == "ladder":
            held = self.index.rows[row]
            if held.kind >= RowKind.ERROR:
                lines = [TreeLine("no connection")]
            else:
                self._rungs = details.ladder_lines(self.index, held.connection, row, view)
                lines = [TreeLine(one.text) for one in self._rungs]
                cursor = next((at for at, one in enumerate(self._rungs) if one.row == row), 0)
        if self.mode in ("fields", "payload") and self._remark:
            lines = [*details.said_lines(self._remark, view), *lines]
        self._places = [range(max(0, one.start), max(0, one.end)) for one in lines]
        self.bottom.show_lines([one.text for one in lines], cursor)
        kind = f" ({self.view.payload})" if self.mode == "payload" and self.bottom.columns > 50 else ""
        names = [f"{name.upper()}{kind}" if name == self.mode else name for name in MODES]
        self.bottom.border_title = " ".join(f"{at} {name}" for at, name in enumerate(names, 1))
        if self.mode in ("payload", "found") and self._places:
            self.bytes_pane.mark(next((place for place in self._places if place), range(0)))

    def _jump(self, row: int) -> None:
        """Put the cursor on a row; all rows are shown again where it is not among those that are."""
        if not self.selection.has(row):
            self._ask_nothing()
            self._select()
            self._seek = None
        self.packets.grow()
        self.packets.move_to(self.selection.place(row), quiet=True)
        self._said = ""
        self._settle()

    @property
    def is_settled(self) -> bool:
        """Whether nothing is left to read, to look through or to show."""
        is_busy = any(worker.group != "scan" and not worker.is_finished for worker in self.workers)
        return self._is_shown and self._seek is None and self._timer is None and not self._fitting and not is_busy

    def action_help(self) -> None:
        self.push_screen(HelpScreen())

    def action_ask_filter(self) -> None:
        self.prompt.ask("filter", "" if self.wanted is None else self.wanted.text)

    def action_ask_search(self) -> None:
        """Ask for a text; none is the one before."""
        self.prompt.ask("search")

    def action_ask_packet(self) -> None:
        self.prompt.ask("packet")

    def on_prompt_left(self) -> None:
        self.packets.focus()

    def on_prompt_answered(self, event: Prompt.Answered) -> None:
        """Do what was asked for."""
        self.packets.focus()
        text = event.text.strip()
        if event.asked == "filter":
            self.filter_by(text)
        elif event.asked == "search":
            self.sought = event.text or self.sought
            self._look(back=False)
        elif event.asked == "packet":
            number = text.removeprefix("#").replace(",", "")
            row = self.index.rows.of_packet(int(number)) if number.isdecimal() and len(number) < 11 else None
            if row is None:
                self.say(f"there is no packet {escape(text)}")
            else:
                self._jump(row)

    def filter_by(self, text: str) -> None:
        """Show only what matches an expression; all where it is empty."""
        try:
            wanted = compile_filter(text, self.view.payloads) if text else None
        except FilterError as error:
            self.say(escape(error.message))
            return
        if wanted is not None and ACKNOWLEDGED in wanted.asked:
            self.say(f"{ACKNOWLEDGED} is known in reports of inspect alone")
            return
        self.wanted = wanted
        if self.wanted is not None:
            self.wanted.start_ns = self.index.first_ns
        self._select()
        if self.index.lacks and re.search(r"\bpayload\b", text):
            self.say(self.index.lacks)

    def action_again(self, back: bool) -> None:
        """Look for the text that was looked for last."""
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
        """Look through the packets, in turn with the keys."""
        self.say(f"searching {escape(search.text)}")
        while not search.is_over and self._search is search:
            until = time.monotonic() + SLICE_SECONDS
            search.advance(lambda: time.monotonic() >= until)  # noqa: B023 - called before the next round
            await asyncio.sleep(BREATH_SECONDS)
        if self._search is not search:
            return
        if search.found is None:
            lacks = f"; {self.index.lacks}" if self.index.lacks else ""
            lacks += search.left_out
            self.say(f"{escape(search.text)} is in no topic and no payload{lacks}")
            return
        self.packets.move_to(search.found, quiet=True)
        self._settle()
        self.say(
            f"found{', from the other end' if search.wrapped else ''}: {escape(search.text)}; n, N: next, previous"
        )

    def action_finding(self, way: int) -> None:
        """Go to the next finding, or the one before, and explain it."""
        rows = self.index.findings.rows
        row = -1 if self.row is None else self.row
        at = bisect_right(rows, row) if way > 0 else bisect_left(rows, row) - 1
        while 0 <= at < len(rows) and not self.selection.has(int(rows[at])):
            at += way
        if not 0 <= at < len(rows):
            self.say(
                "no further finding" if len(rows) else "no finding so far" if not self.builder.done else "no finding"
            )
            return
        self.mode = "found"
        self._row = -1
        self._jump(int(rows[at]))

    def action_partner(self) -> None:
        """Go to the next packet of the exchange."""
        row = self.row
        found = None if row is None else partner(self.index, row)
        if found is None:
            self.say(f"this packet belongs to no exchange, or none of the next {MAX_APART:,} rows answers it")
        else:
            self._jump(found)

    def action_only_connection(self) -> None:
        """Show only the connection of this packet, or all again."""
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
        """Show only marked packets, or all again."""
        if not self.marks and not self.only_marked:
            self.say("nothing is marked; m marks a packet")
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
        """Show only the message of this packet, from its publisher to its subscribers, or all again."""
        row = self.row
        if self.followed is not None:
            self.followed = None
            self._select()
        elif row is None or not Following.starts_at(self.index, row):
            self.say("only a PUBLISH with a topic can be followed; p goes to the one that this packet belongs to")
        else:
            self.say("following the message")
            self.run_worker(self._follow(Following(self.index, row)), group="search", exclusive=True)

    async def _follow(self, following: Following) -> None:
        """Look for the packets of a message, in turn with the keys."""
        while not following.is_over:
            until = time.monotonic() + SLICE_SECONDS
            while not following.is_over and time.monotonic() < until:
                following.advance(64)
            await asyncio.sleep(BREATH_SECONDS)
        found = self.followed = following.found
        self._select()
        by = "by a client that was not captured, or earlier"
        if found.publisher is not None:
            row = self.index.rows[found.publisher]
            known = self.index.connections[row.connection]
            by = f"by {escape(starred_name(known.client_identifier or known.client))} in packet {row.number}"
        within = f" within {MAX_ROWS:,} rows" if found.is_cut else ""
        self.say(f"published {by}; delivered to {counted(found.deliveries, 'client')}{within}; Esc shows all")

    def action_mode(self, mode: str) -> None:
        """Show another view of the packet."""
        self.mode = mode
        self._show_detail(force=True)
        # Other columns, where the bytes come or go.
        self.call_after_refresh(self._show_detail, force=True)

    def action_time(self) -> None:
        self.view.time = TIMES[(TIMES.index(self.view.time) + 1) % len(TIMES)]
        self._resized()
        self.say(f"time: {self.view.time}")

    def action_payload(self) -> None:
        """Show payloads in another way."""
        self.view.payload = details.PAYLOADS[(details.PAYLOADS.index(self.view.payload) + 1) % len(details.PAYLOADS)]
        self.mode = "payload"
        self._resized()
        self.say(f"payload as {self.view.payload}")

    def action_zoom(self) -> None:
        """Show one pane alone, or all again."""
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
        """Stop following, or follow again."""
        if not self.opened.live:
            self.say("nothing is live: this is a capture file")
            return
        self.paused = not self.paused
        if not self.paused:
            self.packets.grow()
            self.packets.move_to(len(self.selection) - 1)
        self._show_title()

    def action_write(self) -> None:
        """Ask what to write, and where."""
        rows = sorted(self.marks) or ([] if self.row is None else [self.row])
        if not rows:
            self.say("there is nothing to write")
            return
        told = counted(len(rows), "marked packet") if self.marks else "this packet"
        without = self.opened.no_frames if self.opened.write_frames is None else ""
        self.push_screen(
            ExportScreen(told, lambda name: fault_of_name(name, self.index.captures), without_frames=without),
            lambda chosen: self._write(rows, chosen),
        )

    def _write(self, rows: list[int], chosen: tuple[str, str] | None) -> None:
        if chosen is None:
            return
        form, name = chosen
        if form == "pcapng":
            self.say(f"writing {escape(name)}")
            numbers = [self.index.rows[row].number for row in rows if self.index.rows[row].kind <= RowKind.MALFORMED]
            self.run_worker(self._write_frames(numbers, name), group="write", exclusive=True)
            return
        lines = list(exported(self.index, rows, form, self.view))
        try:
            write_file(name, "".join(f"{line}\n" for line in lines).encode("utf-8", "replace"))
        except (OSError, ValueError) as error:
            self.say(f"{escape(name)}: {getattr(error, 'strerror', None) or error}")
            return
        self.say(f"{counted(len(rows), 'row')} written to {escape(name)}")

    async def _write_frames(self, numbers: list[int], name: str) -> None:
        write = self.opened.write_frames
        assert write is not None
        try:
            frames = await asyncio.to_thread(write, numbers, name)
        except (MqttscopeError, OSError, ValueError) as error:
            self.say(escape(str(getattr(error, "message", None) or error)))
            return
        self.say(f"{counted(frames, 'frame')} written to {escape(name)}, with all that they hold, passwords included")


def progress(position: int, size: int, passed: float) -> str:
    """How much is read; after some seconds also how long the rest takes."""
    if not size:
        return "reading"
    told = f"reading {min(99, position * 100 // size)} %"
    if passed < LEFT_AFTER_SECONDS or not 0 < position < size:
        return told
    left = round(passed * (size - position) / position)
    return f"{told}, {left // 60}:{left % 60:02} left"


def _put(line: Static, text: str) -> None:
    """Show a text in a line whose place stays the same."""
    if line.content != text:
        line.update(text, layout=False)


def browse(opened: Opened) -> int:
    """Run the browser until it is left; returns what is not 0 where a fault of its own ended it, which it has shown."""
    browser = Browser(opened)
    try:
        browser.run()
    finally:
        opened.builder.stop()
    return browser.return_code or 0
