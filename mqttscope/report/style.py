"""Colours by meaning, and lines that never grow wider than the terminal."""

from __future__ import annotations

from mqttscope.report.base import View
from mqttscope.report.escape import cells, cut, elide, escape

STYLES = {
    "": "",
    "time": "dim",
    "dim": "dim",
    "client": "cyan",
    "server": "magenta",
    "type": "bold",
    "topic": "green",
    "payload": "",
    "note": "yellow",
    "error": "red",
    "malformed": "bold red",
    "rule": "dim",
    "span0": "cyan",
    "span1": "yellow",
    "tag0": "bold cyan",
    "tag1": "bold yellow",
    "tag2": "bold green",
    "tag3": "bold magenta",
    "tag4": "bold blue",
}
"""What a meaning looks like.  Only the eight colours that every terminal has, so that its theme decides."""

UNLIMITED = 1 << 40


class Painter:
    """Turns text and a style name into what is written: ANSI sequences with colour, the text itself without."""

    def __init__(self, view: View) -> None:
        self.colour = view.colour
        self.unicode = view.unicode
        self.width = view.width if view.width > 0 else UNLIMITED
        self.ellipsis = "…" if view.unicode else "..."
        self.to_server = "→" if view.unicode else "->"
        self.to_client = "←" if view.unicode else "<-"
        self.dot = " · " if view.unicode else "; "
        self.dash = "–" if view.unicode else "-"
        self.rule = "──" if view.unicode else "--"
        self._ansi: dict[str, tuple[str, str]] = _sequences() if view.colour else {}

    def paint(self, text: str, style: str) -> str:
        """Text in a style."""
        if not self.colour or not style:
            return text
        before, after = self._ansi[style]
        return f"{before}{text}{after}"

    def safe(self, text: str) -> str:
        return escape(text, ascii_only=not self.unicode)

    def name(self, text: str, width: int) -> str:
        """Captured text as a name of at most ``width`` columns."""
        # What cannot fit is not worth escaping: names come from the wire and may be 64 KiB long.
        if len(text) > 4 * width:
            text = text[: 2 * width] + text[-2 * width :]
            return elide(self.safe(text), width, self.ellipsis)
        return elide(self.safe(text), width, self.ellipsis)

    def line(self, width: int | None = None) -> Line:
        """An empty line that takes at most ``width`` columns, those of the terminal by default."""
        return Line(self, self.width if width is None else width)


def _sequences() -> dict[str, tuple[str, str]]:
    from rich.color import ColorSystem
    from rich.style import Style

    found = {}
    for name, look in STYLES.items():
        shown = Style.parse(look).render("\0", color_system=ColorSystem.STANDARD) if look else "\0"
        before, _, after = shown.partition("\0")
        found[name] = before, after
    return found


class Line:
    """One line in the making.  What does not fit any more is cut with an ellipsis, the rest left out."""

    __slots__ = ("filling", "left", "painter", "parts", "used")

    def __init__(self, painter: Painter, width: int) -> None:
        self.painter = painter
        self.parts: list[str] = []
        self.left = width - 1
        """Columns that are free; one more is kept for the ellipsis.  Negative when the line was cut."""
        self.used = 0
        self.filling = ""
        """The last text, where it takes the column of the ellipsis, so that it has to give way to more."""

    def add(self, text: str, style: str = "") -> None:
        """Append escaped text."""
        width = len(text) if text.isascii() else cells(text)
        if width > self.left:
            if self.left < 0:
                if self.filling and text:
                    shown = cut(f"{self.filling} ", cells(self.filling), self.painter.ellipsis)
                    self.parts[-1] = self.parts[-1].replace(self.filling, shown)
                    self.filling = ""
                return
            if width == self.left + 1:
                self.filling = text
            text = cut(text, self.left + 1, self.painter.ellipsis)
            width = cells(text)
            self.left = -1
        else:
            self.left -= width
        self.used += width
        self.parts.append(self.painter.paint(text, style) if style and self.painter.colour else text)

    def put(self, painted: str, width: int) -> None:
        """Append what is painted already; the caller knows its width, and that it fits."""
        self.parts.append(painted)
        self.left -= width
        self.used += width

    def __str__(self) -> str:
        return "".join(self.parts)


_SHORT = 24
"""Columns of text that is kept together."""


class Wrapped:
    """Text that continues in indented lines where the terminal is narrow: for what must not be cut."""

    def __init__(self, first: Line, *, indent: int = 4, most: int = 4) -> None:
        self.lines = [first]
        self._painter = first.painter
        self._indent = indent
        self._most = most
        self._width = first.left + first.used + 1

    def add(self, text: str, style: str = "") -> None:
        """Append escaped text: what is short goes to the next line whole, other text is broken at blanks."""
        line = self.lines[-1]
        if cells(text) <= line.left or len(self.lines) == self._most:
            line.add(text, style)
            return
        if cells(text) <= min(_SHORT, self._width - self._indent - 1):
            self._next().add(text.lstrip(" "), style)
            return
        words = text.split(" ")
        for index, word in enumerate(words):
            line, piece = self.lines[-1], " " + word if index else word
            if cells(piece) > line.left and len(self.lines) < self._most and line.used > self._indent:
                line, piece = self._next(), word
            if len(self.lines) == self._most:
                # All that is left at once, so that the end shows whether there is more.
                line.add(" ".join([piece, *words[index + 1 :]]), style)
                return
            if piece:
                line.add(piece, style)

    def _next(self) -> Line:
        line = self._painter.line(self._width)
        line.put(" " * self._indent, self._indent)
        self.lines.append(line)
        return line

    def texts(self) -> list[str]:
        return [str(line).rstrip(" ") for line in self.lines]


def encoded(lines: list[str]) -> bytes:
    """Lines as they are written, nothing where there is none."""
    return b"" if not lines else ("\n".join(lines) + "\n").encode("utf-8", "replace")
