"""Replaces texts and bytes by others of the same length and form, under a key: equal ones stay equal, others differ.

A text keeps its length in bytes, its punctuation, and what makes rules of the linter fire: control characters,
non-characters, bytes that are no UTF-8.  Letters become letters, digits become digits, other characters become others
of as many bytes.  JSON stays JSON.

Short values are permuted by a Feistel network over exactly the texts of the same form, so that two of them never become
one: the topics ``a/1`` and ``a/2`` stay two topics.  Long values are moved by a stream of the key and the value.  Who
does not have the key cannot try candidates; nobody can calculate back without it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from functools import cache, lru_cache
from hashlib import blake2b, shake_256
from typing import Final

MAX_PERMUTED: Final = 32
"""Characters up to which a value is permuted; of longer ones no two become one, except by a chance of 1 to 10**16."""
MAX_PERMUTED_BYTES: Final = 16
MAX_TABLE: Final = 256
"""Values that a permutation written out as a table has at most."""
MAX_JSON: Final = 1 << 16
"""Bytes of a payload up to which it is taken for JSON, and beyond which for any text."""
ROUNDS: Final = 8
KEY_BYTES: Final = 32

_LOWER: Final = "abcdefghijklmnopqrstuvwxyz"
_DIGITS: Final = "0123456789"
_NOT_ZERO: Final = _DIGITS[1:]
_HEX_LETTERS: Final = "abcdef"
_HEX: Final = _DIGITS + _HEX_LETTERS
_ALNUM: Final = _DIGITS + _LOWER.upper() + _LOWER
_HEX_WORD: Final = re.compile(r"(?<![0-9A-Za-z])(?=[0-9a-fA-F]*[0-9])(?:[0-9a-f]{8,}|[0-9A-F]{8,})(?![0-9A-Za-z])")
_UUID: Final = re.compile(r"[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}")
_JSON_TOKEN: Final = re.compile(
    r'"(?P<text>(?:[^"\\]|\\.)*)"|-?(?P<number>\d+(?:\.\d+)?)(?:[eE][-+]?\d+)?|true|false|null', re.DOTALL
)
_JSON_ESCAPE: Final = re.compile(r"\\(?:u(?P<code>[0-9a-fA-F]{4})|.)", re.DOTALL)
_NEVER_UTF8: Final = bytes((*range(0xF8, 0x100), 0xC0, 0xC1))
"""Bytes that stand in no UTF-8 text."""
_KEPT_ILL_FORMED: Final = 4
"""Bytes in a row that are no UTF-8 and stay: an overlong form or a surrogate has no more."""

Places = list[tuple[int, str]]
"""Where characters stand that are replaced, and from which alphabet each is."""


@cache
def _printable(size: int) -> str:
    """All printable characters of ``size`` bytes in UTF-8; of those of four bytes, planes 1 and 2."""
    first, last = {2: (0x80, 0x800), 3: (0x800, 0x10000), 4: (0x10000, 0x30000)}[size]
    return "".join(one for one in map(chr, range(first, last)) if one.isprintable())


@cache
def _members(alphabet: str) -> dict[str, int]:
    return {one: index for index, one in enumerate(alphabet)}


class Pseudonyms:
    """The replacements of one run."""

    def __init__(self, key: bytes) -> None:
        """``key``: any bytes; the same key gives the same replacements."""
        self._key = blake2b(key, digest_size=KEY_BYTES, person=b"mqttscope").digest()
        self._table = lru_cache(4096)(self._make_table)
        self._token = lru_cache(65_536)(self._make_token)
        self.name: Callable[[bytes], bytes] = lru_cache(65_536)(self._name)
        """A name of the same form; letters of both cases correspond, and slashes, ``+`` and ``#`` stay."""

    def number(self, purpose: bytes, value: bytes, size: int) -> int:
        """A number below ``size`` that the key makes of a value."""
        return int.from_bytes(self.stream(purpose, value, 16 + size.bit_length() // 8), "big") % size

    def stream(self, purpose: bytes, value: bytes, length: int) -> bytes:
        """So many bytes that the key makes of a value."""
        head = self._key + len(purpose).to_bytes(2, "big") + purpose
        return shake_256(head + value).digest(length)

    def permute(self, value: int, size: int, purpose: bytes) -> int:
        """Another of the numbers below ``size``, for each number a different one; for at most `MAX_TABLE` numbers."""
        return self._table(size, purpose)[value]

    def permutation(self, size: int, purpose: bytes) -> tuple[int, ...]:
        """What `permute` gives for each of the numbers, in their order."""
        return self._table(size, purpose)

    def _make_table(self, size: int, purpose: bytes) -> tuple[int, ...]:
        stream = self.stream(purpose, b"table", 8 * size)
        return tuple(sorted(range(size), key=lambda one: stream[8 * one : 8 * one + 8]))

    def _name(self, raw: bytes) -> bytes:
        return self.text(raw, b"name")

    def text(self, raw: bytes, purpose: bytes) -> bytes:
        """A text of the same form, faults of its UTF-8 included."""
        if len(raw) > MAX_PERMUTED and raw.isascii():
            return self._long_ascii(raw, purpose)
        text = raw.decode("utf-8", "surrogateescape")
        shown = self._moved(text, _places(text), purpose)
        return shown.encode("utf-8", "surrogateescape") if shown.isascii() else _without_runs(self, shown)

    def payload(self, raw: bytes, purpose: bytes = b"payload") -> bytes:
        """A payload of the same length: JSON stays JSON, other text stays text, what is no text stays none."""
        try:
            text = raw.decode()
        except UnicodeDecodeError:
            return self.binary(raw, purpose)
        if len(raw) <= MAX_JSON and _is_json(text):
            return _JSON_TOKEN.sub(self._json_token, text).encode()
        return self.text(raw, purpose)

    def binary(self, raw: bytes, purpose: bytes) -> bytes:
        """Bytes of the same length that are no UTF-8 text either."""
        length = len(raw)
        if length == 1:
            # All bytes from 0x80 on are no text.
            return bytes((0x80 + self.permute(raw[0] - 0x80, 0x80, b"bytes " + purpose),)) if raw[0] > 0x7F else raw
        made = raw
        # A permutation that is applied again until the value is allowed is one of the allowed values.
        for turn in range(1, 4_097):
            if length <= MAX_PERMUTED_BYTES:
                digits = self._feistel(list(made), [256] * length, b"bytes " + purpose)
                made = bytes(digits)
            else:
                made = self.stream(b"bytes " + purpose + turn.to_bytes(2, "big"), raw, length)
            if not _is_utf8(made):
                return made
        return b"\xff" * length

    def secret(self, raw: bytes, purpose: bytes) -> bytes:
        """A secret of the same length: nothing of its form is left but whether it was text."""
        stream = self.stream(b"secret " + purpose, raw, len(raw))
        if not _is_utf8(raw):
            return self.binary(raw, purpose)
        return bytes(ord(_ALNUM[one % len(_ALNUM)]) for one in stream)

    def _json_token(self, token: re.Match[str]) -> str:
        """A text or a number of JSON: keys and values that are equal stay so from payload to payload."""
        if token["number"] is not None or token["text"]:
            return self._token(token[0])
        return token[0]

    def _make_token(self, token: str) -> str:
        if token[0] == '"':
            return self._moved(token, _in_json_text(token[1:-1], 1), b"json text")
        return self._moved(token, _in_number(token), b"json number")

    def _moved(self, text: str, places: Places, purpose: bytes) -> str:
        """A text with other characters in some places."""
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
        """`text` for a long one without other characters: all of its bytes at once."""
        text = raw.decode()
        if _HEX_WORD.search(text) is not None:
            return self._moved(text, _places(text), purpose).encode()
        length = len(raw)
        stream = self.stream(purpose + b" long", raw.lower(), length)
        made = int.from_bytes(raw, "big")
        for alphabet in (_LOWER.upper(), _LOWER, _DIGITS):
            members = alphabet.encode()
            # Ones where a byte is of this alphabet.
            mask = int.from_bytes(raw.translate(bytes(0xFF if one in members else 0 for one in range(256))), "big")
            chosen = stream.translate(bytes(members[one % len(members)] for one in range(256)))
            made = (made & ~mask) | (int.from_bytes(chosen, "big") & mask)
        return made.to_bytes(length, "big")

    def _feistel(self, values: list[int], sizes: Sequence[int], purpose: bytes) -> list[int]:
        """A permutation of all lists of numbers below ``sizes``."""
        form = purpose + b"\0" + b".".join(b"%d" % one for one in sizes)
        total = 1
        for size in sizes:
            total *= size
        if total <= MAX_TABLE:
            return _split(self._table(total, form)[_joined(values, sizes)], sizes)
        half = len(sizes) // 2 or 1
        if len(sizes) == 1:
            # One character of a large alphabet: its number in two halves, within a square that is left again.
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
    found: Places = []
    for at, char in enumerate(text):
        if "a" <= char <= "z" or "A" <= char <= "Z":
            found.append((at, _LOWER))
        elif "0" <= char <= "9":
            found.append((at, _DIGITS))
        elif char > "\x7f" and char.isprintable():
            alphabet = _printable(2 if char < "\u0800" else 3 if char < "\U00010000" else 4)
            if char in _members(alphabet):
                found.append((at, alphabet))
    if len(text) >= 8 and found:
        digits = {at for word in (_HEX_WORD, _UUID) for hit in word.finditer(text) for at in range(*hit.span())}
        if digits:
            # What is hexadecimal stays hexadecimal: rules recognise random names by it.
            found = [(at, _HEX_LETTERS if at in digits and known == _LOWER else known) for at, known in found]
    return found


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
    """The digits of a number that are replaced: it does not begin with zeros afterwards, and keeps its exponent."""
    found: Places = []
    mantissa = re.split("[eE]", token, maxsplit=1)[0]
    whole = mantissa.lstrip("-").partition(".")[0]
    first = mantissa.find(whole)
    for at, char in enumerate(mantissa):
        if char.isdigit():
            found.append((at, _NOT_ZERO if at == first and len(whole) > 1 else _DIGITS))
    return found


def _in_json_text(text: str, start: int) -> Places:
    escaped: set[int] = set()
    found: Places = []
    for hit in _JSON_ESCAPE.finditer(text):
        escaped.update(range(*hit.span()))
        code = hit["code"]
        if code is not None and code[:2].lower() not in ("d8", "d9", "da", "db", "dc", "dd", "de", "df"):
            found += [(start + at, _HEX) for at in range(hit.end() - 2, hit.end())]
            if code[:2] != "00" and code[0] not in "dD":
                found.append((start + hit.end() - 3, _HEX))
    found += [(start + at, known) for at, known in _places(text) if at not in escaped]
    return sorted(found)


def _without_runs(made: Pseudonyms, text: str) -> bytes:
    """The bytes of a text; long runs of bytes that are no UTF-8 are replaced by others that are none."""
    raw = bytearray(text.encode("utf-8", "surrogateescape"))
    at = run = 0
    for char in text:
        if "\udc80" <= char <= "\udcff":
            run += 1
            if run > _KEPT_ILL_FORMED:
                index = made.number(b"ill-formed", bytes(raw[max(0, at - 8) : at + 1]), len(_NEVER_UTF8))
                raw[at] = _NEVER_UTF8[index]
            at += 1
        else:
            run = 0
            at += len(char.encode("utf-8", "surrogatepass"))
    return bytes(raw)
