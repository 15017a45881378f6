"""The panes of the browser: lists of lines that are made when they become visible, and the bytes of a packet."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Final

from rich.segment import Segment
from rich.style import Style
from rich.text import Text
from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

MAX_STRIPS: Final = 2_048
"""Maximum number of cached painted lines."""
CURSOR: Final = Style(reverse=True)
RESTING: Final = Style(bold=True, underline=True)
LINKED: Final = Style(bold=True)
"""Lines and bytes that belong to the cursor of the other pane."""

_strips: OrderedDict[str, tuple[Segment, ...]] = OrderedDict()


def segments_of(painted: str) -> tuple[Segment, ...]:
    """Convert a line with ANSI sequences to segments for the screen."""
    known = _strips.get(painted)
    if known is not None:
        return known
    if "\x1b" in painted:
        segments: list[Segment] = []
        text = Text.from_ansi(painted, end="")
        from rich.console import Console

        segments = list(text.render(_console(Console)))
    else:
        segments = [Segment(painted)]
    if len(_strips) >= MAX_STRIPS:
        _strips.popitem(last=False)
    known = _strips[painted] = tuple(segments)
    return known


_consoles: list[Any] = []


def _console(kind: Any) -> Any:
    if not _consoles:
        _consoles.append(kind(width=10_000, color_system="standard", force_terminal=True))
    return _consoles[0]


class CursorMessage(Message):
    """A message of a pane about its cursor."""

    def __init__(self, pane: LinePane) -> None:
        super().__init__()
        self.pane = pane

    @property
    def control(self) -> LinePane:
        return self.pane


class LinePane(ScrollView, can_focus=True):
    """Lines with a cursor.  Only visible lines are made."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "move(-1)", "up", show=False),
        Binding("down,j", "move(1)", "down", show=False),
        Binding("pageup", "page(-1)", "page up", show=False),
        Binding("pagedown", "page(1)", "page down", show=False),
        Binding("home,g", "to(0)", "first", show=False),
        Binding("end,G", "to(-1)", "last", show=False),
        Binding("enter", "choose", "choose", show=False),
    ]

    class SizeChanged(Message):
        """The size of the pane has changed."""

    class Moved(CursorMessage):
        """The cursor has moved."""

    class Chosen(CursorMessage):
        """The line of the cursor was chosen."""

    def __init__(self, title: str, *, id: str) -> None:  # noqa: A002 - name in textual
        super().__init__(id=id)
        self.border_title = title
        self.cursor = 0
        self.linked: range = range(0)
        """Lines that belong to the cursor of another pane."""
        self._count: Callable[[], int] = lambda: 0
        self._line: Callable[[int], str] = lambda at: ""
        self._shown = -1

    def show(self, count: Callable[[], int], line: Callable[[int], str], cursor: int = 0) -> None:
        """Show new lines; ``count``: number of lines, ``line``: painted line by number."""
        self._count, self._line = count, line
        self._shown = -1
        self.linked = range(0)
        self.cursor = max(0, min(cursor, count() - 1))
        self.grow()
        self._keep_in_view()
        self.refresh()

    def show_lines(self, lines: Sequence[str], cursor: int = 0) -> None:
        self.show(lambda: len(lines), lambda at: lines[at], cursor)

    def grow(self) -> bool:
        """Show new lines at the end; returns whether there are any."""
        count = self._count()
        if count == self._shown:
            return False
        first, self._shown = self._shown < 0, count
        self.virtual_size = Size(max(1, self.size.width), count)
        if self.cursor >= count > 0:
            self.cursor = count - 1
        if not first and self.scroll_offset.y + self.size.height >= count - 1:
            self.refresh()
        return True

    @property
    def count(self) -> int:
        return max(0, self._shown)

    @property
    def columns(self) -> int:
        return max(1, self.scrollable_content_region.width)

    def move_to(self, line: int, *, quiet: bool = False) -> None:
        """Move the cursor to a line and scroll to it; ``quiet``: post no message."""
        line = max(0, min(line, self._count() - 1))
        before, self.cursor = self.cursor, line
        self.grow()
        if not self._keep_in_view():
            self.refresh_line(before)
            self.refresh_line(line)
        if not quiet and before != line:
            self.post_message(self.Moved(self))

    def link(self, lines: range) -> None:
        """Highlight the lines that belong to the cursor of another pane."""
        if lines != self.linked:
            self.linked = lines
            if lines:
                self._bring(lines.start)
            self.refresh()

    def _keep_in_view(self) -> bool:
        return self._bring(self.cursor)

    def _bring(self, line: int) -> bool:
        """Scroll until a line is visible; returns whether that was necessary."""
        top, height = self.scroll_offset.y, max(1, self.scrollable_content_region.height)
        if line < top:
            target = line
        elif line >= top + height:
            target = line - height + 1
        else:
            return False
        self.scroll_to(y=target, animate=False, immediate=True)
        self.refresh()
        return True

    def render_line(self, y: int) -> Strip:
        """Render one line of the screen."""
        at = self.scroll_offset.y + y
        width = self.columns
        base = self.rich_style
        if not 0 <= at < self._shown:
            return Strip.blank(width, base)
        strip = Strip(segments_of(self._line(at))).adjust_cell_length(width).apply_style(base)
        if at == self.cursor:
            return strip.apply_style(CURSOR if self.has_focus else RESTING)
        return strip.apply_style(LINKED) if at in self.linked else strip

    def action_move(self, by: int) -> None:
        self.move_to(self.cursor + by)

    def action_page(self, by: int) -> None:
        self.move_to(self.cursor + by * max(1, self.scrollable_content_region.height - 1))

    def action_to(self, line: int) -> None:
        """Move the cursor to a line; negative numbers count from the end."""
        self.move_to(line if line >= 0 else self._count() + line)

    def action_choose(self) -> None:
        self.post_message(self.Chosen(self))

    def on_click(self, event: events.Click) -> None:
        """Move the cursor to the mouse; a double click chooses the line."""
        place = event.get_content_offset(self)
        if place is None:
            return
        line = self.scroll_offset.y + place.y
        if line < self._shown:
            self.move_to(line)
            if event.chain > 1:
                self.action_choose()

    def on_resize(self, event: events.Resize) -> None:
        self.post_message(self.SizeChanged())

    def on_focus(self) -> None:
        self.refresh_line(self.cursor)

    def on_blur(self) -> None:
        self.refresh_line(self.cursor)


