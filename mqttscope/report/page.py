"""Tables that fit a terminal: optional columns by rank, shortened names, small bars."""

from __future__ import annotations

import io
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from rich.box import Box
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from mqttscope.report.base import View
from mqttscope.report.escape import cells, cut, elide, escape

WIDTH = 80
"""Width of output that is not a terminal."""
NARROWEST_NAME = 0.3
"""Names are shortened to this share of the width before columns are left out."""
NARROWEST_BAR = 5
WIDEST_BAR = 24
_BETWEEN = 2
_EIGHTHS = " ▏▎▍▌▋▊▉█"
_UNICODE_BOX = Box("    \n    \n ── \n    \n    \n    \n    \n    \n")
_ASCII_BOX = Box("    \n    \n -- \n    \n    \n    \n    \n    \n", ascii=True)


def bar(share: float, width: int, *, unicode: bool) -> str:
    """A share between 0 and 1 as a bar; any share above 0 is visible."""
    share = min(1.0, max(0.0, share))
    if not unicode:
        return "#" * max(round(share * width), 1 if share else 0)
    eighths = max(round(share * width * 8), 1 if share else 0)
    full, rest = divmod(eighths, 8)
    return "█" * full + (_EIGHTHS[rest] if rest else "")


@dataclass(slots=True)
class PageColumn:
    """A column.  Cells are safe text, except cells of the name column, which are captured text."""

    title: str
    cells: list[str] = field(default_factory=list)
    rank: int = 0
    """0 is always shown; other columns if there is room, lowest rank first."""
    right: bool = True
    style: str = ""
    whole: bool = False
    """For name columns: whether names are never shortened, and other columns make room."""
    shares: list[float] | None = None
    """Shares of bars, shown instead of cells."""

    @property
    def width(self) -> int:
        if self.shares is not None:
            return max(NARROWEST_BAR, cells(self.title))
        return max(cells(self.title), max(map(cells, self.cells), default=0))

    @property
    def empty(self) -> bool:
        return self.shares is None and not any(self.cells)


class TableWriter(Protocol):
    """Output of tables: a terminal (`Page`) or an HTML page (`report.html.sheet`)."""

    @property
    def unicode(self) -> bool:
        """Whether arrows and ellipses can be shown."""

    @property
    def ellipsis(self) -> str:
        """Placeholder for omitted text."""

    def shortened(self, text: str, width: int) -> str:
        """Captured text as safe text, in a terminal cut to ``width`` columns."""

    def line(self, parts: Sequence[str], style: str = "") -> None:
        """Phrases one after the other."""

    def title(self, text: str) -> None:
        """Heading of a section."""

    def table(self, name: PageColumn, columns: list[PageColumn]) -> None:
        """A table with names in the first column."""


class Page:
    """Collects lines and tables, and encodes them."""

    def __init__(self, view: View) -> None:
        self.view = view
        self.width = view.width if view.width > 0 else WIDTH
        self.unicode = view.unicode
        self.dot = " · " if view.unicode else "; "
        self.ellipsis = "…" if view.unicode else "..."
        self._out = io.StringIO()
        self._console = Console(
            file=self._out,
            width=self.width,
            height=25,
            force_terminal=view.colour,
            force_jupyter=False,
            color_system="standard" if view.colour else None,
            no_color=not view.colour,
            highlight=False,
            markup=False,
            emoji=False,
            legacy_windows=False,
        )

    def safe(self, name: str) -> str:
        return escape(name, ascii_only=not self.unicode)

    def shortened(self, text: str, width: int) -> str:
        return cut(self.safe(text), width, self.ellipsis)

    def line(self, parts: Sequence[str], style: str = "") -> None:
        """Phrases one after the other, as many per line as fit."""
        lines: list[str] = []
        for part in parts:
            if lines and cells(lines[-1]) + cells(self.dot) + cells(part) <= self.width:
                lines[-1] += self.dot + part
            else:
                lines.append(cut(part, self.width, self.ellipsis))
        for line in lines:
            self._print(Text(line, style=style))

    def paragraph(self, text: str, style: str = "", *, indent: int = 0) -> None:
        """Wrapped text; lines after the first are indented."""
        for line in textwrap.wrap(text, max(20, self.width), subsequent_indent=" " * indent) or [""]:
            self._print(Text(line, style=style))

    def title(self, text: str) -> None:
        self._print(Text(""))
        self._print(Text(text, style="bold"))

    def table(self, name: PageColumn, columns: list[PageColumn]) -> None:
        """A table with names in the first column, which are shortened if necessary."""
        chosen = self._choose(name, [column for column in columns if not column.empty])
        room = self.width - sum(column.width + _BETWEEN for column in chosen)
        names, natural = self._names(name, room)
        bars = [column for column in chosen if column.shares is not None]
        spare = (room - natural) // len(bars) if bars else 0
        table = Table(
            box=_UNICODE_BOX if self.unicode else _ASCII_BOX,
            show_edge=False,
            pad_edge=False,
            padding=(0, _BETWEEN - 1, 0, 0),
            header_style="bold" if self.view.colour else "",
        )
        table.add_column(name.title, width=natural, no_wrap=True, style=name.style)
        shown = [names]
        for column in chosen:
            width = column.width
            if column.shares is None:
                shown.append(column.cells)
            else:
                width = max(width, min(WIDEST_BAR, width + spare))
                shown.append([bar(share, width, unicode=self.unicode) for share in column.shares])
            justify: Literal["right", "left"] = "right" if column.right and column.shares is None else "left"
            table.add_column(
                column.title,
                width=width,
                no_wrap=True,
                justify=justify,
                style=column.style,
            )
        for row in zip(*shown, strict=True):
            table.add_row(*(Text(cell) for cell in row))
        self._print(table)

    def _choose(self, name: PageColumn, columns: list[PageColumn]) -> list[PageColumn]:
        natural = max((cells(self.safe(cell[: self.width])) for cell in name.cells), default=0)
        least = natural if name.whole else min(natural, int(self.width * NARROWEST_NAME))
        used = max(least, cells(name.title))
        chosen = set()
        for index in sorted(range(len(columns)), key=lambda index: columns[index].rank):
            needed = columns[index].width + _BETWEEN
            if used + needed <= self.width:
                used += needed
                chosen.add(index)
            elif columns[index].rank:
                break
        return [column for index, column in enumerate(columns) if index in chosen]

    def _names(self, name: PageColumn, room: int) -> tuple[list[str], int]:
        """The names shortened to the remaining room, and the columns they take."""
        room = max(1, room)
        # Cut before escaping: names come from the wire and may be 64 KiB long.
        short = [cell if len(cell) <= 4 * room else cell[: 2 * room] + cell[-2 * room :] for cell in name.cells]
        names = [elide(self.safe(cell), room, self.ellipsis) for cell in short]
        natural = max([cells(name.title), *map(cells, names)])
        return names, min(natural, room)

    def _print(self, what: RenderableType) -> None:
        self._console.print(what, soft_wrap=isinstance(what, Text), crop=True)

    def encoded(self) -> bytes:
        lines = [line.rstrip() for line in self._out.getvalue().split("\n")]
        return "\n".join(lines).encode("utf-8" if self.unicode else "ascii", "replace")
