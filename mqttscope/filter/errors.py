"""What is wrong with a filter expression, shown where it is wrong."""

from __future__ import annotations

import unicodedata

from mqttscope.errors import MqttscopeError

MAX_SHOWN_COLUMNS = 100
"""A longer line of an expression is shown only around the place of the error."""
_CONTEXT = 40


class FilterError(MqttscopeError, ValueError):
    """A filter expression that cannot be used.

    ``position`` and ``length`` are the offending characters of the expression, counted from 0; a length of 0 is a
    place between characters, such as the end.  ``hint`` says what would be right, where that is known.
    """

    def __init__(self, message: str, position: int, length: int, *, expression: str = "", hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.position = position
        self.length = length
        self.expression = expression
        self.hint = hint

    def __str__(self) -> str:
        return self.render()

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (self.message, self.position, self.length, self.expression, self.hint)

    def render(self) -> str:
        """The message, the line of the expression with carets under the offending characters, and the hint."""
        lines = [self.message]
        if self.expression:
            lines.extend(self._marked())
        if self.hint:
            lines.append(f"hint: {self.hint}")
        return "\n".join(lines)

    def _marked(self) -> tuple[str, str]:
        text, at = self.expression, min(self.position, len(self.expression))
        begin = text.rfind("\n", 0, at) + 1
        end = text.find("\n", begin)
        line = text[begin:] if end < 0 else text[begin:end]
        column = at - begin
        stop = min(column + max(self.length, 1), max(len(line), column + 1))
        before = after = ""
        if len(line) > MAX_SHOWN_COLUMNS:
            first = max(0, column - _CONTEXT)
            last = min(len(line), first + MAX_SHOWN_COLUMNS)
            before, after = "…" if first else "", "…" if last < len(line) else ""
            line, column, stop = line[first:last], column - first, min(stop, last + 1) - first
        shown = "".join(one if one.isprintable() else " " for one in line)
        blank = " " * (len(before) + _columns(shown[:column]))
        carets = "^" * max(1, _columns(shown[column:stop]))
        return f"  {before}{shown}{after}", f"  {blank}{carets}"


def _rebuild(message: str, position: int, length: int, expression: str, hint: str) -> FilterError:
    return FilterError(message, position, length, expression=expression, hint=hint)


def _columns(text: str) -> int:
    """Columns that text takes on a terminal."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(one) else 2 if unicodedata.east_asian_width(one) in "WF" else 1 for one in text
    )
