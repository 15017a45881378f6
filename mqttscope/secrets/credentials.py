"""Credentials in the short texts of packets: Reason Strings and their like, Client Identifiers, topics.

What counts has its name with it (``password=...``, ``api_key: ...``, ``Authorization: Bearer ...``) or stands in an
address (``https://user:password@host/?sig=...``).  After a colon a word alone is prose (``token: expired``), unless it
has a digit or changes its case.  Nearly no text has the signs of any of these, and a look for them rules it out.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import overload

from mqttscope.mqtt.properties import BY_NAME, Properties
from mqttscope.secrets.addresses import secrets_of_addresses
from mqttscope.secrets.forms import MAX_SEARCHED, OVERLAP, Hidden, basic_ranges, is_suspect, joined
from mqttscope.secrets.names import is_secret_value

MAX_KEPT = 512
"""Characters of a name whose shown form is kept."""
TEXT_NAMES = (
    "reason_string", "server_reference", "response_information", "response_topic", "content_type",
    "assigned_client_identifier",
)  # fmt: skip
TEXTS = frozenset(BY_NAME[name].identifier for name in TEXT_NAMES)
"""Properties that are such texts."""
USER_PROPERTY = BY_NAME["user_property"].identifier
METHOD = BY_NAME["authentication_method"].identifier
_TOLD = TEXTS | {USER_PROPERTY, METHOD}
_BLANK = re.compile(r"\s")
_HAS_SIGN = re.compile(r"[=:]|%(?:25)*3[ADad]|<<|earer|EARER|asic|ASIC|,\\*[\"']| (?:is|was) |[ \t][\"'`]").search
"""One of them is in each text with a credential."""
_HAS_ADDRESS = re.compile(r"://|%(?:25)*3[Aa]%(?:25)*2[Ff]").search
_BEARER = re.compile(
    r"(?i:authori[sz]ation[\"']?\s{0,8}[:=]\s{0,8}[\"']?(?:bearer|basic)\s{1,8}"
    r"|(?<![a-z])bearer\s{1,8}(?=[^\s]{0,64}\d))([^\s\"',;]{4,})"
)


def credentials_in(text: str) -> list[tuple[int, int]]:
    """Where credentials stand in a text, in order and apart from each other."""
    if _HAS_SIGN(text) is None:
        return []
    found: list[tuple[int, int]] = []
    for first in range(0, max(1, len(text) - OVERLAP), MAX_SEARCHED - OVERLAP):
        part = text[first : first + MAX_SEARCHED]
        here = secrets_of_addresses(part) if _HAS_ADDRESS(part) is not None else []
        if is_suspect(part):
            from mqttscope.secrets.notations import named_values

            here += named_values(part, told=True)
            here += [hit.span(1) for hit in _BEARER.finditer(part)]
            here += basic_ranges(part)
        for start, end in here:
            last = first + end
            if end == MAX_SEARCHED:  # it continues in the next part, where its name is not seen
                blank = _BLANK.search(text, last)
                last = blank.start() if blank else len(text)
            found.append((first + start, last))
    return joined(found)


def hidden_credentials(text: str) -> list[Hidden]:
    """The same as parts of a text with what is shown instead."""
    return [Hidden(start, end, f"***({end - start} characters)") for start, end in credentials_in(text)]


def starred(text: str) -> str:
    """A text of as many bytes with an asterisk for each byte of a credential; itself where it has none."""
    found = credentials_in(text)
    if not found:
        return text
    parts, at = [], 0
    for start, end in found:
        parts += [text[at:start], "*" * _size(text[start:end])]
        at = end
    return "".join([*parts, text[at:]])


def starred_name(text: str) -> str:
    """The same for Client Identifiers and topics, which recur."""
    return _starred_name(text) if len(text) <= MAX_KEPT else starred(text)


@lru_cache(4096)
def _starred_name(text: str) -> str:
    return starred(text)


def credential_bytes(data: bytes) -> list[tuple[int, int]]:
    """Where credentials stand in the bytes of a text."""
    text = data.decode("utf-8", "surrogateescape")
    found = []
    for start, end in credentials_in(text):
        first = _size(text[:start])
        found.append((first, first + _size(text[start:end])))
    return found


@overload
def without_told(block: Properties) -> Properties: ...
@overload
def without_told(block: None) -> None: ...
def without_told(block: Properties | None) -> Properties | None:
    """The properties of a packet without credentials in its texts; itself where there are none."""
    if not block:
        return block
    numbers = [number for number, _ in block.items]
    if _TOLD.isdisjoint(numbers):
        return block
    # A second method may be Authentication Data whose identifier is damaged.
    method = numbers.index(METHOD) if METHOD in numbers else -1
    shown = tuple(
        (
            number,
            "*" * _size(value)
            if number == METHOD and at != method and isinstance(value, str)
            else _shown(number, value),
        )
        for at, (number, value) in enumerate(block.items)
    )
    return block if shown == tuple(block.items) else Properties.of(shown)


def _shown(number: int, value: object) -> object:
    if number in TEXTS and isinstance(value, str):
        return starred(value)
    if number == USER_PROPERTY and isinstance(value, tuple):
        return starred_pair(*value)
    return value


def starred_pair(name: str, value: str) -> tuple[str, str]:
    """The name and the value of a User Property without credentials."""
    return starred_name(name), "*" * _size(value) if is_secret_value(name, value) else starred(value)


def _size(text: str) -> int:
    return len(text.encode("utf-8", "surrogateescape"))
