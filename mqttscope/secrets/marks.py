"""Finds marks around names of secrets in a text: braces, tags, line ends, keys of values; and resolves escapes.

`notations` visits names in order, so each character is searched only once per mark.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from typing import Final

LINE_HEAD: Final = 192
"""Upper limit of the characters that `notations._BEGINS_LINE` matches."""
_VALUE_KEY = re.compile(
    r"(?:value(?:_?string)?|(?<![A-Za-z0-9])(?:val|vs|vd|v|data|content|default|text|string))\\{0,32}[\"']?\s{0,8}(?:=>|[:=])\s{0,8}",
    re.IGNORECASE,
)
"""A key with the value of a neighbouring name: ``"name": "password", "value": "x"``."""
_BRACES = re.compile(r"[{}]|(?<=[:,{\[])\s{0,16}\"(?:[^\"\\]|\\.)*(?:\"|\Z)", re.DOTALL)
_ESCAPED = re.compile(
    r"\\{1,8}(?:u00|x)([0-9a-fA-F]{2})|\\{1,8}u\{0{0,4}([0-9a-fA-F]{2})\}|%([2-7][0-9a-fA-F])|&(?:#(\d{2,3})|#x([0-9a-fA-F]{2})|(quot|apos|lt|gt));"
    r"|/\*[^*]{0,256}\*/|(?<![:\w])//[^\r\n]{0,256}(?=[\r\n])"
)
"""Escapes, and JavaScript comments, which are dropped."""
_ENTITIES = {"quot": '"', "apos": "'", "lt": "<", "gt": ">"}


class Marks:
    """Marks around names that are visited in order; caches make each character searched only once per mark."""

    def __init__(self, text: str) -> None:
        self.beside: list[tuple[int, int]] = []
        """Values beside the current name; the search for names continues right after the name, not after them."""
        self.is_sure = False
        """Whether the current name marks a secret regardless of its value."""
        self.paired = {False: 0, True: 0}
        """End of the text searched for values of pairs on a line, for unsure and for sure names."""
        self._text = text
        self._last: dict[str, tuple[int, int]] = {}
        self._first: dict[str, tuple[int, int]] = {}
        self._first_key: tuple[int, re.Match[str] | None] = len(text) + 1, None
        self._known: dict[tuple[str, bool], int] = {}
        self._edges: list[int] = []
        """End offsets of all braces."""
        self._objects = [0]
        """Number of the brace that opened the innermost object, before the first and after each brace; 0 outside."""
        self._pieces: dict[int, list[tuple[int, int]]] = {}
        self._looked_up: set[tuple[int, bool]] = set()
        self._looked_at = {False: (0, 0), True: (0, 0)}
        self._tag = -1, -1, False
        """Offset of a tag, of the last ``>`` after it, and whether that ``>`` is in quotes."""

    def last_before(self, mark: str, place: int) -> int:
        """Offset of the last mark before a place, or -1; places must not decrease."""
        looked, last = self._last.get(mark, (0, -1))
        last = max(last, self._text.rfind(mark, looked, place))
        self._last[mark] = place, last
        return last

    def first_from(self, mark: str, place: int) -> int:
        """Offset of the first mark from a place on, or the length of the text."""
        looked, first = self._first.get(mark, (0, -1))
        if not looked <= place <= first:
            first = self._text.find(mark, place)
            first = len(self._text) if first < 0 else first
            self._first[mark] = place, first
        return first

    def first_key(self, place: int) -> re.Match[str] | None:
        """The first key such as ``value`` from a place on."""
        looked, key = self._first_key
        if place < looked:
            key = _VALUE_KEY.search(self._text, place, looked + LINE_HEAD) or key
        elif key is None or place <= key.start():
            return key
        else:
            key = _VALUE_KEY.search(self._text, place)
        self._first_key = place, key
        return key

    def is_open(self, tag: int, place: int) -> bool:
        """Whether a place is inside a tag: every ``>`` in between is in quotes."""
        closed = self.last_before(">", place)
        if closed < tag:
            return True
        _, looked, is_quoted = self._tag if self._tag[0] == tag else (tag, tag, False)
        is_quoted ^= self._text.count('"', looked, closed) % 2 == 1
        self._tag = tag, closed, is_quoted
        return is_quoted

    def take_pieces(self, place: int) -> list[tuple[int, int]]:
        """Parts of the innermost object around a place; empty if an equally sure name has used the object."""
        if not self._edges:
            inside, start = [0], 0
            for number, brace in enumerate(_BRACES.finditer(self._text), 1):
                if brace[0] not in "{}":
                    continue
                self._pieces.setdefault(inside[-1], []).append((start, brace.start()))
                start = brace.end()
                if brace[0] == "{":
                    inside.append(number)
                elif len(inside) > 1:
                    inside.pop()
                self._edges.append(start)
                self._objects.append(inside[-1])
            self._pieces.setdefault(inside[-1], []).append((start, len(self._text)))
        number = self._objects[bisect_right(self._edges, place)]
        if not number or (number, self.is_sure) in self._looked_up:
            return []
        self._looked_up.add((number, self.is_sure))
        return self._pieces[number]

    def looked_at(self, start: int, end: int) -> None:
        """Note that all values in a part were found for names as sure as the current one."""
        begin, done = self._looked_at[self.is_sure]
        if end > done:
            self._looked_at[self.is_sure] = (begin if start <= done else start), end

    def looked_until(self, place: int) -> int:
        """End of the last searched part if it contains the place, else the place."""
        begin, end = self._looked_at[self.is_sure]
        return end if begin <= place < end else place

    def is_new(self, kind: str, place: int) -> bool:
        """Whether the element at a place was not searched yet for names as sure as the current one; marks it."""
        is_new = self._known.get((kind, self.is_sure)) != place
        self._known[kind, self.is_sure] = place
        return is_new

    def take_beside(self) -> list[tuple[int, int]]:
        """Return and clear the values beside the current name."""
        beside, self.beside = self.beside, []
        return beside


def unescaped(text: str) -> tuple[str, _PlaceMap] | None:
    """The text with escapes resolved, and the original offsets; ``None`` without escapes."""
    parts: list[str] = []
    starts, ends = [0], [0]
    length = at = 0
    for hit in _ESCAPED.finditer(text):
        code = hit[1] or hit[2] or hit[3] or hit[5]
        sign = (
            _ENTITIES[hit[6]]
            if hit[6]
            else chr(int(code, 16))
            if code
            else chr(min(255, int(hit[4])))
            if hit[4]
            else ""
        )
        parts += [text[at : hit.start()], sign]
        length += hit.start() - at + len(sign)
        at = hit.end()
        starts.append(length)
        ends.append(at)
    if not at:
        return None
    return "".join([*parts, text[at:]]), _PlaceMap(starts, ends)


class _PlaceMap:
    """Maps offsets in the resolved text to offsets in the escaped text."""

    def __init__(self, starts: list[int], ends: list[int]) -> None:
        self._starts, self._ends = starts, ends

    def __call__(self, place: int) -> int:
        piece = bisect_right(self._starts, place) - 1
        return self._ends[piece] + place - self._starts[piece]
