"""Looking for secrets in what a program has written, in every form in which somebody could read them there.

A run of `RUN` bytes of a secret is a leak: as it is, as hexadecimal digits (also spread over the rows of a hexdump),
in base64, or after the escapes of JSON, XML, percent signs and backslashes.
"""

from __future__ import annotations

import binascii
import html
import re
from base64 import b64decode
from collections.abc import Iterable, Iterator
from functools import lru_cache

RUN = 6
"""Bytes of a secret that give too much of it away."""
_ROW = re.compile(rb"^ *[0-9a-f]{4,8}  ((?:[0-9a-f]{2}|\*\*)(?: (?:[0-9a-f]{2}|\*\*))*) *(?:  (.*))?$")
"""A row of a hexdump: offset, bytes, the same as text."""
_DIGITS = re.compile(rb"(?:[0-9a-fA-F]{2}){6,}")
_SPACED = re.compile(rb"(?:[0-9a-fA-F]{2}[ :,]){5,}[0-9a-fA-F]{2}")
_BASE64 = re.compile(rb"[A-Za-z0-9+/_-]{12,}={0,2}")
_ESCAPE = re.compile(rb"\\+(?:x([0-9a-fA-F]{2})|u00([0-9a-fA-F]{2})|U000000([0-9a-fA-F]{2})|0?([0-7]{3}))")
_SHORT = {b"\\n": b"\n", b"\\r": b"\r", b"\\t": b"\t", b'\\"': b'"', b"\\/": b"/", b"\\b": b"\b", b"\\f": b"\f"}
_PERCENT = re.compile(rb"%([0-9a-fA-F]{2})")
_COLOUR = re.compile(rb"\x1b\[[0-9;]*m")


class Secrets:
    """Secrets to look for."""

    def __init__(self, values: Iterable[bytes]) -> None:
        self.values = tuple(values)
        # Every run of 6 bytes has one of 4 in it that begins at a third byte: fewer to look for.
        runs: dict[bytes, set[bytes]] = {}
        for raw in self.values:
            for at in range(max(0, len(raw) - RUN + 1)):
                start = -(-at // 3) * 3
                runs.setdefault(raw[start : start + 4], set()).add(raw[at : at + RUN])
        self._runs = tuple((short, tuple(sorted(run))) for short, run in runs.items())

    def inside(self, data: bytes) -> bytes | None:
        """The first run of a secret in these bytes."""
        for short, chunks in self._runs:
            if short in data:
                for run in chunks:
                    if run in data:
                        return run
        return None

    def leak(self, written: bytes) -> tuple[str, bytes] | None:
        """The form in which some run of a secret stands in what was written, and the run."""
        for form, data in readings(written):
            raw = self.inside(data)
            if raw is not None:
                return form, raw
        return None


def readings(written: bytes) -> Iterator[tuple[str, bytes]]:
    """What can be read out of something written, by the names of the forms."""
    written = _COLOUR.sub(b"", written)
    yield "plain", written
    yield "hexdump", b"\n".join(_hexdumps(written))
    digits = b"\n".join(_unhexed(_DIGITS.findall(written)))
    yield "hex", digits
    spaced = (re.sub(rb"[ :,]", b"", hit) for hit in _SPACED.findall(written))
    yield "spaced hex", b"\n".join(_unhexed(spaced))
    yield "base64", b"\n".join(_from_base64(written))
    plain = _unescaped(written)
    if plain != written:
        yield "escapes", plain
        yield "escapes twice", _unescaped(plain)
    if b"&" in written:
        yield "xml", html.unescape(written.decode("utf-8", "replace")).encode("utf-8", "replace")
    if b"%" in written:
        yield "percent", _PERCENT.sub(lambda match: bytes.fromhex(match[1].decode()), written)


def _hexdumps(written: bytes) -> Iterator[bytes]:
    """The bytes of each hexdump in one piece, and its texts in one piece."""
    rows: list[bytes] = []
    texts: list[bytes] = []
    for line in written.replace(b"\\n", b"\n").split(b"\n"):
        result = _ROW.match(line)
        if result is not None:
            rows += (b"\0" if word == b"**" else bytes.fromhex(word.decode()) for word in result[1].split(b" "))
            texts.append(result[2] or b"")
        elif rows and not line.strip(b" ^-abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_."):
            continue  # what stands under a row
        elif rows:
            yield b"".join(rows)
            yield b"".join(texts)
            rows, texts = [], []
    yield b"".join(rows)
    yield b"".join(texts)


def _unhexed(chunks: Iterable[bytes]) -> Iterator[bytes]:
    for raw in chunks:
        yield binascii.unhexlify(raw[: len(raw) // 2 * 2])
        yield binascii.unhexlify(raw[1 : len(raw) - 1 + len(raw) % 2])


def _from_base64(written: bytes) -> Iterator[bytes]:
    # Most of it are words that stand everywhere.
    return map(_four_ways, dict.fromkeys(_BASE64.findall(written)))


@lru_cache(maxsize=1 << 14)
def _four_ways(word: bytes) -> bytes:
    """A word read as base64 that begins at any of its first four letters."""
    body = word.rstrip(b"=").replace(b"-", b"+").replace(b"_", b"/")
    parts = (body[start : start + (len(body) - start) // 4 * 4] for start in range(4))
    return b"\n".join(map(b64decode, parts))


def _unescaped(written: bytes) -> bytes:
    if b"\\" not in written:
        return written
    for short, plain in _SHORT.items():
        written = written.replace(short, plain)
    return _ESCAPE.sub(_byte, written)


def _byte(match: re.Match[bytes]) -> bytes:
    if match[4]:
        return bytes((int(match[4], 8) & 0xFF,))
    return bytes.fromhex((match[1] or match[2] or match[3]).decode())
