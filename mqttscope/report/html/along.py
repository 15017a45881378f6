"""Counts along the time in pieces that become longer with it, so that a chart always has room for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mqttscope.report.base import Clock
from mqttscope.session.capture_time import captured

if TYPE_CHECKING:
    from mqttscope.report.html.charts import Bar

MAX_PIECES = 120
"""Pieces between the first and the last."""
_MS = 1_000_000
_SECOND = 1_000 * _MS
WIDTHS = (
    *(count * _MS for count in (1, 5, 10, 50, 100, 500)),
    *(count * _SECOND for count in (1, 5, 10, 30, 60, 300, 600, 1_800, 3_600, 21_600, 43_200, 86_400)),
)
"""Lengths of a piece in nanoseconds, each a multiple of the one before; longer ones are ten times as long."""


class Along:
    """Counts several kinds of things; pieces begin at multiples of their length since 1970 (UTC)."""

    def __init__(self, *kinds: str) -> None:
        """``kinds``: the classes of the pieces of a bar."""
        self.kinds = kinds
        self.width_ns = WIDTHS[0]
        self._pieces: dict[int, list[int]] = {}
        self._first = self._last = 0
        self._clock = Clock()

    def add(self, timestamp_ns: int, kind: int = 0, count: int = 1) -> None:
        """Count something of the kind with this number."""
        timestamp_ns = captured(timestamp_ns)
        piece = timestamp_ns // self.width_ns
        found = self._pieces.get(piece)
        if found is None:
            found = self._piece(timestamp_ns)
        found[kind] += count

    def _piece(self, timestamp_ns: int) -> list[int]:
        """The counts of a new piece."""
        piece = timestamp_ns // self.width_ns
        first, last = (min(self._first, piece), max(self._last, piece)) if self._pieces else (piece, piece)
        while last - first >= MAX_PIECES:
            factor = self._widen()
            first, last = first // factor, last // factor
        self._first, self._last = first, last
        return self._pieces.setdefault(timestamp_ns // self.width_ns, [0] * len(self.kinds))

    def _widen(self) -> int:
        """Make pieces longer; returns by how much."""
        wider = next((one for one in WIDTHS if one > self.width_ns), self.width_ns * 10)
        factor, self.width_ns = wider // self.width_ns, wider
        pieces: dict[int, list[int]] = {}
        for piece, counts in self._pieces.items():
            known = pieces.setdefault(piece // factor, [0] * len(self.kinds))
            known[:] = map(sum, zip(known, counts, strict=True))
        self._pieces = pieces
        return factor

    def bars(self) -> list[Bar]:
        """A bar for each piece from the first to the last, also for those in which nothing was counted."""
        # Whoever counts may never draw: numbers as JSON need no page.
        from mqttscope.report.html.charts import Bar

        if not self._pieces:
            return []
        nothing = (0,) * len(self.kinds)
        return [
            Bar(self._name(piece), tuple(self._pieces.get(piece, nothing)))
            for piece in range(self._first, self._last + 1)
        ]

    def chart(self, label: str, kind: int | None = None) -> str:
        """The bars as a chart, or those of one kind; empty where nothing was counted, or all of it in one piece."""
        from mqttscope.report.html.charts import Bar, bar_columns

        bars = self.bars()
        if len(bars) < 2:
            return ""
        if kind is None:
            return bar_columns(bars, self.kinds, label)
        return bar_columns([Bar(one.name, (one.pieces[kind],)) for one in bars], self.kinds[kind : kind + 1], label)

    def told(self) -> str:
        """What a bar stands for: ``2026-01-02 UTC; each bar is 500 ms``."""
        if not self._pieces:
            return ""
        day = self._clock.iso(self._first * self.width_ns).partition("T")[0]
        return f"{day} UTC; each bar is {_length(self.width_ns)}"

    def _name(self, piece: int) -> str:
        """The time at which a piece begins, as far as it tells pieces apart."""
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
