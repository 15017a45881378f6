"""Tables of cases as text: titles, and under each, indented, its cells with ``|`` between them.

    two segments swapped
        > A 104:def 501; > A 101:abc 501 | > 0:abcdef

Cells go on in the next line where one is not enough, and lines with ``#`` at their beginning are headings.  The caller
says how each column is read.
"""

from __future__ import annotations

import re
from ast import literal_eval
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


def read_value(text: str) -> object:
    """A value as Python writes it, a list of such, or the word that is none."""
    if text.startswith("["):
        return [read_value(part) for part in text[1:-1].split(",") if part]
    try:
        return literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def value_at(root: Any, path: str) -> object:
    """What a path such as ``client_side.exchanges[7].qos`` leads to; of a table its keys, of a tuple a list,
    and of a list what the path leads to from each part."""
    for attribute, key in re.findall(r"(\w+)|\[(.*?)\]", path):
        if attribute and isinstance(root, list | tuple):
            root = [getattr(part, attribute) for part in root]
        else:
            root = getattr(root, attribute) if attribute else root[read_value(key)]
    return list(root) if isinstance(root, dict | tuple) else root


def differing(root: object, facts: str) -> dict[str, object]:
    """What is not as facts such as ``phase=connected client_side.exchanges=[7]`` say."""
    wrong = {}
    for path, _, text in (fact.partition("=") for fact in facts.split()):
        result, expected = value_at(root, path), read_value(text)
        if result != expected or isinstance(result, bool) is not isinstance(expected, bool):
            wrong[path] = result
    return wrong
