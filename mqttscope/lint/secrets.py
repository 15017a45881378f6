"""Text that looks like a secret or like personal data, and the same text with that part hidden."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise

_UUID = re.compile(r"[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}")
_KEYS: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("an AWS access key", re.compile(r"(?<![A-Z0-9])(?:AKIA|ASIA)[A-Z2-7][A-Z0-9]{15}(?![A-Z0-9])")),
    ("a JSON Web Token", re.compile(r"eyJ[\w-]{8,}\.[\w-]{8,}(?:\.[\w-]*)?")),
    ("a private key", re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*", re.DOTALL)),
    ("an access token", re.compile(r"(?<![A-Za-z0-9])(?:gh[pousr]_\w{36,}|xox[abprs]-[\w-]{10,}|AIza[\w-]{35})")),
)
_PEOPLE: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("an e-mail address", re.compile(r"[\w.%+-]+@[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)*\.[A-Za-z]{2,}")),
    ("a phone number", re.compile(r"(?<![\w+])(?:tel:\+?|\+)[1-9](?:[ ().-]?\d){7,14}(?!\d)")),
)
_LONG = re.compile(r"[A-Za-z0-9+_=-]{24,}")
_HEXADECIMAL = re.compile(r"[0-9a-f]+|[0-9A-F]+")
_BASE64 = re.compile(r"[A-Za-z0-9+_-]+={0,2}")
MAX_SEARCHED = 4_096
"""Characters of a text that are looked at."""


@dataclass(slots=True)
class Secret:
    """Something in a text that should not be there."""

    what: str
    """``a JSON Web Token``."""
    masked: str
    """The text with keys hidden but for their first characters, and personal data altogether."""


def find_secret(text: str, *, length: int = 40) -> Secret | None:
    """The first secret of a text; random hexadecimal digits or base64 count from ``length`` characters on."""
    told = None
    masked = text[:MAX_SEARCHED]
    for patterns, replacement in ((_KEYS, _hide), (_PEOPLE, _hide_all)):
        for what, pattern in patterns:
            if pattern.search(masked):
                told = told or what
                masked = pattern.sub(replacement, masked)
    for hit in _LONG.finditer(masked):
        kind = _random(hit[0], length)
        if kind:
            told = told or kind
            masked = masked.replace(hit[0], hide(hit[0]))
    return None if told is None else Secret(told, masked)


def hide(text: str) -> str:
    """The first characters of a secret, at most four and a quarter of it, and its length."""
    return f"{text[: min(4, len(text) // 4)]}***({len(text)} characters)"


def masked(text: str) -> str:
    """The text as a message may show it."""
    found = find_secret(text)
    return text if found is None else found.masked


def _hide(hit: re.Match[str]) -> str:
    return hide(hit[0])


def _hide_all(hit: re.Match[str]) -> str:
    return f"***({len(hit[0])} characters)"


def _random(word: str, length: int) -> str:
    """What a long word is if it is random, empty when it may be a name."""
    if len(word) < length or _UUID.search(word):
        return ""
    if _HEXADECIMAL.fullmatch(word):
        return f"{len(word)} hexadecimal digits" if len(set(word)) >= 8 and not word.isdigit() else ""
    body = word.rstrip("=")
    kinds = (any(map(str.islower, body)), any(map(str.isupper, body)), sum(map(str.isdigit, body)) > 1)
    if all(kinds) and _BASE64.fullmatch(word) and len(set(body)) >= 16 and _changes(body) * 4 >= len(body):
        return f"{len(word)} characters of base64"
    return ""


def _changes(word: str) -> int:
    """How often the kind of character changes: rarely in words, all the time in random text."""
    kinds = [0 if one.islower() else 1 if one.isupper() else 2 if one.isdigit() else 3 for one in word]
    return sum(one != other for one, other in pairwise(kinds))
