"""Shapes of Client Identifiers: the same without serial numbers, so that a fleet becomes a few groups."""

from __future__ import annotations

import re

MARK = "#"
_ALONE, _END = "(?<![0-9A-Za-z])", "(?![0-9A-Za-z])"
_HEX = "[0-9A-Fa-f]"
PATTERN = "|".join(
    (
        # A UUID, and an address of a network card.
        f"{_ALONE}{_HEX}{{8}}-(?:{_HEX}{{4}}-){{3}}{_HEX}{{12}}{_END}",
        f"{_ALONE}{_HEX}{{2}}(?:[:_-]{_HEX}{{2}}){{5}}{_END}",
        # Hexadecimal between other characters: long, or with a digit, since words can be made of a to f.
        f"{_ALONE}{_HEX}{{8,}}{_END}",
        f"{_ALONE}[A-Fa-f]*[0-9]{_HEX}*{_END}",
        # After a word: in capitals, or from a digit on to the end.
        "(?<=[a-z])[A-F]*[0-9][0-9A-F]{3,}" + _END,
        f"[0-9]{_HEX}{{3,}}{_END}",
        "[0-9]+",
    )
)
"""What counts as a serial number; means the same to Java as to Python."""
_FIND = re.compile(PATTERN)


def shape(client_identifier: str) -> str:
    """``sensor-0017`` and ``sensor-4711`` are ``sensor-#``; UUIDs, hexadecimal and other digits become ``#`` too."""
    return _FIND.sub(MARK, client_identifier)
