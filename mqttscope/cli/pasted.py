"""Parses pasted bytes: hexadecimal digits, hexdumps with offsets, literals of Python and C, arrays."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TextIO

MAX_LINE_BYTES = 1 << 30
"""Maximum length of a line: the largest packet takes 768 MiB as digits with blanks."""
MAX_GATHERED = 1 << 26
"""Maximum characters of a literal or an array on several lines."""
MAX_DUMP_BYTES = (1 << 28) + (1 << 16)
"""Maximum bytes of one hexdump: the largest packet and its frame headers."""
LINK_TYPES = (1, 113, 276, 101, 0)
"""Link types of dumped frames: Ethernet, Linux cooked (both versions), raw IP, loopback."""

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
class PastedSequence:
    """One sequence of bytes."""

    line: int
    """Number of the first line, from 1."""
    raw: bytes = b""
    problem: str | None = None
    """Reason why it cannot be read."""
    note: str | None = None
    """Remark if the bytes are not exactly those in the text."""


@dataclass(slots=True)
class _Dump:
    """A hexdump that may continue on the next line."""

    line: int
    raw: bytearray = field(default_factory=bytearray)
    problem: str | None = None


def lines_of(stream: TextIO | None) -> Iterator[tuple[int, str | None]]:
    """Lines of an input with their numbers, from 1; ``None`` for a line that is too long."""
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
class _PartialSequence:
    """An array or a literal that may continue on the next line."""

    line: int
    parts: list[str] = field(default_factory=list)
    depth: int = 0
    """Number of open braces."""
    size: int = 0
    is_cut: bool = False
    """Whether it was cut off at the maximum size."""

    def take(self, text: str) -> bool:
        """Add a line; returns whether it continues on the next line."""
        self.parts.append(text)
        self.size += len(text)
        self.depth += text.count("{") - text.count("}")
        stripped = text.rstrip()
        goes_on = stripped.endswith("\\") and stripped[:-1].rstrip().endswith(('"', "'"))
        goes_on = goes_on or self.depth > 0
        self.is_cut = goes_on and self.size > MAX_GATHERED
        return goes_on and not self.is_cut

    def read(self) -> PastedSequence:
        """Parse the collected lines."""
        if self.is_cut:
            return PastedSequence(self.line, problem=f"no end after {MAX_GATHERED:,} characters")
        return _read(self.line, "".join(self.parts))


def sequences(lines: Iterable[tuple[int, str | None]]) -> Iterator[PastedSequence]:
    """Sequences in numbered lines; ``None`` is a line that was too long.

    Each non-blank line is one sequence, except the rows of a hexdump, and the lines of a literal or an array, which
    form one sequence together.
    """
    dump: _Dump | None = None
    gathered: _PartialSequence | None = None
    for number, text in lines:
        if text is None:
            yield PastedSequence(number, problem=f"longer than {MAX_LINE_BYTES} bytes")
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
            yield _sequence_of(dump)
            dump = None
        if offset == 0 and row is not None:
            dump = _Dump(number)
            _add(dump, 0, row[2])
        elif (begun := _PartialSequence(number)).take(text) and (begun.depth > 0 or _LITERAL.match(text)):
            gathered = begun
        elif text and not text.isspace():
            yield _read(number, text)
    if dump is not None:
        yield _sequence_of(dump)
    if gathered is not None:
        yield gathered.read()


def to_bytes(text: str | None) -> tuple[bytes, str | None]:
    """Bytes of a text, or its error; ``None`` is a line that was too long."""
    if text is None:
        return b"", f"longer than {MAX_LINE_BYTES} bytes"
    if _LITERAL.match(text):
        return _literal(text)
    if "{" in text or "[" in text:
        array = _array(text)
        if array is not None:
            return array
    digits = _NOISE.sub("", text)
    wrong = _NOT_HEX.search(digits)
    if wrong is not None:
        return b"", f"{wrong[0]!r} is not a hexadecimal digit"
    if len(digits) % 2:
        return b"", f"an odd number of hexadecimal digits ({len(digits)})"
    return bytes.fromhex(digits), None


def _read(line: int, text: str) -> PastedSequence:
    raw, problem = to_bytes(text)
    return PastedSequence(line, raw, problem)


def _add(dump: _Dump, offset: int, rest: str) -> None:
    if dump.problem is not None:
        return
    if offset != len(dump.raw):
        dump.problem = f"the row at offset 0x{offset:x} does not follow the {len(dump.raw)} bytes before it"
        return
    row = _row_bytes(rest)
    if row is None:
        dump.problem = "the hexdump hides bytes (**); make it again with --show-secrets"
    elif not row:
        dump.problem = f"the row at offset 0x{offset:x} has no bytes"
    elif len(dump.raw) + len(row) > MAX_DUMP_BYTES:
        dump.problem = f"the hexdump has more than {MAX_DUMP_BYTES} bytes"
    else:
        dump.raw += row


def _row_bytes(rest: str) -> bytes | None:
    """Bytes of a row, without the text column; ``None`` if some are hidden."""
    first = rest.find("|")
    framed = first >= 0 and rest.rstrip().endswith("|")
    if framed:
        rest = rest[:first]
    digits: list[str] = []
    at = count = 0
    while at < len(rest):
        match = _BYTES.match(rest, at)
        if match is None:
            break
        if match[0] == "**":
            return None
        digits.append(match[0])
        count += len(match[0]) // 2
        gap = _GAP.match(rest, match.end())
        at = match.end() if gap is None else gap.end()
        # Two blanks start the text column, except in the middle of a row.
        if at - match.end() > 1 and not framed and count != _HALF_ROW:
            break
    return bytes.fromhex("".join(digits))


def _sequence_of(dump: _Dump) -> PastedSequence:
    """Bytes of a dump; for a dump of a complete frame, the payload of its TCP segment."""
    if dump.problem is not None:
        return PastedSequence(dump.line, problem=dump.problem)
    raw = bytes(dump.raw)
    carried = _carried(raw)
    if carried is None:
        return PastedSequence(dump.line, raw)
    return PastedSequence(
        dump.line, carried, note=f"a complete frame: decoded the {len(carried)} bytes of its TCP segment"
    )


def _carried(raw: bytes) -> bytes | None:
    """Payload of the TCP segment in a frame; ``None`` if the bytes are not such a frame."""
    from mqttscope.net.frame import Frame
    from mqttscope.net.headers import segment
    from mqttscope.net.segment import Segment

    for link_type in LINK_TYPES:
        carried = segment(Frame(1, 0, link_type, raw, len(raw), "-"))
        if isinstance(carried, Segment) and carried.payload:
            return carried.payload
    return None


def _literal(text: str) -> tuple[bytes, str | None]:
    r"""Bytes of one or more string literals of Python or C: ``b'\x10\x0eMQTT'``."""
    parts: list[bytes] = []
    for literal in _STRING.finditer(text):
        try:
            parts.append(ast.literal_eval(f"b{literal[1]}"))
        except (SyntaxError, ValueError, MemoryError) as error:
            reason = getattr(error, "msg", None) or str(error)
            return b"", f"this is not a bytes literal: {reason}"
    rest = _STRING.sub("", text)
    if not parts or "'" in rest or '"' in rest:
        return b"", "this bytes literal has no end"
    return b"".join(parts), None


def _array(source: str) -> tuple[bytes, str | None] | None:
    """Bytes of an array: ``{0x10, 0x0e}``, ``[16, 14]``; ``None`` without an array."""
    text = _COMMENT.sub(" ", source)
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
