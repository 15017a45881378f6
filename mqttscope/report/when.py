"""The time column of human formats, and durations for people."""

from __future__ import annotations

from datetime import UTC, datetime

from mqttscope.report.base import Clock, View
from mqttscope.session.capture_time import captured

WIDE = 140
"""Minimum columns of a terminal with room for date and nanoseconds in every line."""
NARROW = 60
"""In terminals with fewer columns, times end with milliseconds."""

_SECOND = 1_000_000_000
_DAY = 86_400


class TimeColumn:
    """Formats times of events in a column of fixed width.

    ISO times, UTC or local, are complete in a wide terminal or without a limit.  In narrow terminals the column has
    the time of day, and `new_day` returns date and zone whenever they change.
    """

    def __init__(self, view: View) -> None:
        self._clock = Clock()
        self._first: int | None = None
        self._before: int | None = None
        self._day: tuple[int, str] | None = None
        self._second: int | None = None
        self._text = ""
        self._zone = "Z"
        digits = 3 if 0 < view.width < NARROW else 6
        self._digits = digits
        self._unit = 10 ** (9 - digits)
        self.mode = view.time
        self._local = self.mode == "local"
        if self.mode in ("iso", "local") and 0 < view.width < WIDE:
            self.mode = "clock"
        self.width = {
            "iso": 30, "local": 35, "epoch": 11 + digits if view.width > 0 else 20, "clock": 9 + digits,
            "relative": 6 + digits, "delta": 7 + digits, "none": 0,
        }[self.mode]  # fmt: skip
        if self.mode == "epoch" and view.width <= 0:
            self._digits, self._unit = 9, 1

    def text(self, timestamp_ns: int) -> str:
        """The time of an event."""
        timestamp_ns = captured(timestamp_ns)
        if self.mode == "clock":
            second, rest = divmod(timestamp_ns, _SECOND)
            if second != self._second:
                self._second = second
                if self._local:
                    second += _offset(second)
                minutes, seconds = divmod(second % _DAY, 60)
                hours, minutes = divmod(minutes, 60)
                self._text = f"{hours:02d}:{minutes:02d}:{seconds:02d}."
            return f"{self._text}{rest // self._unit:0{self._digits}d}"
        if self.mode == "iso":
            return self._clock.iso(timestamp_ns)
        if self.mode == "local":
            return self._local_time(timestamp_ns)
        if self.mode == "epoch":
            return self._seconds(timestamp_ns, "")
        if self.mode == "delta":
            before, self._before = self._before, timestamp_ns
            return self._seconds(0 if before is None else timestamp_ns - before, "+")
        if self._first is None:
            self._first = timestamp_ns
        return self._seconds(timestamp_ns - self._first, "")

    def new_day(self, timestamp_ns: int) -> str | None:
        """Date and zone, if the column does not show them and they changed since the event before."""
        if self.mode != "clock":
            return None
        second, zone = captured(timestamp_ns) // _SECOND, "UTC"
        if self._local:
            offset = _offset(second)
            second, zone = second + offset, f"local time, {_zone(offset)}"
        day = second // _DAY
        if (day, zone) == self._day:
            return None
        self._day = day, zone
        return f"{self._clock.iso(second * _SECOND).partition('T')[0]} {zone}"

    def _local_time(self, timestamp_ns: int) -> str:
        """``2026-01-02T04:04:05.123456789+01:00``."""
        second, nanosecond = divmod(timestamp_ns, _SECOND)
        if second != self._second:
            self._second = second
            offset = _offset(second)
            self._text, self._zone = self._clock.iso((second + offset) * _SECOND).partition(".")[0], _zone(offset)
        return f"{self._text}.{nanosecond:09d}{self._zone}"

    def _seconds(self, nanoseconds: int, plus: str) -> str:
        sign = plus
        if nanoseconds < 0:
            sign, nanoseconds = "-", -nanoseconds
        seconds, rest = divmod(nanoseconds // self._unit, 10**self._digits)
        return f"{sign}{seconds}.{rest:0{self._digits}d}".rjust(self.width)


def _offset(second: int) -> int:
    """Offset of local time from UTC in seconds; 0 if the system cannot determine it."""
    try:
        offset_ = datetime.fromtimestamp(second, UTC).astimezone().utcoffset()
    except (OverflowError, ValueError, OSError):
        return 0
    return 0 if offset_ is None else int(offset_.total_seconds())


def _zone(offset: int) -> str:
    hours, minutes = divmod(abs(offset) // 60, 60)
    return f"{'-' if offset < 0 else '+'}{hours:02d}:{minutes:02d}"


def moment(timestamp_ns: int | None) -> str:
    """A time to the second: ``2026-01-31 12:00:00``; empty for ``None``."""
    if timestamp_ns is None:
        return ""
    try:
        return datetime.fromtimestamp(timestamp_ns // 10**9, UTC).strftime("%Y-%m-%d %H:%M:%S")
    except (OverflowError, ValueError, OSError):
        return f"{timestamp_ns // 10**9} s"


def duration(nanoseconds: int, *, unicode: bool = True) -> str:
    """A duration for people: ``850 µs``, ``12.3 ms``, ``2.50 s``, ``3 min 20 s``, ``5 h 2 min``."""
    sign, length = ("-", -nanoseconds) if nanoseconds < 0 else ("", nanoseconds)
    if length < 1_000_000:
        return f"{sign}{length // 1000} {'µs' if unicode else 'us'}"
    if length < _SECOND:
        return f"{sign}{length / 1e6:.1f} ms"
    if length < 60 * _SECOND:
        return f"{sign}{length / 1e9:.2f} s"
    minutes, seconds = divmod(length // _SECOND, 60)
    if minutes < 60:
        return f"{sign}{minutes} min {seconds} s"
    return f"{sign}{minutes // 60} h {minutes % 60} min"


def seconds(value: int) -> str:
    """An interval of the protocol: ``60 s``, ``never`` for the maximum value (5.0 3.1.2.11.2)."""
    if value == 0xFFFFFFFF:
        return "never"
    if value >= 7200 and value % 3600 == 0:
        return f"{value} s ({value // 3600} h)"
    return f"{value} s"
