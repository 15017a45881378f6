"""The marks around names of secrets in a text: braces, tags, ends of lines, keys of values; and texts without escapes.

Names are looked for one after the other (`notations`), and each character is looked at once for a mark.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from typing import Final

LINE_HEAD: Final = 192
"""More characters than `_BEGINS_LINE` finds at most."""
_VALUE_KEY = re.compile(
    r"(?:value(?:_?string)?|(?<![A-Za-z0-9])(?:val|vs|vd|v|data|content|default|text|string))\\{0,32}[\"']?\s{0,8}(?:=>|[:=])\s{0,8}",
    re.IGNORECASE,
)
"""A key whose value is that of a name beside it."""
_BRACES = re.compile(r"[{}]|(?<=[:,{\[])\s{0,16}\"(?:[^\"\\]|\\.)*(?:\"|\Z)", re.DOTALL)
_ESCAPED = re.compile(
    r"\\{1,8}(?:u00|x)([0-9a-fA-F]{2})|\\{1,8}u\{0{0,4}([0-9a-fA-F]{2})\}|%([2-7][0-9a-fA-F])|&(?:#(\d{2,3})|#x([0-9a-fA-F]{2})|(quot|apos|lt|gt));"
    r"|/\*[^*]{0,256}\*/|(?<![:\w])//[^\r\n]{0,256}(?=[\r\n])"
)
"""Escapes, and the comments of JavaScript, which stand for nothing."""
_ENTITIES = {"quot": '"', "apos": "'", "lt": "<", "gt": ">"}


class Marks:
    """The marks around names that are looked for one after the other: each character is looked at once for a mark."""

    def __init__(self, text: str) -> None:
        self.beside: list[tuple[int, int]] = []
        """Values beside the name at hand, after which the text is not looked through yet."""
        self.is_sure = False
        """Whether the name at hand is that of a secret, whatever its value looks like."""
        self.paired = {False: 0, True: 0}
        """Up to where values of pairs on one line were looked for, for names that are not sure and that are."""
        self._text = text
        self._last: dict[str, tuple[int, int]] = {}
        self._first: dict[str, tuple[int, int]] = {}
        self._first_key: tuple[int, re.Match[str] | None] = len(text) + 1, None
        self._known: dict[tuple[str, bool], int] = {}
        self._edges: list[int] = []
        """Ends of all braces."""
        self._objects = [0]
        """Before the first and after each of them: the number of the brace that opened the object there, or 0."""
        self._pieces: dict[int, list[tuple[int, int]]] = {}
        self._taken: set[tuple[int, bool]] = set()
        self._looked_at = {False: (0, 0), True: (0, 0)}
        self._tag = -1, -1, False
        """A tag, the last ``>`` after it, and whether that is in quotes."""

    def last_before(self, mark: str, place: int) -> int:
        """Where the last mark is before a place, which is not before earlier ones; -1 without one."""
        looked, last = self._last.get(mark, (0, -1))
        last = max(last, self._text.rfind(mark, looked, place))
        self._last[mark] = place, last
        return last

    def first_from(self, mark: str, place: int) -> int:
        """Where the first mark is from a place on; the end of the text without one."""
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
        """Whether a place is in the tag that begins before it: each ``>`` between them is in quotes."""
        closed = self.last_before(">", place)
        if closed < tag:
            return True
        _, looked, is_quoted = self._tag if self._tag[0] == tag else (tag, tag, False)
        is_quoted ^= self._text.count('"', looked, closed) % 2 == 1
        self._tag = tag, closed, is_quoted
        return is_quoted

    def take_pieces(self, place: int) -> list[tuple[int, int]]:
        """The object around a place without those in it; nothing if it was taken for a name as sure as this one."""
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
        if not number or (number, self.is_sure) in self._taken:
            return []
        self._taken.add((number, self.is_sure))
        return self._pieces[number]

    def looked_at(self, start: int, end: int) -> None:
        """All values in a part were found, for a name as sure as the one at hand."""
        begin, done = self._looked_at[self.is_sure]
        if end > done:
            self._looked_at[self.is_sure] = (begin if start <= done else start), end

    def looked_until(self, place: int) -> int:
        """The end of the last part of which that is known, if a place is in it; else the place."""
        begin, end = self._looked_at[self.is_sure]
        return end if begin <= place < end else place

    def is_new(self, kind: str, place: int) -> bool:
        """Whether values were not looked for yet in what begins at a place, for a name as sure as the one at hand."""
        is_new = self._known.get((kind, self.is_sure)) != place
        self._known[kind, self.is_sure] = place
        return is_new

    def take_beside(self) -> list[tuple[int, int]]:
        """The values beside the name at hand."""
        beside, self.beside = self.beside, []
        return beside


def unescaped(text: str) -> tuple[str, _Places] | None:
    """A text with its escapes resolved, and where its characters stood; ``None`` without any."""
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
    return "".join([*parts, text[at:]]), _Places(starts, ends)


class _Places:
    """Where the characters of a text stand in the one with escapes."""

    def __init__(self, starts: list[int], ends: list[int]) -> None:
        self._starts, self._ends = starts, ends

    def __call__(self, place: int) -> int:
        piece = bisect_right(self._starts, place) - 1
        return self._ends[piece] + place - self._starts[piece]
