"""Finds credentials in short texts of packets: Reason Strings, other string properties, Client Identifiers, topics.

A credential has a name (``password=...``, ``api_key: ...``, ``Authorization: Bearer ...``) or is part of a URL
(``https://user:password@host/?sig=...``).  After a colon a single word is prose (``token: expired``), unless it has a
digit or a change of case.  Very few texts contain the signs of credentials, and a quick search rules out the others.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import overload

from mqttscope.mqtt.properties import BY_NAME, Properties
from mqttscope.secrets.addresses import secrets_of_addresses
from mqttscope.secrets.forms import MAX_SEARCHED, OVERLAP, HiddenPart, basic_ranges, is_suspect, joined
from mqttscope.secrets.names import is_secret_value

MAX_KEPT = 512
"""Maximum length of a name with a cached concealed form."""
TEXT_NAMES = (
    "reason_string", "server_reference", "response_information", "response_topic", "content_type",
    "assigned_client_identifier",
)  # fmt: skip
TEXTS = frozenset(BY_NAME[name].identifier for name in TEXT_NAMES)
"""Identifiers of string properties that may contain credentials."""
USER_PROPERTY = BY_NAME["user_property"].identifier
METHOD = BY_NAME["authentication_method"].identifier
_TEXT_PROPERTIES = TEXTS | {USER_PROPERTY, METHOD}
_BLANK = re.compile(r"\s")
_HAS_SIGN = re.compile(r"[=:]|%(?:25)*3[ADad]|<<|earer|EARER|asic|ASIC|,\\*[\"']| (?:is|was) |[ \t][\"'`]").search
"""Signs of credentials: every text with a credential contains at least one."""
_HAS_ADDRESS = re.compile(r"://|%(?:25)*3[Aa]%(?:25)*2[Ff]").search
_BEARER = re.compile(
    r"(?i:authori[sz]ation[\"']?\s{0,8}[:=]\s{0,8}[\"']?(?:bearer|basic)\s{1,8}"
    r"|(?<![a-z])bearer\s{1,8}(?=[^\s]{0,64}\d))([^\s\"',;]{4,})"
)
_REPLACEMENT = re.compile(r"\*\*\*\(\d+ characters\)")


def credentials_in(text: str) -> list[tuple[int, int]]:
    """Ranges of credentials in a text, sorted and disjoint."""
    if _HAS_SIGN(text) is None:
        return []
    ranges: list[tuple[int, int]] = []
    for first in range(0, max(1, len(text) - OVERLAP), MAX_SEARCHED - OVERLAP):
        part = text[first : first + MAX_SEARCHED]
        here = secrets_of_addresses(part) if _HAS_ADDRESS(part) is not None else []
        if is_suspect(part):
            from mqttscope.secrets.notations import named_values

            here += named_values(part, is_prose=True)
            here += [hit.span(1) for hit in _BEARER.finditer(part)]
            here += basic_ranges(part)
        for start, end in here:
            last = first + end
            if end == MAX_SEARCHED:  # it continues in the next part, which lacks its name
                blank = _BLANK.search(text, last)
                last = blank.start() if blank else len(text)
            ranges.append((first + start, last))
    return joined(ranges)


def hidden_credentials(text: str) -> list[HiddenPart]:
    """Credentials of a text as parts to hide, with replacement texts; a replacement stays as it is."""
    return [
        HiddenPart(start, end, f"***({end - start} characters)")
        for start, end in credentials_in(text)
        if (hidden := _REPLACEMENT.match(text, start)) is None or hidden.end() < end
    ]


def starred(text: str) -> str:
    """The text with an asterisk for each byte of a credential; the text itself without credentials."""
    ranges = credentials_in(text)
    if not ranges:
        return text
    parts, at = [], 0
    for start, end in ranges:
        parts += [text[at:start], "*" * _size(text[start:end])]
        at = end
    return "".join([*parts, text[at:]])


def starred_name(text: str) -> str:
    """The text as from `starred`, cached for Client Identifiers and topics, which recur."""
    return _starred_name(text) if len(text) <= MAX_KEPT else starred(text)


@lru_cache(4096)
def _starred_name(text: str) -> str:
    return starred(text)


def credential_bytes(data: bytes) -> list[tuple[int, int]]:
    """Ranges of credentials in a text, as byte offsets."""
    text = data.decode("utf-8", "surrogateescape")
    ranges = []
    for start, end in credentials_in(text):
        first = _size(text[:start])
        ranges.append((first, first + _size(text[start:end])))
    return ranges


@overload
def without_property_credentials(block: Properties) -> Properties: ...
@overload
def without_property_credentials(block: None) -> None: ...
def without_property_credentials(block: Properties | None) -> Properties | None:
    """The properties with credentials in their texts hidden; the block itself without credentials."""
    if not block:
        return block
    numbers = [number for number, _ in block.items]
    if _TEXT_PROPERTIES.isdisjoint(numbers):
        return block
    # A second Authentication Method may be Authentication Data with a damaged identifier.
    method = numbers.index(METHOD) if METHOD in numbers else -1
    shown = tuple(
        (
            number,
            "*" * _size(value)
            if number == METHOD and at != method and isinstance(value, str)
            else _starred_value(number, value),
        )
        for at, (number, value) in enumerate(block.items)
    )
    return block if shown == tuple(block.items) else Properties.of(shown)


def _starred_value(number: int, value: object) -> object:
    if number in TEXTS and isinstance(value, str):
        return starred(value)
    if number == USER_PROPERTY and isinstance(value, tuple):
        return starred_pair(*value)
    return value


def starred_pair(name: str, value: str) -> tuple[str, str]:
    """Name and value of a User Property without credentials."""
    return starred_name(name), "*" * _size(value) if is_secret_value(name, value) else starred(value)


def _size(text: str) -> int:
    return len(text.encode("utf-8", "surrogateescape"))
