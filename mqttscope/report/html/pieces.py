"""Pieces that all pages are made of: captured text made safe, tables, legends.

Topics and Client Identifiers come from anybody who speaks to the broker.  All text passes `safe`, also text that is
known to be harmless, so that none is forgotten.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from html import escape as quoted
from typing import Any

from mqttscope.report.escape import cells, escape

LONGEST = 200
"""Characters of a name that are shown."""
SEVERITIES = ("errors", "warnings", "infos")
"""Classes of the pieces of a bar that counts findings."""


@dataclass(slots=True)
class Cell:
    """A column of a table: its title, and what it shows of a row."""

    title: str
    shown: Callable[[Any], str]
    kind: str = "number"
    """Class: ``number``, ``name``, ``time`` or ``text``."""


def safe(text: str) -> str:
    """Captured text for a page: no markup, and nothing that turns or hides what stands beside it."""
    return quoted(escape(text))


def short(name: str) -> str:
    """A name that may be 64 KiB long, as safe text: its end says as much as its beginning."""
    return safe(name if len(name) <= LONGEST else f"{name[: LONGEST // 2]}…{name[-LONGEST // 2 :]}")


def fitting(name: str, width: int) -> str:
    """The beginning of a name in at most ``width`` columns, as safe text."""
    shown = escape(name[: 4 * width])
    while cells(shown) > width:
        shown = shown[: len(shown) - 2] + "…"
    return quoted(shown)


def table(rows: Iterable[Any], columns: Sequence[Cell], kind: str = "") -> str:
    """A table; ``kind`` is its class."""
    head = "".join(f'<th class="{one.kind}">{safe(one.title)}</th>' for one in columns)
    body = "".join(
        "<tr>" + "".join(f'<td class="{one.kind}">{short(one.shown(row))}</td>' for one in columns) + "</tr>"
        for row in rows
    )
    named = f' class="{kind}"' if kind else ""
    return f'<div class="table"><table{named}><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def legend(kinds: Iterable[str], name: Callable[[str], str] = str) -> str:
    """Classes with their colours; ``name`` gives what each is called."""
    return '<p class="legend">' + "".join(f'<span class="{one}"></span>{safe(name(one))} ' for one in kinds) + "</p>"


def amounts(told: Iterable[str]) -> str:
    return '<ul class="amounts">' + "".join(f"<li>{safe(one)}</li>" for one in told) + "</ul>"


def note(told: str) -> str:
    return f'<p class="note">{safe(told)}</p>' if told else ""


def doubt(told: str) -> str:
    return f'<p class="doubt">{safe(told)}</p>' if told else ""


def part(title: str, plot: str, *, before: str = "", after: str = "", level: int = 2) -> list[str]:
    """A part of a page with a chart, or a table; nothing where there is none.  All but the title is markup."""
    return [f"<h{level}>{safe(title)}</h{level}>", before, plot, after] if plot else []


def bound(value_ns: int) -> str:
    """A length of time that is a round number."""
    power = min(3, (len(str(value_ns)) - 1) // 3)
    return f"{value_ns // 1_000**power} {('ns', 'µs', 'ms', 's')[power]}"
