r"""Escapes captured text for a terminal, and measures it in columns.

Payloads, topics and Client Identifiers come from any client of the broker.  Characters that move the cursor, change
colours or reorder the line must not reach the terminal and are shown as escapes: ``
``, ``\x1b``, ``\u202e``.  Bytes
that are not UTF-8 are shown as ``\x80``.  Backslashes in the data are unchanged.
"""

from __future__ import annotations

import re

from rich.cells import cell_len, get_character_cell_size

MAX_MARKS = 3
"""Maximum number of combining marks shown on one character; further ones are escaped, or they would cover the lines
above."""

_SHORT = {"\t": "\\t", "\n": "\\n", "\r": "\\r"}


def escape(text: str, *, ascii_only: bool = False) -> str:
    """Text without characters that control a terminal.

    Control, format and unassigned characters, line and paragraph separators, spaces other than U+0020, variation
    selectors and lone surrogates become escapes; with ``ascii_only`` everything outside ASCII does.
    """
    if text.isprintable():
        if text.isascii() or (not ascii_only and _ORDINARY.fullmatch(text)):
            return text
    elif text.isascii():
        return _CONTROL.sub(lambda match: _escaped_ascii(match[0]), text)
    out: list[str] = []
    marks = 0
    for char in text:
        if char < "\x7f":
            out.append(char if char >= " " else _escaped_ascii(char))
            marks = 0
            continue
        if ascii_only or not char.isprintable() or "\ufe00" <= char <= "\ufe0f" or "\U000e0100" <= char <= "\U000e01ef":
            out.append(escaped(char))
            marks = 0
            continue
        marks = 0 if get_character_cell_size(char) else marks + 1
        out.append(escaped(char) if marks > MAX_MARKS else char)
    return "".join(out)


_ORDINARY = re.compile(
    "[ -~\xa1-\u02ff\u0370-\u0482\u048a-\u0590\u2010-\u2027\u2030-\u205e\u2070-\u20cf\u2100-\u2bff\u3001-\u3029"
    "\u3030-\u3098\u30a0-\u312f\u3190-\ua66e\uac00-\ud7a3\uff01-\uff9d]*"
)
"""Text without combining marks and variation selectors; whether each character is printable is checked elsewhere."""
_CONTROL = re.compile("[\0-\x1f\x7f]")


def escape_bytes(raw: bytes, *, ascii_only: bool = False) -> str:
    r"""Bytes as safe text: UTF-8 where valid, else ``\x80``."""
    return escape(raw.decode("utf-8", "surrogateescape"), ascii_only=ascii_only)


def _escaped_ascii(char: str) -> str:
    if char.isprintable():
        return char
    return _SHORT.get(char) or f"\\x{ord(char):02x}"


def escaped(char: str) -> str:
    r"""A character as an escape: ``\u202e``; ``\x80`` for a byte that is not UTF-8."""
    code = ord(char)
    if 0xDC80 <= code <= 0xDCFF:
        return f"\\x{code - 0xDC00:02x}"
    if code > 0xFFFF:
        return f"\\U{code:08x}"
    # Not \x85 for U+0085: this form means a byte that is not UTF-8.
    return f"\\u{code:04x}" if code > 0x7F else f"\\x{code:02x}"


_OTHERS = re.compile("[^\\x00-\\x7f→…]")
"""Any character except ASCII and the two that this program writes itself; these take one column each."""


def cells(text: str) -> int:
    return len(text) if text.isascii() or _OTHERS.search(text) is None else cell_len(text)


def cut(text: str, width: int, ellipsis: str = "…") -> str:
    """The beginning of escaped text in at most ``width`` columns, with an ellipsis if something was cut."""
    if len(text) <= width and cells(text) <= width:
        return text
    return head(text, max(0, width - len(ellipsis))) + ellipsis[: max(0, width)]


def head(text: str, width: int) -> str:
    """The longest beginning of escaped text that fits ``width`` columns."""
    if text.isascii():
        return text[:width]
    used = 0
    for index, char in enumerate(text):
        used += 1 if char < "\x7f" else get_character_cell_size(char)
        if used > width:
            return text[:index]
    return text


def elide(text: str, width: int, ellipsis: str = "…") -> str:
    """Escaped text in at most ``width`` columns without its middle: the ends of names distinguish them."""
    if len(text) <= width and cells(text) <= width:
        return text
    room = width - len(ellipsis)
    if room < 4:
        return cut(text, width, ellipsis)
    front = head(text, room - room // 3)
    back, left = len(text), room // 3
    while back > 0:
        left -= get_character_cell_size(text[back - 1])
        if left < 0:
            break
        back -= 1
    return front + ellipsis + text[back:]
