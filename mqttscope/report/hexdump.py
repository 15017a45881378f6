"""Hexdump of one packet: fields have different colours or letters, faults have carets under them.

Without colours, letters in a line under the bytes identify the fields; the field list uses the same letters.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from mqttscope.mqtt.declare import FieldSpan
from mqttscope.mqtt.wire import counted
from mqttscope.report.escape import cells
from mqttscope.report.style import Painter

_LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
_INDENT = 2
_SHOWN = bytes(byte if 32 <= byte < 127 else ord(".") for byte in range(256))


def letter(index: int) -> str:
    """The letter of a field; letters repeat after Z, since their order distinguishes them."""
    return _LETTERS[index % len(_LETTERS)]


@dataclass(slots=True)
class HexdumpMark:
    """A position that carets point at."""

    start: int
    end: int
    """Offset after the last byte; equal to ``start`` if a byte is missing there."""
    text: str
    """Escaped text."""


class Hexdump:
    """Hexdump of ``raw``.

    ``hidden``: ranges of secret bytes, which are not shown.  ``skip``: ranges left out in whole rows, in order.
    """

    def __init__(
        self,
        raw: bytes,
        spans: Sequence[FieldSpan],
        painter: Painter,
        *,
        marks: Sequence[HexdumpMark] = (),
        hidden: Sequence[tuple[int, int]] = (),
        skip: Sequence[tuple[int, int]] = (),
    ) -> None:
        self.raw = raw
        self.spans = sorted(spans, key=lambda span: span.start)
        self.painter = painter
        self.marks = marks
        self.hidden = hidden
        self.skip = skip
        self._digits = max(4, len(f"{max(len(raw) - 1, 0):x}"))
        left = painter.width - _INDENT - self._digits - 2
        self._columns = 16 if left >= 16 * 3 + 1 + 16 else 8
        self._with_text = left >= self._columns * 4 + 1
        self._first_span = 0

    def lines(self) -> Iterator[str]:
        """The lines of the dump."""
        raw, columns = self.raw, self._columns
        last = max([len(raw) - 1, *(mark.start for mark in self.marks)])
        start = 0
        while start <= last:
            stop = start + columns
            skipped = next((end for first, end in self.skip if first <= start and stop <= end), None)
            if skipped is not None:
                behind = start + (skipped - start) // columns * columns
                yield self._left_out(start, min(behind, len(raw)))
                start = behind
                continue
            yield from self._row(start, min(stop, len(raw)))
            start = stop

    def _left_out(self, start: int, stop: int) -> str:
        line = self.painter.line()
        line.add(" " * (_INDENT + self._digits + 2))
        line.add(f"{self.painter.ellipsis} {counted(stop - start, 'byte')}", "dim")
        return str(line)

    def _row(self, start: int, stop: int) -> Iterator[str]:
        fields = self._fields(start, stop)
        painter = self.painter
        line = painter.line()
        line.add(f"{'':{_INDENT}}{start:0{self._digits}x}  ", "dim")
        for index, first, behind in fields:
            line.add(self._hex(first, behind), f"span{index % 2}" if index >= 0 else "dim")
            if behind < stop:
                line.add(" ")
        width = self._columns * 3 - 1
        line.add(" " * (width - max(0, (stop - start) * 3 - 1)))
        if self._with_text:
            line.add("  ")
            for index, first, behind in fields:
                line.add(self._text(first, behind), f"span{index % 2}" if index >= 0 else "dim")
        yield str(line).rstrip(" ")
        under = self._letters(start, fields)
        if under:
            yield under
        yield from self._carets(start, stop)

    def _fields(self, start: int, stop: int) -> list[tuple[int, int, int]]:
        """``(number of the span or -1, first byte, end)`` of the row, without gaps."""
        parts: list[tuple[int, int, int]] = []
        at = start
        spans = self.spans
        while self._first_span < len(spans) and spans[self._first_span].end <= start:
            self._first_span += 1
        index = self._first_span
        while at < stop:
            while index < len(spans) and spans[index].end <= at:
                index += 1
            if index == len(spans) or spans[index].start >= stop:
                parts.append((-1, at, stop))
                break
            span = spans[index]
            if span.start > at:
                parts.append((-1, at, span.start))
                at = span.start
            behind = min(span.end, stop)
            parts.append((index, at, behind))
            at = behind
        return parts

    def _is_hidden(self, at: int) -> bool:
        return any(first <= at < behind for first, behind in self.hidden)

    def _hex(self, first: int, behind: int) -> str:
        if not self.hidden:
            return self.raw[first:behind].hex(" ")
        return " ".join("**" if self._is_hidden(at) else f"{self.raw[at]:02x}" for at in range(first, behind))

    def _text(self, first: int, behind: int) -> str:
        shown = self.raw[first:behind].translate(_SHOWN).decode("ascii")
        if not self.hidden:
            return shown
        return "".join("*" if self._is_hidden(at) else char for at, char in enumerate(shown, first))

    def _letters(self, start: int, fields: list[tuple[int, int, int]]) -> str:
        """The letter of each field under its first byte, dashes under the rest; empty inside one long field."""
        if self.painter.colour or not fields:
            return ""
        if len(fields) == 1 and (fields[0][0] < 0 or self.spans[fields[0][0]].start < start):
            return ""
        out = [" "] * (self._columns * 3 - 1)
        for index, first, behind in fields:
            if index < 0:
                continue
            for at in range((first - start) * 3, (behind - start) * 3 - 1):
                out[at] = "-"
            if self.spans[index].start >= start:
                out[(first - start) * 3] = letter(index)
        return " " * (_INDENT + self._digits + 2) + "".join(out).rstrip(" ")

    def _carets(self, start: int, stop: int) -> Iterator[str]:
        for mark in self.marks:
            first, behind = max(mark.start, start), min(max(mark.end, mark.start + 1), start + self._columns)
            if first >= behind:
                continue
            line = self.painter.line()
            line.add(" " * (_INDENT + self._digits + 2 + (first - start) * 3))
            line.add("^" * ((behind - first) * 3 - 1), "malformed")
            if mark.start < start:
                yield str(line)
                continue
            if cells(mark.text) + 1 > line.left:
                yield str(line)
                line = self.painter.line()
                line.add(" " * _INDENT)
            else:
                line.add(" ")
            line.add(mark.text, "malformed")
            yield str(line)
