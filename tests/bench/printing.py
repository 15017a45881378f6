"""What all measurements print: lines, tables in Markdown, and how late something was."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from statistics import median

Out = Callable[[str], None]
"""Takes the lines of a report."""


def out(text: str) -> None:
    """A line of the report."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def say(text: str) -> None:
    """A remark on the way."""
    sys.stderr.write(f"{text}\n")


def heading(out: Out, *columns: str, texts: int = 1) -> None:
    """The head of a table; all columns but the first ``texts`` hold numbers."""
    row(out, *columns)
    out("|" + "---|" * texts + "--:|" * (len(columns) - texts))


def row(out: Out, *cells: str) -> None:
    """A row of a table."""
    out(f"| {' | '.join(cells)} |")


def spread(values: Sequence[float]) -> tuple[float, float, float]:
    """Median, 99th percentile and maximum."""
    ordered = sorted(values)
    return median(ordered), ordered[int(len(ordered) * 0.99)], ordered[-1]