class BytesPane(LinePane):
    """The bytes of a packet in rows, with a cursor on one of them."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left,h", "step(-1)", "left", show=False),
        Binding("right,l", "step(1)", "right", show=False),
    ]

    def __init__(self, title: str, *, id: str) -> None:  # noqa: A002 - name in textual
        super().__init__(title, id=id)
        self.raw = b""
        self.hidden: list[tuple[int, int]] = []
        self.offset_at = 0
        """Offset of the byte under the cursor."""
        self.marked = range(0)
        """Bytes that belong to the cursor of the other pane."""

    def show_bytes(self, raw: bytes, hidden: list[tuple[int, int]]) -> None:
        self.raw, self.hidden, self.offset_at, self.marked = raw, hidden, 0, range(0)
        self.show(lambda: -(-len(self.raw) // self.per_row), lambda at: "")

    @property
    def per_row(self) -> int:
        room = self.columns - 6
        return next((count for count in (16, 8, 4) if room >= count * 4 + 1), 2)

    def mark(self, marked: range) -> None:
        """Highlight the bytes that belong to the cursor of the other pane."""
        self.marked = marked
        if marked:
            self.offset_at = marked.start
            self.cursor = marked.start // self.per_row
            self._bring(self.cursor)
        self.refresh()

    def render_line(self, y: int) -> Strip:
        """Render one row of bytes."""
        at, width, count = self.scroll_offset.y + y, self.columns, self.per_row
        base = self.rich_style
        if not 0 <= at < self._shown:
            return Strip.blank(width, base)
        start = at * count
        stop = min(start + count, len(self.raw))
        digits: list[Segment] = [Segment(f"{start:04x}  ", Style(dim=True))]
        letters: list[Segment] = []
        for offset in range(start, stop):
            style = self._style(offset)
            secret = any(first <= offset < end for first, end in self.hidden)
            byte = self.raw[offset]
            digits.append(Segment("**" if secret else f"{byte:02x}", style))
            # The highlight covers the gap between two highlighted bytes.
            both = offset in self.marked and offset + 1 in self.marked and offset + 1 < stop
            digits.append(Segment(" ", self._style(offset, cursor=False) if both else None))
            letters.append(Segment("*" if secret else chr(byte) if 32 <= byte < 127 else ".", style))
        digits.append(Segment("   " * (count - (stop - start)) + " "))
        return Strip([*digits, *letters]).adjust_cell_length(width).apply_style(base)

    def _style(self, offset: int, *, cursor: bool = True) -> Style | None:
        if cursor and offset == self.offset_at and self.has_focus:
            return Style(reverse=True, bold=True, underline=True)
        return CURSOR if offset in self.marked else None

    def _step_to(self, offset: int) -> None:
        if not self.raw:
            return
        self.offset_at = max(0, min(offset, len(self.raw) - 1))
        self.cursor = self.offset_at // self.per_row
        self._bring(self.cursor)
        self.refresh()
        self.post_message(self.Moved(self))

    def action_step(self, by: int) -> None:
        self._step_to(self.offset_at + by)

    def action_move(self, by: int) -> None:
        self._step_to(self.offset_at + by * self.per_row)

    def action_page(self, by: int) -> None:
        self._step_to(self.offset_at + by * self.per_row * max(1, self.scrollable_content_region.height - 1))

    def action_to(self, line: int) -> None:
        self._step_to(0 if line >= 0 else len(self.raw) - 1)

    def on_click(self, event: events.Click) -> None:
        """Move the cursor to the byte under the mouse."""
        place = event.get_content_offset(self)
        if place is None:
            return
        count = self.per_row
        column, row = place.x - 6, self.scroll_offset.y + place.y
        if column < 0:
            return
        at = column // 3 if column < count * 3 else column - count * 3 - 1
        if 0 <= at < count and row * count + at < len(self.raw):
            self._step_to(row * count + at)

    def on_focus(self) -> None:
        self.refresh()

    def on_blur(self) -> None:
        self.refresh()
