"""Tables of cases as text: titles, and under each, indented, its cells with ``|`` between them.

    two segments swapped
        > A 104:def 501; > A 101:abc 501 | > 0:abcdef

Cells go on in the next line where one is not enough, and lines with ``#`` at their beginning are headings.  The caller
says how each column is read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from textwrap import dedent
from typing import Any

import pytest


def titled(text: str) -> Iterator[tuple[str, list[str]]]:
    """Titles, each with its indented lines."""
    title, lines = "", list[str]()
    for line in dedent(text).splitlines():
        if line.startswith("#"):
            continue
        if line.strip() and not line.startswith(" "):
            if title:
                yield title, lines
            title, lines = line, []
        elif line.strip():
            lines.append(line.strip())
    yield title, lines


def cases_of(text: str, *columns: Callable[[str], Any]) -> list[Any]:
    """Cases for ``pytest.mark.parametrize`` and `each`, with their titles as names."""
    rows = []
    for title, lines in titled(text):
        cells = [cell.strip() for cell in f" {' '.join(lines)} ".split(" | ")]
        values = [read(cell) for read, cell in zip(columns, cells, strict=True)]
        rows.append(pytest.param(*values, id=title))
    return rows


def steps(text: str) -> list[str]:
    """What ``;`` separates, or ``nothing``."""
    return [] if text == "nothing" else [step.strip() for step in text.split(";")]
