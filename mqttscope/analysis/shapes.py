"""Shapes of Client Identifiers: serial numbers become ``#``, so that a fleet becomes a few groups."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

MARK = "#"
_ALONE, _END = "(?<![0-9A-Za-z])", "(?![0-9A-Za-z])"
_HEX = "[0-9A-Fa-f]"
PATTERN = "|".join(
    (
        # A UUID, and a MAC address.
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
"""Serial numbers; Java and Python read this regular expression alike."""
LETTERS = f"{_ALONE}[A-Fa-f]{{2,}}{_END}"
"""Hexadecimal without a digit, which may be a word."""
_FIND, _FIND_LETTERS = re.compile(PATTERN), re.compile(LETTERS)


def shape(client_identifier: str) -> str:
    """``sensor-0017`` and ``sensor-4711`` are ``sensor-#``; UUIDs, hexadecimal and other digits become ``#`` too."""
    return _FIND.sub(MARK, client_identifier)


def shapes(client_identifiers: Sequence[str]) -> list[str]:
    """Shapes of distinct Client Identifiers.

    Letters from a to f alone are a number if that makes the shape of a larger group: ``dev-0017-bbcf`` is ``dev-#-#``
    beside ``dev-0018-41cd`` and ``dev-0019-b0e5``.
    """
    alone = list(map(shape, client_identifiers))
    counts = Counter(alone)
    larger = {name: _FIND_LETTERS.sub(MARK, name) for name in counts}
    return [larger[name] if counts[larger[name]] > counts[name] else name for name in alone]
