"""Numbers for people: counts with their words, sizes, rates, shares."""

from __future__ import annotations


def number(value: int) -> str:
    """A count; empty for 0, so that other counts are conspicuous."""
    return f"{value:,}" if value else ""


def size(count: int) -> str:
    """Bytes for people: ``950 B``, ``1.2 kB``, ``3.4 MB``."""
    if count < 1000:
        return f"{count} B"
    value = float(count)
    for unit in ("kB", "MB", "GB"):
        value /= 1000
        if value < 999.95:
            return f"{value:.1f} {unit}"
    return f"{value / 1000:,.1f} TB"


def per_second(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 1 else f"{value:.2g}"


def plural(count: int, word: str) -> str:
    """A count with its noun, in the plural unless the count is 1."""
    return f"{count:,} {word}{'' if count == 1 else 's'}"


def percent(part: int, whole: int) -> str:
    return f"{part * 100 / whole:.0f} %" if part and whole else ""
