"""Replaces texts and bytes under a key: length and form stay, equal values stay equal, different ones stay different.

A text keeps its length in bytes, its punctuation, and everything that the linter reports: control characters,
non-characters, bytes that are not UTF-8.  Letters become letters, digits become digits, and other characters become
others of equal size.  JSON stays JSON.

Short values are permuted by a Feistel network over all texts of the form, so that two different values never become
equal: the topics ``a/1`` and ``a/2`` stay two topics.  Long values are changed by a stream from the key and the value.
Without the key it is impossible to test candidates or to reverse a replacement.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from functools import cache, lru_cache
from hashlib import blake2b, shake_256
from typing import Final

MAX_PERMUTED: Final = 32
"""Maximum length of permuted values; the probability that two longer values become equal is 1 in 10**16."""
MAX_PERMUTED_BYTES: Final = 16
MAX_TABLE: Final = 256
"""Maximum size of a permutation that is stored as a table."""
MAX_JSON: Final = 1 << 16
"""Maximum size of a payload that is parsed as JSON; a larger one is treated as plain text."""
ROUNDS: Final = 8
KEY_BYTES: Final = 32

_LOWER: Final = "abcdefghijklmnopqrstuvwxyz"
_DIGITS: Final = "0123456789"
_NOT_ZERO: Final = _DIGITS[1:]
_HEX_LETTERS: Final = "abcdef"
_ALNUM: Final = _DIGITS + _LOWER.upper() + _LOWER
_HEX_WORD: Final = re.compile(r"(?<![0-9A-Za-z])(?=[0-9a-fA-F]*[0-9])(?:[0-9a-f]{8,}|[0-9A-F]{8,})(?![0-9A-Za-z])")
_UUID: Final = re.compile(r"[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}")
_JSON_TOKEN: Final = re.compile(
    r'"(?P<text>(?:[^"\\]|\\.)*)"|-?(?P<number>\d+(?:\.\d+)?)(?:[eE][-+]?\d+)?|true|false|null', re.DOTALL
)
_JSON_CHARACTER: Final = re.compile(
    r"\\u(?P<high>[dD][89abAB][0-9a-fA-F]{2})\\u(?P<low>[dD][c-fC-F][0-9a-fA-F]{2})|\\u(?P<code>[0-9a-fA-F]{4})"
    r"|\\.|[^\\]",
    re.DOTALL,
)
_NEVER_UTF8: Final = bytes((*range(0xF8, 0x100), 0xC0, 0xC1))
"""Bytes that never occur in UTF-8."""
_KEPT_ILL_FORMED: Final = 4
"""Maximum number of consecutive ill-formed bytes that stay: an overlong form or a surrogate has at most four."""

Places = list[tuple[int, str]]
"""Offset and alphabet of each character to replace."""


@cache
def _printable(size: int) -> str:
    """All printable characters of ``size`` bytes in UTF-8; for four bytes, only planes 1 and 2."""
    first, last = {2: (0x80, 0x800), 3: (0x800, 0x10000), 4: (0x10000, 0x30000)}[size]
    return "".join(character for character in map(chr, range(first, last)) if character.isprintable())


@cache
def _members(alphabet: str) -> dict[str, int]:
    return {character: index for index, character in enumerate(alphabet)}


class Pseudonyms:
    """Replacements under one key."""

    def __init__(self, key: bytes) -> None:
        """``key`` is arbitrary bytes; equal keys give equal replacements."""
        self._key = blake2b(key, digest_size=KEY_BYTES, person=b"mqttscope").digest()
        self._table = lru_cache(4096)(self._make_table)
        self._token = lru_cache(65_536)(self._make_token)
        self.name: Callable[[bytes], bytes] = lru_cache(65_536)(self._name)
        """Replace a name, keeping its form; upper and lower case correspond, and slashes, ``+`` and ``#`` stay."""

    def number(self, purpose: bytes, value: bytes, size: int) -> int:
        """A number below ``size``, determined by the key and the value."""
        return int.from_bytes(self.stream(purpose, value, 16 + size.bit_length() // 8), "big") % size

    def stream(self, purpose: bytes, value: bytes, length: int) -> bytes:
        """``length`` bytes, determined by the key and the value."""
        head = self._key + len(purpose).to_bytes(2, "big") + purpose
        return shake_256(head + value).digest(length)

    def permute(self, value: int, size: int, purpose: bytes) -> int:
        """The number that a permutation of the numbers below ``size`` gives; ``size`` is at most `MAX_TABLE`."""
        return self._table(size, purpose)[value]

    def permutation(self, size: int, purpose: bytes) -> tuple[int, ...]:
        """The results of `permute` for all numbers below ``size``, in order."""
        return self._table(size, purpose)

    def _make_table(self, size: int, purpose: bytes) -> tuple[int, ...]:
        stream = self.stream(purpose, b"table", 8 * size)
        return tuple(sorted(range(size), key=lambda index: stream[8 * index : 8 * index + 8]))

    def _name(self, raw: bytes) -> bytes:
        return self.text(raw, b"name")

    def text(self, raw: bytes, purpose: bytes) -> bytes:
        """Replace a text, keeping its form, including ill-formed UTF-8."""
        if len(raw) > MAX_PERMUTED and raw.isascii():
            return self._long_ascii(raw, purpose)
        text = raw.decode("utf-8", "surrogateescape")
        shown = self._moved(text, _places(text), purpose)
        return shown.encode("utf-8", "surrogateescape") if shown.isascii() else _without_runs(self, shown)

    def payload(self, raw: bytes, purpose: bytes = b"payload") -> bytes:
        """Replace a payload, keeping its length: JSON stays JSON, other text stays text, binary stays binary."""
        try:
            text = raw.decode()
        except UnicodeDecodeError:
            return self.binary(raw, purpose)
        if len(raw) <= MAX_JSON and _is_json(text):
            return _JSON_TOKEN.sub(self._json_token, text).encode()
        return self.text(raw, purpose)

    def binary(self, raw: bytes, purpose: bytes) -> bytes:
        """Replace bytes that are not UTF-8 with others of equal length that are not UTF-8 either."""
        length = len(raw)
        if length == 1:
            # Bytes from 0x80 on are not UTF-8 text.
            return bytes((0x80 + self.permute(raw[0] - 0x80, 0x80, b"bytes " + purpose),)) if raw[0] > 0x7F else raw
        result = raw
        # Repeating a permutation until the value is allowed gives a permutation of the allowed values.
        for turn in range(1, 4_097):
            if length <= MAX_PERMUTED_BYTES:
                digits = self._feistel(list(result), [256] * length, b"bytes " + purpose)
                result = bytes(digits)
            else:
                result = self.stream(b"bytes " + purpose + turn.to_bytes(2, "big"), raw, length)
            if not _is_utf8(result):
                return result
        return b"\xff" * length

    def secret(self, raw: bytes, purpose: bytes) -> bytes:
        """Replace a secret, keeping only its length and whether it is text."""
        stream = self.stream(b"secret " + purpose, raw, len(raw))
        if not _is_utf8(raw):
            return self.binary(raw, purpose)
        return bytes(ord(_ALNUM[octet % len(_ALNUM)]) for octet in stream)

    def _json_token(self, token: re.Match[str]) -> str:
        """Replace a JSON string or number; equal keys and values stay equal across payloads."""
        if token["number"] is not None or token["text"]:
            return self._token(token[0])
        return token[0]

    def _make_token(self, token: str) -> str:
        if token[0] == '"':
            text = token[1:-1]
            forms = [*_JSON_CHARACTER.finditer(text)] if "\\" in text else []
            if forms:
                text = "".join(map(_character, forms))
            moved = self._moved(text, _places(text), b"json text")
            if forms:
                moved = "".join(map(_in_its_form, forms, text, moved))
            return f'"{moved}"'
        return self._moved(token, _in_number(token), b"json number")

    def _moved(self, text: str, places: Places, purpose: bytes) -> str:
        """Replace the characters of a text at some places."""
        if not places:
            return text
        values, sizes = [], []
        for at, alphabet in places:
            values.append(_members(alphabet)[text[at].lower() if alphabet.isascii() else text[at]])
            sizes.append(len(alphabet))
        if len(places) <= MAX_PERMUTED:
            moved = self._feistel(values, sizes, purpose)
        else:
            word = "".join(text[at].lower() for at, _ in places)
            stream = self.stream(purpose, word.encode("utf-8", "surrogateescape"), 4 * len(values))
            moved = [int.from_bytes(stream[4 * at : 4 * at + 4], "big") % size for at, size in enumerate(sizes)]
        chars = list(text)
        for (at, alphabet), value in zip(places, moved, strict=True):
            char = alphabet[value]
            chars[at] = char.upper() if alphabet.isascii() and chars[at].isupper() else char
        return "".join(chars)

    def _long_ascii(self, raw: bytes, purpose: bytes) -> bytes:
        """`text` for a long ASCII text: all bytes at once."""
        text = raw.decode()
        if _HEX_WORD.search(text) is not None:
            return self._moved(text, _places(text), purpose).encode()
        length = len(raw)
        stream = self.stream(purpose + b" long", raw.lower(), length)
        result = int.from_bytes(raw, "big")
        for alphabet in (_LOWER.upper(), _LOWER, _DIGITS):
            members = alphabet.encode()
            # All bits are set in the bytes of this alphabet.
            mask = int.from_bytes(raw.translate(bytes(0xFF if octet in members else 0 for octet in range(256))), "big")
            chosen = stream.translate(bytes(members[octet % len(members)] for octet in range(256)))
            result = (result & ~mask) | (int.from_bytes(chosen, "big") & mask)
        return result.to_bytes(length, "big")

    def _feistel(self, values: list[int], sizes: Sequence[int], purpose: bytes) -> list[int]:
        """Apply a permutation of all lists of numbers below ``sizes``."""
        form = purpose + b"\0" + b".".join(b"%d" % size for size in sizes)
        total = 1
        for size in sizes:
            total *= size
        if total <= MAX_TABLE:
            return _split(self._table(total, form)[_joined(values, sizes)], sizes)
        half = len(sizes) // 2 or 1
        if len(sizes) == 1:
            # One character of a large alphabet: permute in a square of two halves, until the result is in range.
            side = int(total**0.5) + 1
            value = values[0]
            while True:
                value = _joined(self._feistel([value // side, value % side], [side, side], form), [side, side])
                if value < total:
                    return [value]
        left_size, right_size = 1, 1
        for size in sizes[:half]:
            left_size *= size
        for size in sizes[half:]:
            right_size *= size
        left, right = _joined(values[:half], sizes[:half]), _joined(values[half:], sizes[half:])
        for turn in range(ROUNDS):
            tweak = b"%s %d" % (form, turn)
            if turn % 2:
                right = (right + self.number(tweak, _octets(left), right_size)) % right_size
            else:
                left = (left + self.number(tweak, _octets(right), left_size)) % left_size
        return [*_split(left, sizes[:half]), *_split(right, sizes[half:])]


def _octets(number: int) -> bytes:
    return number.to_bytes(number.bit_length() // 8 + 1, "big")


def _joined(values: Sequence[int], sizes: Sequence[int]) -> int:
    number = 0
    for value, size in zip(values, sizes, strict=True):
        number = number * size + value
    return number


def _split(number: int, sizes: Sequence[int]) -> list[int]:
    values = []
    for size in reversed(sizes):
        number, value = divmod(number, size)
        values.append(value)
    return values[::-1]


def _is_utf8(raw: bytes) -> bool:
    try:
        raw.decode()
    except UnicodeDecodeError:
        return False
    return True


def _places(text: str) -> Places:
    """The characters of a text that are replaced: letters and digits, and what is printable beyond ASCII."""
    places: Places = []
    for at, char in enumerate(text):
        if "a" <= char <= "z" or "A" <= char <= "Z":
            places.append((at, _LOWER))
        elif "0" <= char <= "9":
            places.append((at, _DIGITS))
        elif char > "\x7f" and char.isprintable():
            alphabet = _printable(2 if char < "\u0800" else 3 if char < "\U00010000" else 4)
            if char in _members(alphabet):
                places.append((at, alphabet))
    if len(text) >= 8 and places:
        digits = {at for word in (_HEX_WORD, _UUID) for hit in word.finditer(text) for at in range(*hit.span())}
        if digits:
            # Hexadecimal words stay hexadecimal: rules recognise random names by them.
            places = [(at, _HEX_LETTERS if at in digits and known == _LOWER else known) for at, known in places]
    return places


def _is_json(text: str) -> bool:
    head = text.lstrip()[:1]
    if not head or head not in '{["-tfn0123456789':
        return False
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _in_number(token: str) -> Places:
    """The digits of a number to replace; the result has no leading zeros and keeps the exponent."""
    places: Places = []
    mantissa = re.split("[eE]", token, maxsplit=1)[0]
    whole = mantissa.lstrip("-").partition(".")[0]
    first = mantissa.find(whole)
    for at, char in enumerate(mantissa):
        if char.isdigit():
            places.append((at, _NOT_ZERO if at == first and len(whole) > 1 else _DIGITS))
    return places


def _character(form: re.Match[str]) -> str:
    """The character that a JSON text has in this form; for a short escape, one that is not replaced."""
    if form["code"] is not None:
        return chr(int(form["code"], 16))
    if form["low"] is not None:
        return chr(0x10000 + ((int(form["high"], 16) - 0xD800) << 10) + int(form["low"], 16) - 0xDC00)
    return "\\" if form[0][0] == "\\" else form[0]


def _in_its_form(form: re.Match[str], before: str, after: str) -> str:
    """A replacement, escaped if its original is."""
    if after == before:
        return form[0]
    if form["code"] is not None:
        return f"\\u{ord(after):04x}"
    if form["low"] is not None:
        high, low = divmod(ord(after) - 0x10000, 0x400)
        return f"\\u{0xD800 + high:04x}\\u{0xDC00 + low:04x}"
    return after


def _without_runs(pseudonyms: Pseudonyms, text: str) -> bytes:
    """The bytes of a text, with long runs of ill-formed bytes replaced by other ill-formed bytes."""
    raw = bytearray(text.encode("utf-8", "surrogateescape"))
    at = run = 0
    for char in text:
        if "\udc80" <= char <= "\udcff":
            run += 1
            if run > _KEPT_ILL_FORMED:
                index = pseudonyms.number(b"ill-formed", bytes(raw[max(0, at - 8) : at + 1]), len(_NEVER_UTF8))
                raw[at] = _NEVER_UTF8[index]
            at += 1
        else:
            run = 0
            at += len(char.encode("utf-8", "surrogatepass"))
    return bytes(raw)
