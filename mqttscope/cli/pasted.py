"""Parses bytes as people paste them: hexadecimal digits, hexdumps with offsets, literals of Python and C, arrays."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TextIO

MAX_LINE_BYTES = 1 << 30
"""Longer lines are passed over: the largest packet takes 768 MiB when its bytes are written with blanks between."""
MAX_GATHERED = 1 << 26
"""Characters of a literal or an array that goes over several lines; its end is not waited for after more."""
MAX_DUMP_BYTES = (1 << 28) + (1 << 16)
"""Bytes of one hexdump: the largest packet, and what may lie around it."""
LINK_TYPES = (1, 113, 276, 101, 0)
"""Links that a dump of a complete frame may be of: Ethernet, Linux cooked (both versions), raw IP, loopback."""

_NOISE = re.compile(r"0x|\\x|[\s:,;|_-]", re.IGNORECASE)
_NOT_HEX = re.compile(r"[^0-9a-f]", re.IGNORECASE)
_ROW = re.compile(r"\s*([0-9a-fA-F]{4,8})(?::\s*|\s{2,}|\s(?=(?:[0-9a-fA-F]{2}|\*\*)(?:\s|$)))(\S.*)", re.DOTALL)
_BYTES = re.compile(r"(?:[0-9a-fA-F]{2})+(?=\s|$)|\*\*(?=\s|$)")
_GAP = re.compile(r"[ \t]*")
_MARKS = re.compile(r"\s{6,}(?:[A-Za-z]-|\^)")
_LITERAL = re.compile(r"(?:[\w.\s*\[\]]{0,200}[=(])*\s*(?:[bB][rR]?|[rR][bB])?([\"'])")
_STRING = re.compile(r"(?:[bB]|[bB][rR]|[rR][bB])?(\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*')", re.DOTALL)
_COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL)
_CHARACTER = re.compile(r"'(?:[^'\\]|\\.[0-9a-fA-F]*)'", re.DOTALL)
_HALF_ROW = 8


@dataclass(slots=True)
class Found:
    """One sequence of bytes."""

    line: int
    """Number of its first line, from 1."""
    raw: bytes = b""
    problem: str | None = None
    """What is wrong with it, where it cannot be read."""
    note: str | None = None
    """What was made of it, where that is not what is written."""


@dataclass(slots=True)
class _Dump:
    """A hexdump in the making."""

    line: int
    raw: bytearray = field(default_factory=bytearray)
    problem: str | None = None


def lines_of(stream: TextIO | None) -> Iterator[tuple[int, str | None]]:
    """Lines of an input with their numbers, from 1; ``None`` for one that was too long to keep."""
    if stream is None:
        return
    number = 0
    while line := stream.buffer.readline(MAX_LINE_BYTES + 1):
        number += 1
        if len(line) > MAX_LINE_BYTES:
            while line and not line.endswith(b"\n"):
                line = stream.buffer.readline(MAX_LINE_BYTES)
            yield number, None
        else:
            yield number, line.decode("utf-8", "replace")


@dataclass(slots=True)
class _Gathered:
    """An array or a literal in the making."""

    line: int
    parts: list[str] = field(default_factory=list)
    depth: int = 0
    """Braces that are open."""
    size: int = 0
    is_cut: bool = False
    """Its end was not waited for."""

    def take(self, text: str) -> bool:
        """Add a line; returns whether more belongs to it."""
        self.parts.append(text)
        self.size += len(text)
        self.depth += text.count("{") - text.count("}")
        stripped = text.rstrip()
        goes_on = stripped.endswith("\\") and stripped[:-1].rstrip().endswith(('"', "'"))
        goes_on = goes_on or self.depth > 0
        self.is_cut = goes_on and self.size > MAX_GATHERED
        return goes_on and not self.is_cut

    def read(self) -> Found:
        """What was gathered."""
        if self.is_cut:
            return Found(self.line, problem=f"no end after {MAX_GATHERED:,} characters")
        return _read(self.line, "".join(self.parts))


def sequences(lines: Iterable[tuple[int, str | None]]) -> Iterator[Found]:
    """The sequences of lines with their numbers; ``None`` is a line that was too long to keep.

    Each line is one sequence, blank ones none; the rows of a hexdump, and the lines of a literal or an array that ends
    on a later one, belong together.
    """
    dump: _Dump | None = None
    gathered: _Gathered | None = None
    for number, text in lines:
        if text is None:
            yield Found(number, problem=f"longer than {MAX_LINE_BYTES} bytes")
            continue
        if gathered is not None:
            if not gathered.take(text):
                yield gathered.read()
                gathered = None
            continue
        row = _ROW.match(text)
        offset = -1 if row is None else int(row[1], 16)
        if dump is not None:
            if offset > 0 and row is not None:
                _add(dump, offset, row[2])
                continue
            if _MARKS.match(text):
                continue
            yield _done(dump)
            dump = None
        if offset == 0 and row is not None:
            dump = _Dump(number)
            _add(dump, 0, row[2])
        elif (begun := _Gathered(number)).take(text) and (begun.depth > 0 or _LITERAL.match(text)):
            gathered = begun
        elif text and not text.isspace():
            yield _read(number, text)
    if dump is not None:
        yield _done(dump)
    if gathered is not None:
        yield gathered.read()


def to_bytes(given: str | None) -> tuple[bytes, str | None]:
    """Bytes of a text, or what is wrong with it; ``None`` is a line that was too long to keep."""
    if given is None:
        return b"", f"longer than {MAX_LINE_BYTES} bytes"
    if _LITERAL.match(given):
        return _literal(given)
    if "{" in given or "[" in given:
        found = _array(given)
        if found is not None:
            return found
    digits = _NOISE.sub("", given)
    wrong = _NOT_HEX.search(digits)
    if wrong is not None:
        return b"", f"{wrong[0]!r} is not a hexadecimal digit"
    if len(digits) % 2:
        return b"", f"an odd number of hexadecimal digits ({len(digits)})"
    return bytes.fromhex(digits), None


def _read(line: int, text: str) -> Found:
    raw, problem = to_bytes(text)
    return Found(line, raw, problem)


def _add(dump: _Dump, offset: int, rest: str) -> None:
    if dump.problem is not None:
        return
    if offset != len(dump.raw):
        dump.problem = f"the row at offset 0x{offset:x} does not follow the {len(dump.raw)} bytes before it"
        return
    found = _row_bytes(rest)
    if found is None:
        dump.problem = "the hexdump hides bytes (**); --show-secrets shows them where it was made"
    elif not found:
        dump.problem = f"the row at offset 0x{offset:x} has no bytes"
    elif len(dump.raw) + len(found) > MAX_DUMP_BYTES:
        dump.problem = f"the hexdump has more than {MAX_DUMP_BYTES} bytes"
    else:
        dump.raw += found


def _row_bytes(rest: str) -> bytes | None:
    """Bytes of a row, without the column of text after them; ``None`` where some are hidden."""
    first = rest.find("|")
    framed = first >= 0 and rest.rstrip().endswith("|")
    if framed:
        rest = rest[:first]
    digits: list[str] = []
    at = count = 0
    while at < len(rest):
        found = _BYTES.match(rest, at)
        if found is None:
            break
        if found[0] == "**":
            return None
        digits.append(found[0])
        count += len(found[0]) // 2
        gap = _GAP.match(rest, found.end())
        at = found.end() if gap is None else gap.end()
        # Two blanks begin the text, but for those that some put in the middle of the row.
        if at - found.end() > 1 and not framed and count != _HALF_ROW:
            break
    return bytes.fromhex("".join(digits))


def _done(dump: _Dump) -> Found:
    """The content of a dump; that of a complete frame is the payload of its TCP segment."""
    if dump.problem is not None:
        return Found(dump.line, problem=dump.problem)
    raw = bytes(dump.raw)
    carried = _carried(raw)
    if carried is None:
        return Found(dump.line, raw)
    return Found(dump.line, carried, note=f"a complete frame: the {len(carried)} bytes that its TCP segment carries")


def _carried(raw: bytes) -> bytes | None:
    """Payload of the TCP segment in a frame; ``None`` where the bytes are no such frame."""
    from mqttscope.net.frame import Frame
    from mqttscope.net.headers import segment
    from mqttscope.net.segment import Segment

    for link_type in LINK_TYPES:
        found = segment(Frame(1, 0, link_type, raw, len(raw), "-"))
        if isinstance(found, Segment) and found.payload:
            return found.payload
    return None


def _literal(given: str) -> tuple[bytes, str | None]:
    r"""Bytes of string literals of Python or C: ``b'\x10\x0eMQTT'``, also several after one another."""
    parts: list[bytes] = []
    for found in _STRING.finditer(given):
        try:
            parts.append(ast.literal_eval(f"b{found[1]}"))
        except (SyntaxError, ValueError, MemoryError) as error:
            told = getattr(error, "msg", None) or str(error)
            return b"", f"this is not a literal of bytes: {told}"
    rest = _STRING.sub("", given)
    if not parts or "'" in rest or '"' in rest:
        return b"", "this literal of bytes has no end"
    return b"".join(parts), None


def _array(given: str) -> tuple[bytes, str | None] | None:
    """Bytes of an array: ``{0x10, 0x0e}``, ``[16, 14]``; ``None`` where there is none."""
    text = _COMMENT.sub(" ", given)
    opening, closing = ("{", "}") if "{" in text else ("[", "]")
    start, end = text.find(opening), text.rfind(closing)
    if start < 0 or end < start:
        return None
    items = [item.strip() for item in text[start + 1 : end].split(",")]
    if items and not items[-1]:
        items.pop()
    values: list[int] = []
    for item in items:
        character = _CHARACTER.fullmatch(item)
        try:
            value = ast.literal_eval(f"b{item}")[0] if character else int(item, 16 if item[:2].lower() == "0x" else 10)
        except (SyntaxError, ValueError, IndexError):
            value = -1
        if not 0 <= value <= 255:
            return b"", f"{item[:40]!r} in the array is not a byte"
        values.append(value)
    return bytes(values), None
