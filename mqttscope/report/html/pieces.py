"""Building blocks of all pages: escaped text, tables of JSON documents, sentences, legends.

Topics and Client Identifiers come from any client of the broker.  All text passes `safe`, even text known to be
harmless, so that no text is forgotten.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from html import escape as quoted
from typing import Any

from mqttscope.mqtt.view import utf8
from mqttscope.report.base import Clock
from mqttscope.report.escape import escape
from mqttscope.report.sections import Cell
from mqttscope.report.when import moment
from mqttscope.secrets.addresses import public_name

LONGEST = 200
"""Maximum characters of a name; longer names are shortened in the middle."""
MAX_CAPTURES = 5
"""Maximum number of captures that are named; further ones are counted."""
SEVERITIES = ("errors", "warnings", "infos")
"""Classes of the segments of a bar that counts findings."""
_CLOCK = Clock()


def safe(text: str) -> str:
    """Captured text for a page: without markup, and without characters that reorder or hide their neighbours."""
    return quoted(escape(text))


def short(name: str) -> str:
    """A name of up to 64 KiB as safe text; long names keep their beginning and their end."""
    return safe(name if len(name) <= LONGEST else f"{name[: LONGEST // 2]}…{name[-LONGEST // 2 :]}")


def exact_moment(timestamp_ns: int) -> str:
    """A time in UTC to the millisecond: ``2026-01-02 03:04:05.123``."""
    return _CLOCK.iso(timestamp_ns).replace("T", " ")[:23]


def between(first_ns: int | None, last_ns: int | None) -> str:
    """A range of time: ``2026-01-02 03:04:05 to 03:05:10 UTC``; empty without a time."""
    if first_ns is None or last_ns is None:
        return ""
    first, last = moment(first_ns), moment(last_ns)
    return f"{first} to {last[11:] if first[:10] == last[:10] else last} UTC"


def table(rows: Iterable[Any], columns: Sequence[Cell], *, name: Callable[[str], str] = short) -> str:
    """Rows of a document as a table; ``name`` returns the markup of names."""
    kinds = ["number" if column.right else column.kind for column in columns]
    head = "".join(f'<th class="{kind}">{safe(column.title)}</th>' for kind, column in zip(kinds, columns, strict=True))
    body = []
    for row in rows:
        texts = (column.text(row) for column in columns)
        forms: dict[str, Callable[[str], str]] = {"bars": str, "name": name}
        shown = (forms.get(kind, short)(text) for kind, text in zip(kinds, texts, strict=True))
        body.append("".join(f'<td class="{kind}">{cell}</td>' for kind, cell in zip(kinds, shown, strict=True)))
    lines = "".join(f"<tr>{row}</tr>" for row in body)
    return f'<div class="table"><table><thead><tr>{head}</tr></thead><tbody>{lines}</tbody></table></div>'


def legend(kinds: Iterable[str], name: Callable[[str], str] = str) -> str:
    """Classes with their colours; ``name`` returns the label of a class."""
    items = "".join(f'<span><i class="{safe(kind)}"></i>{safe(name(kind))}</span> ' for kind in kinds)
    return f'<p class="legend">{items}</p>'


def captures_text(captures: Iterable[str]) -> str:
    """The names of the first captures, and the number of the others."""
    names = [utf8(public_name(name)) for name in captures]
    left = len(names) - MAX_CAPTURES
    return ", ".join(names[:MAX_CAPTURES]) + (f" and {left:,} more" if left > 0 else "")


def header(title: str, where: str, when: str = "") -> str:
    """The beginning of a page: title, captures, time range."""
    captures = f'<p class="where">{short(where)}</p>' if where else ""
    return f"<header><h1>{safe(title)}</h1>{captures}{paragraph(when, 'when')}</header>"


def amounts(texts: Iterable[str]) -> str:
    return '<ul class="amounts">' + "".join(f"<li>{safe(text)}</li>" for text in texts) + "</ul>"


def paragraph(text: str, kind: str = "note") -> str:
    """A sentence; empty without text."""
    begin = f'<p class="{kind}">' if kind else "<p>"
    return f"{begin}{safe(text)}</p>" if text else ""


def part(title: str, plot: str, *, before: str = "", after: str = "", level: int = 2) -> list[str]:
    """A section with a chart or table; empty without one.  All arguments but the title are markup."""
    return [f"<section><h{level}>{safe(title)}</h{level}>", before, plot, after, "</section>"] if plot else []


def bound(value_ns: int) -> str:
    """A duration that is a round number."""
    power = min(3, (len(str(value_ns)) - 1) // 3)
    return f"{value_ns // 1_000**power} {('ns', 'µs', 'ms', 's')[power]}"
