"""The answer to an SQL query as a table for people, as CSV, and as JSON, schema 1."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from mqttscope.report.base import View
from mqttscope.report.escape import cells, cut, escape
from mqttscope.report.jsonl import dumps, harmless

SCHEMA = 1
NULL = "null"
NARROWEST = 8
"""Minimum width of a table column in a terminal; with less room, each row becomes a list."""
WIDEST = 240
"""Maximum width of a table without a terminal; rows of wider tables become lists, and nothing is cut."""
_BETWEEN = 2


def as_json(columns: Sequence[tuple[str, str]], rows: Iterable[list[Any]]) -> Iterator[bytes]:
    """One document: ``columns`` with names and types, ``rows`` as objects, one per line."""
    head = dumps([{"name": name, "type": kind} for name, kind in columns])
    yield b'{"schema":%d,"columns":%b,"rows":[' % (SCHEMA, harmless(head + b"\n").rstrip(b"\n"))
    before = b"\n"
    for row in rows:
        encoded = dumps({name: value for (name, _), value in zip(columns, row, strict=True)})
        yield before + harmless(encoded + b"\n").rstrip(b"\n")
        before = b",\n"
    yield b"\n]}\n"


def as_csv(columns: Sequence[tuple[str, str]], rows: Iterable[list[Any]]) -> Iterator[bytes]:
    """A header and a line per row.  Null is empty; bytes are hexadecimal; lists and objects are JSON.

    Control and format characters, including line ends, are written as escapes.
    """
    buffer = io.StringIO(newline="")
    writer = csv.writer(buffer)
    for row in _with_head(columns, rows):
        writer.writerow("" if value is None else shown(value) for value in row)
        yield buffer.getvalue().encode("utf-8", "replace")
        buffer.seek(0)
        buffer.truncate()


def _with_head(columns: Sequence[tuple[str, str]], rows: Iterable[list[Any]]) -> Iterator[list[Any]]:
    yield [name for name, _ in columns]
    yield from rows


def as_text(columns: Sequence[tuple[str, str]], rows: Sequence[list[Any]], view: View) -> bytes:
    """A table that fits the terminal; if it has too many columns, each row is written as a list of its columns."""
    names = [escape(name, ascii_only=not view.unicode) for name, _ in columns]
    texts = [[_cell(value, view) for value in row] for row in rows]
    widths = [max(map(cells, [name, *(row[index] for row in texts)])) for index, name in enumerate(names)]
    room = view.width or 1 << 20
    least = [min(width, NARROWEST) for width in widths] if view.width else widths
    if sum(least) + _BETWEEN * (len(widths) - 1) > (view.width or WIDEST):
        lines = _list_rows(names, texts, room, view)
    else:
        numeric = [all(_is_number(row[index]) for row in rows) and bool(rows) for index in range(len(names))]
        lines = _tabled(names, texts, _fitted(widths, room), numeric, view)
    return ("\n".join(line.rstrip() for line in lines) + "\n").encode("utf-8" if view.unicode else "ascii", "replace")


def _is_number(value: Any) -> bool:
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))


def _fitted(widths: Sequence[int], room: int) -> list[int]:
    """Widths that fit the room: the widest columns are narrowed first."""
    fitted = list(widths)
    over = sum(fitted) + _BETWEEN * (len(fitted) - 1) - room
    while over > 0:
        widest = max(fitted)
        second = max([width for width in fitted if width < widest], default=0)
        those = [index for index, width in enumerate(fitted) if width == widest]
        less = min(widest - max(second, NARROWEST), -(-over // len(those)))
        for index in those:
            cut_here = min(less, over)
            fitted[index] -= cut_here
            over -= cut_here
    return fitted


def _tabled(
    names: Sequence[str], rows: Iterable[Sequence[str]], widths: Sequence[int], numeric: Sequence[bool], view: View
) -> Iterator[str]:
    rule = "─" if view.unicode else "-"
    yield _line(names, widths, numeric, view)
    yield rule * (sum(widths) + _BETWEEN * (len(widths) - 1))
    for row in rows:
        yield _line(row, widths, numeric, view)


def _line(row: Sequence[str], widths: Sequence[int], numeric: Sequence[bool], view: View) -> str:
    parts = []
    for text, width, right in zip(row, widths, numeric, strict=True):
        short = _cut(text, width, view)
        blank = " " * (width - cells(short))
        parts.append(blank + short if right else short + blank)
    return (" " * _BETWEEN).join(parts)


def _list_rows(names: Sequence[str], rows: Iterable[Sequence[str]], room: int, view: View) -> Iterator[str]:
    wide = min(max(map(cells, names), default=0), max(NARROWEST, room // 2))
    for number, row in enumerate(rows, 1):
        yield f"row {number:,}"
        for name, text in zip(names, row, strict=True):
            head = _cut(name, wide, view)
            yield f"  {head}{' ' * (wide - cells(head))}  {_cut(text, max(1, room - wide - 4), view)}"


def _cut(text: str, width: int, view: View) -> str:
    return cut(text, width, "…" if view.unicode else "...")


def _cell(value: Any, view: View) -> str:
    text = NULL if value is None else shown(value)
    return text if text.isascii() or view.unicode else escape(text, ascii_only=True)


def shown(value: Any) -> str:
    """A plain value as safe text on one line."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return escape(value)
    if isinstance(value, dict) and value.keys() == {"length", "hex"}:
        return str(value["hex"])
    if isinstance(value, dict | list):
        return escape(json.dumps(_without_nulls(value), ensure_ascii=False, separators=(",", ":")))
    return str(value)


def _without_nulls(value: Any) -> Any:
    """Objects without null values: most packets have few of the possible properties."""
    if isinstance(value, dict):
        return {name: _without_nulls(member) for name, member in value.items() if member is not None}
    return [_without_nulls(member) for member in value] if isinstance(value, list) else value
