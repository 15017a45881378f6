"""Counts over time in intervals that grow with the time span, so that a chart always has room for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mqttscope.report.base import Clock
from mqttscope.session.capture_time import captured

if TYPE_CHECKING:
    from mqttscope.report.html.charts import Bar

MAX_PIECES = 120
"""Maximum number of intervals between the first and the last count."""
_MS = 1_000_000
_SECOND = 1_000 * _MS
WIDTHS = (
    *(count * _MS for count in (1, 5, 10, 50, 100, 500)),
    *(count * _SECOND for count in (1, 5, 10, 30, 60, 300, 600, 1_800, 3_600, 21_600, 43_200, 86_400)),
)
"""Interval lengths in nanoseconds, each a multiple of the one before; further ones grow tenfold."""


class TimelineCounts:
    """Counts events of several kinds per interval; intervals begin at multiples of their length since 1970 (UTC)."""

    def __init__(self, *kinds: str) -> None:
        """``kinds``: the classes of the segments of a bar."""
        self.kinds = kinds
        self.width_ns = WIDTHS[0]
        self._pieces: dict[int, list[int]] = {}
        self._first = self._last = 0
        self._clock = Clock()

    def add(self, timestamp_ns: int, kind: int = 0, count: int = 1) -> None:
        """Count an event; ``kind`` is an index of `kinds`."""
        timestamp_ns = captured(timestamp_ns)
        piece = timestamp_ns // self.width_ns
        counts = self._pieces.get(piece)
        if counts is None:
            counts = self._piece(timestamp_ns)
        counts[kind] += count

    def _piece(self, timestamp_ns: int) -> list[int]:
        """The counts of a new interval."""
        piece = timestamp_ns // self.width_ns
        first, last = (min(self._first, piece), max(self._last, piece)) if self._pieces else (piece, piece)
        while last - first >= MAX_PIECES:
            factor = self._widen()
            first, last = first // factor, last // factor
        self._first, self._last = first, last
        return self._pieces.setdefault(timestamp_ns // self.width_ns, [0] * len(self.kinds))

    def _widen(self) -> int:
        """Merge intervals into longer ones; returns how many become one."""
        wider = next((width for width in WIDTHS if width > self.width_ns), self.width_ns * 10)
        factor, self.width_ns = wider // self.width_ns, wider
        pieces: dict[int, list[int]] = {}
        for piece, counts in self._pieces.items():
            known = pieces.setdefault(piece // factor, [0] * len(self.kinds))
            known[:] = map(sum, zip(known, counts, strict=True))
        self._pieces = pieces
        return factor

    def bars(self) -> list[Bar]:
        """A bar for each interval from the first to the last, including empty ones."""
        # Imported late: JSON output needs no charts.
        from mqttscope.report.html.charts import Bar

        if not self._pieces:
            return []
        nothing = (0,) * len(self.kinds)
        return [
            Bar(self._name(piece), tuple(self._pieces.get(piece, nothing)))
            for piece in range(self._first, self._last + 1)
        ]

    def chart(self, label: str, kind: int | None = None) -> str:
        """The bars of all kinds, or of one, as a chart; empty with fewer than two intervals."""
        from mqttscope.report.html.charts import Bar, columns

        bars = self.bars()
        if len(bars) < 2:
            return ""
        if kind is None:
            return columns(bars, self.kinds, label)
        return columns([Bar(bar.name, (bar.pieces[kind],)) for bar in bars], self.kinds[kind : kind + 1], label)

    def scale_text(self) -> str:
        """Date of the first bar and length of a bar: ``2026-01-02 UTC; each bar is 500 ms``."""
        if not self._pieces:
            return ""
        day = self._clock.iso(self._first * self.width_ns).partition("T")[0]
        return f"{day} UTC; each bar is {_length(self.width_ns)}"

    def _name(self, piece: int) -> str:
        """The start time of an interval, as precise as needed to distinguish bars."""
        iso = self._clock.iso(piece * self.width_ns)
        day, _, time = iso.partition("T")
        if not time:
            return iso
        if self.width_ns < _SECOND:
            return time[:12]
        if (self._last - self._first) * self.width_ns < 86_400 * _SECOND:
            return time[:8]
        return f"{day[5:]} {time[:5]}" if self.width_ns < 86_400 * _SECOND else day


def _length(width_ns: int) -> str:
    for unit, size in (("d", 86_400 * _SECOND), ("h", 3_600 * _SECOND), ("min", 60 * _SECOND), ("s", _SECOND)):
        if width_ns >= size:
            return f"{width_ns // size:,} {unit}"
    return f"{width_ns // _MS} ms"
