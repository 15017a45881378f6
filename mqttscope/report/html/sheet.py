"""Tables and lines as parts of an HTML page: the browser counterpart of `report.page.Page`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from mqttscope.report.html.charts import share_bar
from mqttscope.report.html.pieces import amounts, paragraph, safe, short, table
from mqttscope.report.page import PageColumn
from mqttscope.report.sections import Cell
from mqttscope.secrets.credentials import starred_name

_CLASSES = {"yellow": "doubt", "dim": "note"}
"""Classes of lines by their terminal styles."""


class HtmlTables:
    """Collects titles, lines and tables as markup, like `report.page.Page`."""

    unicode = True
    ellipsis = "…"

    def __init__(self) -> None:
        self.parts: list[str] = []

    def shortened(self, text: str, width: int) -> str:
        return text

    def line(self, parts: Sequence[str], style: str = "") -> None:
        """Phrases in one line; bold phrases become a list."""
        if not parts:
            return
        if style == "bold":
            self.parts.append(amounts(parts))
        else:
            self.parts.append(paragraph(" · ".join(parts), _CLASSES.get(style, "")))

    def title(self, text: str) -> None:
        self.parts.append(f"<h2>{safe(text)}</h2>")

    def table(self, name: PageColumn, columns: list[PageColumn]) -> None:
        """A table with names in the first column; empty columns are left out."""
        chosen = [column for column in columns if not column.empty]
        cells = [Cell(name.title, lambda at: starred_name(name.cells[at]), "name")]
        for column in chosen:
            kind = "bars" if column.shares is not None else "number" if column.right else "text"
            cells.append(Cell(column.title, partial(_cell, column), kind))
        self.parts.append(table(range(len(name.cells)), cells, name=self.named))

    def named(self, text: str) -> str:
        """Markup of the name of a row."""
        return short(text)


def _cell(column: PageColumn, at: int) -> str:
    return column.cells[at] if column.shares is None else share_bar([column.shares[at]])
