"""Values as filter expressions write them: text, numbers, sizes, durations, times, versions, addresses."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from fractions import Fraction
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network

from mqttscope.filter.parser import FilterError, Token
from mqttscope.mqtt.constants import ProtocolVersion

Fail = Callable[..., FilterError]
"""Creates the error: ``fail(message, position, length, hint)``."""

SIZES = {
    "b": 1,
    "kb": 1_000,
    "mb": 1_000_000,
    "gb": 1_000_000_000,
    "kib": 1_024,
    "mib": 1_048_576,
    "gib": 1_073_741_824,
}
"""Suffixes of sizes, in bytes; case-insensitive."""
DURATIONS = {
    "ns": 1,
    "us": 1_000,
    "µs": 1_000,
    "ms": 1_000_000,
    "s": 1_000_000_000,
    "m": 60_000_000_000,
    "min": 60_000_000_000,
    "h": 3_600_000_000_000,
    "d": 86_400_000_000_000,
}
"""Suffixes of durations, in nanoseconds."""

_SIZE = re.compile(r"([+-]?[0-9]+(?:\.[0-9]+)?)([a-z]+)", re.IGNORECASE)
_DECIMAL = re.compile(r"[+-]?[0-9]+\.[0-9]+")
_DURATION = re.compile(r"(?:[0-9]+(?:\.[0-9]+)?[a-zµ]+)+")
_DURATION_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?)([a-zµ]+)")
_TIME = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})[Tt ]([0-9]{2}):([0-9]{2})(?::([0-9]{2})(?:\.([0-9]{1,9}))?)?"
    r"([Zz]|[+-][0-9]{2}:?[0-9]{2})?"
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_ESCAPE = re.compile(r"\\(?:x([0-9A-Fa-f]{2})|u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|(.))", re.DOTALL)
_PLAIN_ESCAPES = {"n": b"\n", "r": b"\r", "t": b"\t", "0": b"\0", "\\": b"\\", '"': b'"', "'": b"'", "/": b"/"}


def _utf8(text: str) -> bytes:
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass")


def binary_text(token: Token, fail: Fail) -> bytes:
    r"""Bytes of quoted text: UTF-8, with ``\xNN`` for any byte."""
    inner, at = token.text[1:-1], 0
    parts: list[bytes] = []
    while (slash := inner.find("\\", at)) >= 0:
        parts.append(_utf8(inner[at:slash]))
        escape = _ESCAPE.match(inner, slash)
        assert escape is not None
        byte, short, long, plain = escape.groups()
        code = int(short or long or "0", 16)
        if byte is not None:
            parts.append(bytes((int(byte, 16),)))
        elif plain in _PLAIN_ESCAPES:
            parts.append(_PLAIN_ESCAPES[plain])
        elif plain is not None or code > 0x10FFFF:
            hint = r"known escapes: \n \r \t \0 \\ \" \' \/ \xNN \uNNNN \UNNNNNNNN; a backslash itself is \\"
            raise fail(f"unknown escape {escape[0]}", token.position + 1 + slash, len(escape[0]), hint)
        else:
            parts.append(_utf8(chr(code)))
        at = escape.end()
    parts.append(_utf8(inner[at:]))
    return b"".join(parts)


def text(token: Token, fail: Fail) -> str:
    """Quoted text; bytes that are not UTF-8 become surrogates, as in decoded packets."""
    return binary_text(token, fail).decode("utf-8", "surrogateescape")


def integer(written: str) -> int | None:
    """A whole number, decimal or with ``0x``."""
    try:
        return int(written, 0)
    except ValueError:
        return None


def any_number(written: str) -> int | float | None:
    """A number of any kind: whole, decimal, or with ``0x``."""
    whole = integer(written)
    if whole is not None:
        return whole
    try:
        return float(written) if written[:2].lower() != "0x" else None
    except ValueError:
        return None


def _whole(value: Fraction) -> int | float:
    return value.numerator if value.denominator == 1 else float(value)


def size(written: str) -> int | float | None:
    """A size with its suffix, in bytes."""
    parts = _SIZE.fullmatch(written)
    factor = SIZES.get(parts[2].lower()) if parts else None
    return None if parts is None or factor is None else _whole(Fraction(parts[1]) * factor)


def duration(written: str) -> int | float | None:
    """A duration such as ``90s``, ``1.5h`` or ``1h30m``, in nanoseconds."""
    if _DURATION.fullmatch(written) is None:
        return None
    total = Fraction(0)
    for amount, unit in _DURATION_PART.findall(written):
        if unit not in DURATIONS:
            return None
        total += Fraction(amount) * DURATIONS[unit]
    return _whole(total)


def number(token: Token, unit: str, name: str, fail: Fail) -> int | float:
    """A number for a field with this unit (``bytes``, ``seconds`` or empty)."""
    written = token.text
    value: int | float | None = integer(written)
    if value is not None:
        return value
    sized, lasting = size(written), duration(written)
    if unit == "bytes" and sized is not None:
        return sized
    if unit == "seconds" and lasting is not None:
        return _whole(Fraction(lasting) / 1_000_000_000)
    hint = ""
    if sized is not None:
        message = f"{name} is not measured in bytes"
    elif lasting is not None:
        message = f"{name} is not measured in time"
    elif _DECIMAL.fullmatch(written):
        message = f"{name} is a whole number"
    else:
        message = f"'{written}' is not a number"
        hint = {"bytes": "sizes: 10KB, 4KiB, 1MB", "seconds": "durations: 30s, 5min, 1h30m"}.get(unit, "")
    raise fail(message, token.position, len(written), hint)


def moment(token: Token, fail: Fail) -> tuple[int | float, bool]:
    """A time in nanoseconds, and whether it counts from the start of the capture."""
    quoted = token.kind == "string"
    written = text(token, fail) if quoted else token.text
    if written.startswith("+"):
        relative = duration(written[1:])
        if relative is not None:
            return relative, True
    parts = _TIME.fullmatch(written)
    place = token.position, len(token.text)
    if parts is None:
        hint = "a time is 2026-01-02T03:04:05Z, or +30s from the start of the capture"
        raise fail(f"'{written}' is not a time", *place, hint)
    if parts[8] is None:
        hint = f"add Z for UTC, or an offset: {written}Z, {written}+02:00"
        raise fail("this time has no time zone", *place, hint)
    try:
        whole = datetime(*(int(parts[index] or 0) for index in range(1, 7)), tzinfo=UTC) - _EPOCH  # type: ignore[misc,arg-type]
    except ValueError as error:
        raise fail(f"'{written}' is not a time: {error}", *place, "") from None
    nanoseconds = (whole.days * 86_400 + whole.seconds) * 1_000_000_000 + int((parts[7] or "").ljust(9, "0") or 0)
    return nanoseconds - _offset(parts[8]), False


def _offset(zone: str) -> int:
    if zone in "Zz":
        return 0
    minutes = int(zone[1:3]) * 60 + int(zone[-2:])
    return (-minutes if zone[0] == "-" else minutes) * DURATIONS["min"]


def version(token: Token, fail: Fail) -> int:
    """An MQTT version."""
    written = text(token, fail) if token.kind == "string" else token.text
    try:
        return ProtocolVersion.from_text(written)
    except ValueError:
        hint = "versions: 3.1, 3.1.1, 5.0"
        raise fail(f"'{written}' is not an MQTT version", token.position, len(token.text), hint) from None


def hexadecimal(token: Token, fail: Fail) -> bytes:
    """Bytes written as ``0x`` and an even number of digits."""
    digits = token.text[2:].replace("_", "")
    if token.text[:2].lower() == "0x" and len(digits) % 2 == 0:
        with suppress(ValueError):
            return bytes.fromhex(digits)
    hint = "bytes are quoted text or pairs of hex digits: 0x00ff"
    raise fail(f"'{token.text}' is not a sequence of bytes", token.position, len(token.text), hint)


def address(written: str) -> str:
    """The normal form of an IP address; other text unchanged."""
    try:
        return str(ip_address(written))
    except ValueError:
        return written


def network(written: str) -> IPv4Network | IPv6Network | None:
    """An IP network such as ``10.0.0.0/8``."""
    if "/" not in written:
        return None
    try:
        return ip_network(written, strict=False)
    except ValueError:
        return None
