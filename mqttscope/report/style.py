"""Styles by meaning, and lines that never exceed the width of the terminal."""

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
"""Appearance of each meaning.  Only the eight basic colours are used, so the theme of the terminal decides."""

UNLIMITED = 1 << 40


class Painter:
    """Applies styles: ANSI sequences with colour, plain text without."""

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
        # Cut before escaping: names come from the wire and may be 64 KiB long.
        if len(text) > 4 * width:
            text = text[: 2 * width] + text[-2 * width :]
            return elide(self.safe(text), width, self.ellipsis)
        return elide(self.safe(text), width, self.ellipsis)

    def line(self, width: int | None = None) -> Line:
        """An empty line of at most ``width`` columns, by default the width of the terminal."""
        return Line(self, self.width if width is None else width)


def _sequences() -> dict[str, tuple[str, str]]:
    from rich.color import ColorSystem
    from rich.style import Style

    sequences = {}
    for name, look in STYLES.items():
        shown = Style.parse(look).render("\0", color_system=ColorSystem.STANDARD) if look else "\0"
        before, _, after = shown.partition("\0")
        sequences[name] = before, after
    return sequences


class Line:
    """A line under construction.  Text that does not fit is cut with an ellipsis; text after it is dropped."""

    __slots__ = ("filling", "left", "painter", "parts", "used")

    def __init__(self, painter: Painter, width: int) -> None:
        self.painter = painter
        self.parts: list[str] = []
        self.left = width - 1
        """Free columns, without the one kept for the ellipsis; negative after the line was cut."""
        self.used = 0
        self.filling = ""
        """The last text, if it occupies the column of the ellipsis and has to be cut when more text comes."""

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
        """Append painted text of known width; the caller checks that it fits."""
        self.parts.append(painted)
        self.left -= width
        self.used += width

    def __str__(self) -> str:
        return "".join(self.parts)


_SHORT = 24
"""Maximum columns of text that is not broken."""


class Wrapped:
    """Text that continues on indented lines in a narrow terminal, because it must not be cut."""

    def __init__(self, first: Line, *, indent: int = 4, most: int = 4) -> None:
        self.lines = [first]
        self._painter = first.painter
        self._indent = indent
        self._most = most
        self._width = first.left + first.used + 1

    def add(self, text: str, style: str = "") -> None:
        """Append escaped text: short text moves to the next line as a whole, longer text is broken at spaces."""
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
                # All remaining text at once, so that an ellipsis shows whether something was cut.
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
    """Encoded lines with line ends; empty without lines."""
    return b"" if not lines else ("\n".join(lines) + "\n").encode("utf-8", "replace")
