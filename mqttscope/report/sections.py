"""Sections of a report, declared once over its JSON document: for a terminal and for an HTML page.

A `Section` names the rows of the document and the columns of its table.  `Section.write` draws it with a `TableWriter`:
`report.page.Page` for terminals, `report.html.sheet.HtmlTables` for pages.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from mqttscope.report.numbers import number, plural, size
from mqttscope.report.page import PageColumn, TableWriter
from mqttscope.report.when import duration, moment

Document = dict[str, Any]
"""An object of a JSON document."""
Lines = list[tuple[list[str], str]]
"""Phrases of lines, with their styles."""

FORMS: dict[str, Callable[[Any], str]] = {"number": number, "size": size, "duration": duration, "time": moment}
"""Text of a value by the kind of its column; values of other kinds are text."""


def value(row: Any, path: str) -> Any:
    """The value at a path like ``latency.p50_ns`` of a document or object; ``None`` if a part of it is."""
    for key in path.split("."):
        row = row[key] if isinstance(row, dict) else getattr(row, key)
        if row is None:
            return None
    return row


@dataclass(slots=True)
class Cell:
    """A column of a table: its title, the value in a row, its kind, and its rank in a narrow terminal."""

    title: str
    shown: str | Callable[[Any], Any]
    """Path of a value of the kind; or a function that returns the text, for ``share`` a number, for ``bars`` markup."""
    kind: str = "number"
    """A key of `FORMS`, ``name``, ``text``, ``share``, or in pages ``bars``."""
    rank: int = 0
    """0 is always shown; other columns if there is room, lowest rank first."""
    style: str = ""
    widest: int = 0
    """Maximum columns in a terminal for captured text; 0 for other text."""

    @property
    def right(self) -> bool:
        """Whether the column is of numbers."""
        return self.kind in ("number", "size", "duration")

    def text(self, row: Any) -> str:
        """The text of a row."""
        if callable(self.shown):
            return str(self.shown(row))
        content = value(row, self.shown)
        return "" if content is None else str(FORMS.get(self.kind, str)(content))

    def column(self, page: TableWriter, rows: Sequence[Any]) -> PageColumn:
        """The column of a terminal's table."""
        if self.kind == "share":
            assert callable(self.shown)
            amounts = [self.shown(row) for row in rows]
            shares = [amount / (max(amounts) or 1) for amount in amounts]
            return PageColumn(self.title, rank=self.rank, shares=shares, style=self.style or "cyan")
        texts = list(map(self.text, rows))
        if self.widest:
            texts = [page.shortened(text, self.widest) for text in texts]
        if not page.unicode:
            texts = [text.replace("µ", "u") for text in texts]
        return PageColumn(self.title, texts, self.rank, self.right, self.style)


@dataclass(slots=True)
class Section:
    """A part of a report: lines, and rows of the document as a table; the first cell is the name of a row."""

    title: str | Callable[[Document], str]
    path: str | Callable[[Document], Any] = ""
    """Path of the rows: a list, or an object with ``rows`` and their ``total``."""
    cells: Sequence[Cell] = ()
    noun: str = "row"
    before: Callable[[Document], Lines] | None = None
    """Lines above the table."""
    after: Callable[[Document], Lines] | None = field(default=None)
    """Lines below the table."""

    def write(self, page: TableWriter, report: Document) -> None:
        """Draw the section, unless it has neither lines nor rows."""
        part = self.path(report) if callable(self.path) else value(report, self.path) if self.path else []
        rows = part["rows"] if isinstance(part, dict) else part
        before = self.before(report) if self.before else []
        if not rows and not before:
            return
        page.title(self.title if isinstance(self.title, str) else self.title(report))
        for line, style in before:
            page.line(line, style)
        if rows:
            name, *columns = (cell.column(page, rows) for cell in self.cells)
            # Names keep their characters: a page shortens and escapes them by itself.
            name.cells = list(map(self.cells[0].text, rows))
            page.table(name, columns)
        left = part["total"] - len(rows) if isinstance(part, dict) else 0
        if left > 0:
            page.line([f"{page.ellipsis} and {plural(left, self.noun)} more (--top N shows N)"], "dim")
        for line, style in self.after(report) if self.after else []:
            page.line(line, style)
