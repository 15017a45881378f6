"""Tables and lines of text as parts of a page: what `report.page.Page` makes for a terminal, made for a browser."""

from __future__ import annotations

from collections.abc import Sequence

from mqttscope.report.html.pieces import safe, short
from mqttscope.report.page import Column
from mqttscope.secrets.credentials import starred_name

_CLASSES = {"yellow": "doubt", "dim": "note"}
"""Classes of lines by their styles on a terminal."""


def share_bar(share: float) -> str:
    """A share of 1 as a bar that fills the room it is given."""
    width = min(100.0, max(0.0, share * 100))
    shown = f'<rect class="bar" width="{max(width, 0.5):.1f}" height="10"/>' if width else ""
    return f'<svg class="share" viewBox="0 0 100 10" preserveAspectRatio="none" aria-hidden="true">{shown}</svg>'


class Sheet:
    """Collects the same as `report.page.Page`, as markup."""

    unicode = True
    ellipsis = "…"

    def __init__(self) -> None:
        self.parts: list[str] = []

    def line(self, parts: Sequence[str], style: str = "") -> None:
        """Phrases one after the other; what is most important is a list."""
        shown = [safe(part) for part in parts]
        if not shown:
            return
        if style == "bold":
            self.parts.append('<ul class="amounts">' + "".join(f"<li>{one}</li>" for one in shown) + "</ul>")
        else:
            kind = _CLASSES.get(style, "")
            self.parts.append(f'<p class="{kind}">{" · ".join(shown)}</p>' if kind else f"<p>{' · '.join(shown)}</p>")

    def title(self, text: str) -> None:
        self.parts.append(f"<h2>{safe(text)}</h2>")

    def table(self, name: Column, columns: list[Column]) -> None:
        """A table whose first column holds names; all columns that say something are shown."""
        chosen = [one for one in columns if not one.empty]
        head = f'<th class="name">{safe(name.title)}</th>'
        head += "".join(f'<th class="{_kind(one)}">{safe(one.title)}</th>' for one in chosen)
        out = [f'<div class="table"><table><thead><tr>{head}</tr></thead><tbody>']
        for at, named in enumerate(name.cells):
            cells = "".join(f'<td class="{_kind(one)}">{_cell(one, at)}</td>' for one in chosen)
            out.append(f'<tr><td class="name">{short(starred_name(named))}</td>{cells}</tr>')
        self.parts.append("".join([*out, "</tbody></table></div>"]))


def _kind(column: Column) -> str:
    if column.shares is not None:
        return "bars"
    return "number" if column.right else "text"


def _cell(column: Column, at: int) -> str:
    return short(column.cells[at]) if column.shares is None else share_bar(column.shares[at])
